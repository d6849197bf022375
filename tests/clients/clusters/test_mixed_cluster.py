"""Odradek's and Apache Kafka 3.9's brokers form one cluster, with a controller of either kind."""

import pathlib
from collections.abc import Callable, Iterator

import pytest
from mixed import Load, MixedCluster, OurBroker, log_bytes, until

pytestmark = pytest.mark.jvm

TOPIC = "mixed"
# Each broker leads one, and each is once first, once second, once third.
ASSIGNMENT = "1:2:3,2:3:1,3:1:2"
ALL = {1, 2, 3}
PARTITIONS = range(3)


@pytest.fixture
def make(tmp_path: pathlib.Path) -> Iterator[Callable[[dict[int, str]], MixedCluster]]:
    made: list[MixedCluster] = []

    def make_one(kinds: dict[int, str]) -> MixedCluster:
        made.append(MixedCluster(tmp_path, kinds))
        return made[-1]

    yield make_one
    for cluster in made:
        cluster.end()


def all_in_sync(cluster: MixedCluster) -> None:
    cluster.wait_for_isr(TOPIC, dict.fromkeys(PARTITIONS, ALL))


def must_agree(cluster: MixedCluster, load: Load) -> None:
    """Check that no acknowledged record is lost, and that the logs are equal byte by byte."""
    load.stop()
    load.must_be_there()
    all_in_sync(cluster)
    for broker in cluster.brokers.values():
        broker.stop()
    for partition in PARTITIONS:
        first, *others = (log_bytes(b.data, TOPIC, partition) for b in cluster.brokers.values())
        assert first
        assert [other == first for other in others] == [True, True], f"partition {partition}"


def ends_and_restarts(cluster: MixedCluster, load: Load, number: int, how: str) -> None:
    """A broker ends, others lead; after its restart it follows, and leads when elected."""
    broker = cluster.brokers[number]
    rest = ALL - {number}
    getattr(broker, how)()
    cluster.wait_for_isr(TOPIC, dict.fromkeys(PARTITIONS, rest))
    until("others lead", lambda: set(cluster.leaders(TOPIC, 3)) <= rest)
    load.continues()
    broker.start()
    all_in_sync(cluster)
    load.continues()
    cluster.elect_preferred()
    until("preferred leaders lead", lambda: cluster.leaders(TOPIC, 3) == [1, 2, 3])
    load.continues()


def test_our_broker_works_under_apaches_controller(
    make: Callable[[dict[int, str]], MixedCluster], tmp_path: pathlib.Path
):
    cluster = make({1: "theirs", 2: "theirs", 3: "ours"})
    assert cluster.controller == 1
    cluster.create(TOPIC, ASSIGNMENT)
    all_in_sync(cluster)
    load = Load(cluster.bootstrap, TOPIC, 3)
    try:
        load.continues()
        for number, how in ((3, "kill"), (3, "stop"), (2, "kill"), (2, "stop")):
            ends_and_restarts(cluster, load, number, how)
        assert cluster.controller == 1
        # It gives its replica of partition 0 back, and gets it again as the first of three.
        cluster.reassign(tmp_path, TOPIC, {0: [1, 2]})
        assert cluster.isr(TOPIC, 0) == {1, 2}
        load.continues()
        ours = cluster.brokers[3]
        assert isinstance(ours, OurBroker)
        until("its files are deleted", lambda: not (ours.data / f"{TOPIC}-0").exists())
        cluster.reassign(tmp_path, TOPIC, {0: [3, 1, 2]})
        all_in_sync(cluster)
        cluster.elect_preferred()
        until("ours leads it", lambda: cluster.leaders(TOPIC, 3) == [3, 2, 3])
        load.continues()
        must_agree(cluster, load)
    finally:
        load.stop()


def test_ours_is_the_controller_of_apaches_brokers(
    make: Callable[[dict[int, str]], MixedCluster], tmp_path: pathlib.Path
):
    cluster = make({3: "ours", 1: "theirs", 2: "theirs"})
    assert cluster.controller == 3
    cluster.create(TOPIC, ASSIGNMENT)
    all_in_sync(cluster)
    load = Load(cluster.bootstrap, TOPIC, 3)
    try:
        load.continues()
        for number, how in ((1, "kill"), (1, "stop"), (2, "kill"), (2, "stop")):
            ends_and_restarts(cluster, load, number, how)
        assert cluster.controller == 3
        cluster.reassign(tmp_path, TOPIC, {0: [2, 3]})
        assert cluster.isr(TOPIC, 0) == {2, 3}
        load.continues()
        cluster.reassign(tmp_path, TOPIC, {0: [1, 2, 3]})
        all_in_sync(cluster)
        cluster.elect_preferred()
        until("preferred leaders lead", lambda: cluster.leaders(TOPIC, 3) == [1, 2, 3])
        # The controller is killed: Apache's takes over, and later ours again.
        ends_and_restarts(cluster, load, 3, "kill")
        assert cluster.controller in (1, 2)
        must_agree(cluster, load)
    finally:
        load.stop()
