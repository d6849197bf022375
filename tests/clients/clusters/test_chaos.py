"""Three Odradek brokers, killed, paused and stopped for three minutes under load.

On the embedded store, and on a ZooKeeper that is restarted meanwhile. At the end no acknowledged
record is lost or in another order, the records of an idempotent producer exist once, and the
replicas are equal byte by byte.

    ODRADEK_CHAOS_S=600      longer
    ODRADEK_CHAOS_SEED=7     another order of events
"""

import os
import pathlib
import random
import time
from collections.abc import Iterator

import pytest
import raw
from confluent_kafka.admin import AdminClient, NewTopic
from ensemble import Ensemble
from mixed import TIMEOUT_S, Load, OurBroker, log_bytes, until

pytestmark = pytest.mark.jvm

DURATION_S = float(os.environ.get("ODRADEK_CHAOS_S", "180"))
SEED = os.environ.get("ODRADEK_CHAOS_SEED", "1")
TOPICS = ("idempotent", "plain")
PARTITIONS = 3
ALL = {1, 2, 3}


class Chaos:
    """Faults of three brokers. At most one is down at a time, and sometimes two.

    Each fault and its time are in `story`, and at the end in story.txt beside the brokers.
    """

    def __init__(self, brokers: dict[int, OurBroker], zookeeper: Ensemble | None) -> None:
        self.story: list[str] = []
        self._brokers = brokers
        self._zookeeper = zookeeper
        self._random = random.Random(SEED)
        self._begun_s = time.monotonic()
        self.bootstrap = ",".join(broker.address for broker in brokers.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def run(self) -> None:
        deadline_s = time.monotonic() + DURATION_S
        deeds = [self._kill, self._pause, self._stop, self._kill_controller, self._kill_two]
        if self._zookeeper is not None:
            deeds.append(self._restart_zookeeper)
        while time.monotonic() < deadline_s:
            self._random.choice(deeds)()
            time.sleep(self._random.uniform(0, 4))
        self.heal()

    def stop_for_good(self, number: int) -> None:
        self._brokers[number].stop()

    def heal(self) -> None:
        """Wait until all replicas are in sync."""
        for topic in TOPICS:
            until(f"all replicas of {topic} are in sync", lambda name=topic: self._in_sync(name))

    def _in_sync(self, topic: str) -> bool:
        seen = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
        return len(seen) == PARTITIONS and all(set(p.isrs) == ALL for p in seen.values())

    def _tell(self, deed: str) -> None:
        self.story.append(f"{time.monotonic() - self._begun_s:6.1f} s  {deed}")

    def _any(self) -> OurBroker:
        return self._brokers[self._random.choice(sorted(ALL))]

    def _kill(self, broker: OurBroker | None = None) -> None:
        broker = broker or self._any()
        self._tell(f"kill -9 {broker.broker_id}")
        broker.kill()
        time.sleep(self._random.uniform(0, 8))
        self._tell(f"start {broker.broker_id}")
        broker.start()

    def _kill_controller(self) -> None:
        controller = self._admin.list_topics(timeout=30).controller_id
        if controller in self._brokers:
            self._tell("the controller:")
            self._kill(self._brokers[controller])

    def _kill_two(self) -> None:
        first, second = self._random.sample(sorted(ALL), 2)
        self._tell(f"kill -9 {first}, {second}")
        self._brokers[first].kill()
        self._brokers[second].kill()
        time.sleep(self._random.uniform(0, 4))
        self._tell(f"start {second}, {first}")
        self._brokers[second].start()
        self._brokers[first].start()

    def _pause(self) -> None:
        broker = self._any()
        self._tell(f"freeze {broker.broker_id}")
        broker.pause()
        time.sleep(self._random.uniform(0, 10))  # sessions end after 4
        self._tell(f"thaw {broker.broker_id}")
        broker.resume()

    def _stop(self) -> None:
        broker = self._any()
        self._tell(f"stop {broker.broker_id}")
        broker.stop()
        self._tell(f"start {broker.broker_id}")
        broker.start()

    def _restart_zookeeper(self) -> None:
        assert self._zookeeper is not None
        (server,) = self._zookeeper.servers
        self._tell("kill -9 ZooKeeper")
        server.kill()
        time.sleep(self._random.uniform(0, 6))
        server.start()
        server.wait()
        self._tell("ZooKeeper is back")


@pytest.fixture(params=["one machine", "ZooKeeper"])
def chaos(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Chaos]:
    zookeeper = Ensemble(tmp_path / "zookeeper", 1) if request.param == "ZooKeeper" else None
    store = {} if zookeeper else {"odradek.store.path": str(tmp_path / "store.db")}
    address = zookeeper.address if zookeeper else None
    brokers = {n: OurBroker(tmp_path / f"broker-{n}", address, n, store) for n in sorted(ALL)}
    try:
        for broker in brokers.values():
            broker.start()
        for broker in brokers.values():
            raw.wait_for_brokers(broker.address, len(ALL), timeout_s=TIMEOUT_S)
        yield Chaos(brokers, zookeeper)
    finally:
        for broker in brokers.values():
            broker.end()
        if zookeeper:
            zookeeper.close()


def create(bootstrap: str, topic: str) -> None:
    wanted = NewTopic(topic, PARTITIONS, 3, config={"segment.bytes": "1048576"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([wanted])[topic].result(60)


def test_three_minutes_of_chaos_lose_no_acknowledged_record(chaos: Chaos, tmp_path: pathlib.Path):
    for topic in TOPICS:
        create(chaos.bootstrap, topic)
    chaos.heal()
    loads = [
        Load(chaos.bootstrap, topic, PARTITIONS, idempotent=topic == "idempotent")
        for topic in TOPICS
    ]
    try:
        chaos.run()
        for load in loads:
            load.continues()
    finally:
        (tmp_path / "story.txt").write_text("\n".join(chaos.story) + "\n")
        for load in loads:
            load.stop()
    chaos.heal()
    for load in loads:
        assert load.count > 1_000
        load.must_be_there()
    for number in sorted(ALL):
        chaos.stop_for_good(number)
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            logs = [log_bytes(tmp_path / f"broker-{n}" / "data", topic, partition) for n in ALL]
            assert logs[0]
            assert [log == logs[0] for log in logs] == [True] * 3, f"{topic}-{partition}"
