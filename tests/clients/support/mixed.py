"""One cluster of Apache Kafka's brokers and Odradek's on a real ZooKeeper.

Requests are made with Apache Kafka's own tools; the controller's decisions are read in ZooKeeper.
"""

import json
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache
import fetch
import raw
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kazoo.client import KazooClient

TIMEOUT_S = 90.0
SESSION_MS = 4_000
UNSURE_MAX = 20_000  # records of one producer under way
OPTIONS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "true",
}


def until(what: str, reached: Callable[[], Any], *, timeout_s: float = TIMEOUT_S) -> Any:
    """What `reached` returns once it is true."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if found := reached():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {timeout_s:g} s: {what}")


def inside(properties: Mapping[str, str]) -> list[str]:
    """A listener for brokers alone, if the options name one."""
    name = properties.get("inter.broker.listener.name")
    return [f"{name}://{apache.HOST}:{apache.free_port()}"] if name else []


class OurBroker:
    """An Odradek broker beside Apache Kafka's, with the same options.

    Without a ZooKeeper, `properties` have the store that it shares with others.
    """

    def __init__(
        self,
        home: pathlib.Path,
        zookeeper: str | None,
        broker_id: int,
        properties: Mapping[str, str] = {},
        listeners: Sequence[str] = (),
    ) -> None:
        self.broker_id = broker_id
        self.port = apache.free_port()
        self.inside = [*inside(properties), *listeners]
        self.data = home / "data"
        self.log = home / "broker.log"
        home.mkdir(parents=True)
        options = {
            "broker.id": str(broker_id),
            "listeners": ",".join([f"PLAINTEXT://{apache.HOST}:{self.port}", *self.inside]),
            "log.dirs": str(self.data),
            **({"zookeeper.connect": zookeeper} if zookeeper else {}),
            **OPTIONS,
            **properties,
        }
        self._properties = home / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in options.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{apache.HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "odradek", "server-start", str(self._properties)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        raw.wait_for_metadata(self.address, timeout_s=TIMEOUT_S)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(TIMEOUT_S)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(TIMEOUT_S) == 0

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class TheirBroker:
    """An Apache Kafka broker that can be restarted on its data."""

    def __init__(
        self,
        home: pathlib.Path,
        zookeeper: str,
        broker_id: int,
        properties: Mapping[str, str] = {},
    ) -> None:
        self.broker_id = broker_id
        self.data = home / "data"
        self.inside = inside(properties)
        self._make = lambda: apache.Broker(
            home,
            zookeeper,
            broker_id=broker_id,
            brokers=3,
            properties={**OPTIONS, **properties},
            listeners=self.inside,
        )
        self._broker: apache.Broker | None = None

    @property
    def address(self) -> str:
        assert self._broker is not None
        return self._broker.address

    def start(self) -> None:
        self._broker = self._make()
        self._broker.wait()

    def kill(self) -> None:
        assert self._broker is not None
        self._broker.process.kill()
        self._broker.process.wait(TIMEOUT_S)

    def stop(self) -> None:
        assert self._broker is not None
        self._broker.stop()

    def pause(self) -> None:
        assert self._broker is not None
        self._broker.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._broker is not None
        self._broker.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        if self._broker is not None and self._broker.process.poll() is None:
            self.kill()


class MixedCluster:
    """A ZooKeeper, and brokers that are started in the order in which they are named."""

    def __init__(
        self,
        home: pathlib.Path,
        kinds: Mapping[int, str],
        properties: Mapping[str, str] = {},
        prepare: Callable[[str], None] = lambda _zookeeper: None,
    ) -> None:
        """`prepare` is called with ZooKeeper's address before the first broker starts."""
        self._zookeeper = apache.ZooKeeper(home / "zookeeper")
        prepare(self._zookeeper.address)
        self.client = KazooClient(self._zookeeper.address)
        self.client.start()
        kind_of = {"ours": OurBroker, "theirs": TheirBroker}
        self.brokers: dict[int, OurBroker | TheirBroker] = {
            number: kind_of[kind](
                home / f"broker-{number}", self._zookeeper.address, number, properties
            )
            for number, kind in kinds.items()
        }
        try:
            for broker in self.brokers.values():
                broker.start()
            for broker in self.brokers.values():
                raw.wait_for_brokers(broker.address, len(kinds), timeout_s=TIMEOUT_S)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.end()
        self.client.stop()
        self.client.close()
        self._zookeeper.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    # ---------------------------------------------------------- state in ZooKeeper

    def node(self, path: str) -> Any:
        """The JSON of a znode; None if it does not exist."""
        if self.client.exists(path) is None:
            return None
        return json.loads(self.client.get(path)[0])

    @property
    def controller(self) -> int:
        found = self.node("/controller")
        return -1 if found is None else int(found["brokerid"])

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        return self.node(f"/brokers/topics/{topic}/partitions/{partition}/state") or {}

    def leaders(self, topic: str, partitions: int) -> list[int]:
        return [self.state(topic, p).get("leader", -1) for p in range(partitions)]

    def isr(self, topic: str, partition: int) -> set[int]:
        return set(self.state(topic, partition).get("isr", ()))

    def wait_for_isr(self, topic: str, wanted: dict[int, set[int]]) -> None:
        until(
            f"the ISR of {topic} is {wanted}",
            lambda: all(self.isr(topic, p) == isr for p, isr in wanted.items()),
        )

    # ------------------------------------------------------------------ Kafka's tools

    def tool(self, main: str, *arguments: str) -> str:
        command = fetch.java(apache.LINE, main, "--bootstrap-server", self.bootstrap, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert "Exception" not in output, output
        return done.stdout

    def create(self, topic: str, assignment: str) -> None:
        main = "org.apache.kafka.tools.TopicCommand"
        self.tool(main, "--create", "--topic", topic, "--replica-assignment", assignment)

    def elect_preferred(self) -> None:
        main = "org.apache.kafka.tools.LeaderElectionCommand"
        self.tool(main, "--election-type", "preferred", "--all-topic-partitions")

    def reassign(self, home: pathlib.Path, topic: str, replicas: dict[int, list[int]]) -> None:
        """Start a reassignment and wait until Kafka's tool calls it complete."""
        plan = home / "plan.json"
        moves = [{"topic": topic, "partition": p, "replicas": r} for p, r in replicas.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        main = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        file = ("--reassignment-json-file", str(plan))
        self.tool(main, "--execute", *file)
        until(
            f"{topic} is reassigned",
            lambda: self.tool(main, "--verify", *file).count("is complete") == len(replicas),
        )


class Load:
    """A producer with acks=all that numbers its records and retries without limit.

    An idempotent one writes each once. A plain one, with one request in flight, may write some
    twice when a response is lost, but never before an older one.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, idempotent: bool = True
    ) -> None:
        self.acked: dict[int, list[int]] = {p: [] for p in range(partitions)}
        self._topic = topic
        self._bootstrap = bootstrap
        self._idempotent = idempotent
        self._ended = threading.Event()
        self._failed: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": self._idempotent,
                "max.in.flight.requests.per.connection": 5 if self._idempotent else 1,
                "acks": "all",
                "delivery.timeout.ms": 300_000,
                "request.timeout.ms": 5_000,
                "socket.timeout.ms": 6_000,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 2_000,
            }
        )
        number = 0
        while not self._ended.is_set():
            if len(producer) > UNSURE_MAX:
                producer.poll(0.1)
                continue
            partition = number % len(self.acked)
            producer.produce(
                self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
            )
            number += 1
            producer.poll(0.001)
        assert producer.flush(TIMEOUT_S) == 0

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
        else:
            self.acked[message.partition()].append(int(message.value()))

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def continues(self, records: int = 200) -> None:
        """Wait until each partition has `count` more records acknowledged."""
        wanted = {p: len(acked) + records for p, acked in self.acked.items()}
        until(
            "the load goes on",
            lambda: all(len(self.acked[p]) >= count for p, count in wanted.items()),
        )

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(2 * TIMEOUT_S)
        assert not self._thread.is_alive()
        assert self._failed == []

    def must_be_there(self) -> None:
        """Check that the log has the acknowledged records in order (once, if idempotent) only."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "none"})
        for partition, acked in self.acked.items():
            here = TopicPartition(self._topic, partition)
            low, high = consumer.get_watermark_offsets(here, timeout=30)
            consumer.assign([TopicPartition(self._topic, partition, low)])
            read = list(_values(consumer, high))
            if not self._idempotent:
                read = list(dict.fromkeys(read))
            assert read == acked, f"{self._topic}-{partition}"
        consumer.close()


def write_while_killed(
    cluster: MixedCluster, topic: str, partitions: int, numbers: Sequence[int]
) -> None:
    """Write while each of these brokers is killed and restarted; all is there in the end."""
    in_sync = {partition: set(cluster.brokers) for partition in range(partitions)}
    cluster.wait_for_isr(topic, in_sync)
    load = Load(cluster.bootstrap, topic, partitions)
    load.continues()
    for number in numbers:
        cluster.brokers[number].kill()
        until("others lead", lambda n=number: n not in cluster.leaders(topic, partitions))
        load.continues()
        cluster.brokers[number].start()
        cluster.wait_for_isr(topic, in_sync)
    load.continues()
    load.stop()
    load.must_be_there()


def _values(consumer: Consumer, end_offset: int) -> Iterator[int]:
    while True:
        for message in consumer.consume(10_000, timeout=1.0):
            assert message.error() is None, message.error()
            yield int(message.value())
            if message.offset() + 1 >= end_offset:
                return


def log_bytes(data: pathlib.Path, topic: str, partition: int) -> bytes:
    """The whole log of a replica."""
    files = sorted((data / f"{topic}-{partition}").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)
