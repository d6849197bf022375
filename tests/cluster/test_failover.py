"""A broker is killed: clients are answered with the next leader, not with the dead one.

The brokers may hold their responses for a minute here, so that no answer depends on how fast this
machine is.
"""

import itertools
import logging
import os
import re
import signal

import confluent_kafka
import pytest
from control import ThreeBrokers, wait_for
from peers import Peer

from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

TOPIC, GROUP = "t", "g"
LEADER = re.compile(rf"Topic {TOPIC} \[0\] Leader (-?\d+)")


@pytest.fixture
def three(make_broker, tmp_path):
    return ThreeBrokers(
        make_broker,
        tmp_path,
        odradek_metadata_hold_ms=60_000,
        offsets_topic_replication_factor=3,
        offsets_topic_num_partitions=1,
    )


class Log(logging.Handler):
    """The lines that a client has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def since(self, text: str, wanted: str) -> list[str]:
        """The lines with `wanted` after the first line with `text`."""
        after = itertools.dropwhile(lambda line: text not in line, list(self.lines))
        return [line for line in after if wanted in line]


def leaders(lines: list[str]) -> list[int]:
    """The leaders of the partition in Metadata responses."""
    return [int(found[1]) for found in map(LEADER.search, lines) if found is not None]


def producer(three: ThreeBrokers, log: Log) -> confluent_kafka.Producer:
    """librdkafka's producer with its own settings, but for its log."""
    logger = logging.Logger("client")
    logger.addHandler(log)
    addresses = ",".join(f"127.0.0.1:{broker.port}" for broker in three.brokers.values())
    settings = {"bootstrap.servers": addresses, "debug": "metadata,topic,broker,protocol"}
    return confluent_kafka.Producer(settings, logger=logger)


def deliver(client: confluent_kafka.Producer, value: bytes) -> None:
    """Produce a record, and wait until it is acknowledged."""
    errors = []
    client.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert client.flush(120) == 0
    assert errors == [None]


def test_each_metadata_response_after_the_loss_of_a_leader_names_the_next_one(three):
    leader, *others = sorted(three.brokers, key=lambda id_: id_ == three.controller)
    three.create(TOPIC, [leader, *others])
    log = Log()
    client = producer(three, log)
    deliver(client, b"before")
    assert set(leaders(log.lines)) == {leader}

    lost = f"127.0.0.1:{three.brokers[leader].port}/{leader}: Disconnected"
    controller = three.brokers[three.controller]
    os.kill(controller.pid, signal.SIGSTOP)  # so that the client asks before there is a new leader
    try:
        three.brokers[leader].kill()
        client.produce(TOPIC, b"meanwhile")
        wait_for(lambda: has_asked(client, log, lost))
    finally:
        os.kill(controller.pid, signal.SIGCONT)
    deliver(client, b"after")

    named = leaders(log.since(lost, f"Topic {TOPIC} "))
    assert named
    assert set(named) <= set(others), log.lines


def has_asked(client: confluent_kafka.Producer, log: Log, lost: str) -> bool:
    """Whether the client has sent a Metadata request since it has lost this connection."""
    client.poll(0)  # which also passes on its log
    return bool(log.since(lost, "Sent MetadataRequest"))


def coordinator(peer: Peer) -> tuple[int, int]:
    """The error of FindCoordinator, and the broker that it names."""
    request = FindCoordinatorRequest(coordinator_keys=[GROUP])
    (found,) = peer.request(request, FindCoordinatorResponse).coordinators
    return found.error_code, found.node_id


def test_each_answer_after_the_loss_of_a_coordinator_names_the_next_one(three):
    wait_for(lambda: all(code == 0 for code, _ in coordinators(three)))
    ((_, killed),) = set(coordinators(three))
    with Peer(three.brokers[killed].port) as client:
        assert coordinator(client) == (0, killed)
        three.brokers[killed].kill()
        assert client.is_hung_up()
    ((code, named),) = set(coordinators(three))
    assert code == 0
    assert named in three.up()


def coordinators(three: ThreeBrokers) -> list[tuple[int, int]]:
    """What each broker that runs answers."""
    answers = []
    for id_ in three.up():
        with Peer(three.brokers[id_].port) as peer:
            answers.append(coordinator(peer))
    return answers
