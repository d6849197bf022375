"""The controller's shell and the admin over a store that loses requests, answers and sessions.

Single requests may have any outcome. In the end, when the faults have stopped, one
broker is controller, the brokers got what is stored, every partition has a leader
that is registered, and nothing is left of deleted topics.
"""

import asyncio
import random

import pytest

from odradek.broker.admin.topics import WantedPartitions, WantedTopic
from odradek.coord import layout
from odradek.coord.memory import RequestFate, RequestLoss
from odradek.coord.store import StoreError
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition

ACTIONS = 40
NAMES = [f"t{n}" for n in range(6)]
EXPECTED = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,  # queued for deletion
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # the other broker is not registered just now
}


class Faults:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.on = True

    def fate(self, operation: str) -> RequestFate:
        if not self.on:
            return RequestFate()
        loss = RequestLoss.NONE
        if self.random.random() < 0.04 and operation not in ("watch", "expiry"):
            loss = self.random.choice([RequestLoss.BEFORE, RequestLoss.AFTER])
        delay = self.random.choice([0, 0, 1, 3, 20])
        return RequestFate(request_delay_ms=delay, answer_delay_ms=delay, loss=loss)


async def act(cluster, draw: random.Random) -> None:
    node = cluster.nodes[draw.choice([1, 2])]
    name = draw.choice(NAMES)
    deadline_ms = node.admin.deadline_ms(500)
    match draw.choice(["create", "create", "delete", "grow", "expire", "wait"]):
        case "create":
            wanted = WantedTopic(name=name, partitions=draw.randint(1, 3), replication_factor=1)
            wanted = draw.choice([wanted, WantedTopic(name=name, replication_factor=2)])
            check_errors(await node.admin.create([wanted], deadline_ms=deadline_ms))
        case "delete":
            check_errors(await node.admin.delete([name], deadline_ms=deadline_ms))
        case "grow":
            more = WantedPartitions(name=name, count=draw.randint(2, 5))
            check_errors(await node.admin.create_partitions([more], deadline_ms=deadline_ms))
        case "expire":
            cluster.tree.expire(node.store.session_id)
        case "wait":
            await asyncio.sleep(draw.random() / 5)


def check_errors(outcomes) -> None:
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, ApiError)]
    assert [error for error in errors if error.code not in EXPECTED] == []


async def stay_registered(node) -> None:
    """What the broker's lifecycle does."""
    while True:
        if node.store.session_id == 0:
            try:
                await node.register()
            except StoreError:
                await asyncio.sleep(0.05)
                continue
            node.shell.session_opened()
            node.dynamic.session_opened()
        elif await is_missing(node):
            await node.store.close()
        await asyncio.sleep(0.05)


async def is_missing(node) -> bool:
    """Its registration was lost on the way, and not noticed."""
    try:
        return await node.store.exists(layout.broker_path(node.id)) is None
    except StoreError:
        return False


async def has_converged(cluster) -> bool:  # noqa: PLR0911 - each line is one reason why not yet
    if len([node for node in cluster.nodes.values() if node.shell.term]) != 1:
        return False
    names = await cluster.store.children(layout.TOPICS)
    if await cluster.store.children(layout.DELETE_TOPICS):
        return False
    if sorted(await cluster.store.children("/config/topics")) != names:
        return False
    led = {}
    for name in names:
        data, _ = await cluster.store.get(layout.topic_path(name))
        for number in layout.decode_topic(name, data).assignments:
            partition = TopicPartition(name, number)
            if await cluster.store.exists(layout.partition_state_path(partition)) is None:
                return False
            led[partition] = (await cluster.state(name, number)).leader_and_isr
    if any(state.leader < 0 for state in led.values()):
        return False
    for node in cluster.nodes.values():
        shown = {
            TopicPartition(name, number): (partition.leader, partition.leader_epoch)
            for name, topic in node.metadata.topics.items()
            for number, partition in topic.partitions.items()
        }
        if shown != {p: (state.leader, state.leader_epoch) for p, state in led.items()}:
            return False
    return True


@pytest.mark.parametrize("seed", range(25))
def test_everything_is_consistent_when_the_faults_have_stopped(play, seed):
    async def story(cluster):
        faults = Faults(seed)
        faults.on = False
        cluster.fate = faults.fate
        await cluster.start(1, 2)
        keepers = [asyncio.create_task(stay_registered(node)) for node in cluster.nodes.values()]
        faults.on = True
        draw = random.Random(-seed)
        for _ in range(ACTIONS):
            try:
                await act(cluster, draw)
            except ApiError as error:
                check_errors({"all": error})
        faults.on = False

        for _ in range(200):
            await asyncio.sleep(0.1)
            if await has_converged(cluster):
                break
        converged = await has_converged(cluster)
        for keeper in keepers:
            keeper.cancel()
        assert converged
        assert not any(
            "an invariant" in note for node in cluster.nodes.values() for note in node.journal.notes
        )

    play(story)
