"""ISR changes on their way to the controller: sent, answered, lost, refused, out of date."""

import asyncio

import pytest

import odradek.sim.world.loop as sim
from odradek.broker.cluster.peers import PeerError
from odradek.broker.replication.isr_shell import IsrShell
from odradek.broker.serving.tasks import Tasks
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.replica.isr import Isr
from odradek.replica.leader import Follower, LeaderReplica
from odradek.wire.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionResponse,
)

TOPIC_ID = b"t" * 16


class Held:
    """A partition that broker 1 leads; 2 and 3 follow."""

    def __init__(self, index=0, isr=(1,)):
        self.topic_partition = TopicPartition("t", index)
        self.topic_id = TOPIC_ID
        self.leader_epoch = 5
        self.partition_epoch = 9
        followers = {n: Follower(leo=0, caught_up_ms=0, broker_epoch=100 + n) for n in (2, 3)}
        self.leader = LeaderReplica(
            leo=0,
            high_watermark=0,
            followers=followers,
            isr=Isr(isr, self.partition_epoch),
            isr_min=1,
            lag_ms_max=1_000,
        )

    def isr_refused(self):
        self.leader.isr_refused()


class Link:
    """The controller; `script` has its reaction to each request in turn."""

    def __init__(self):
        self.script = []
        self.requests = []

    async def ask(self, request, kind):
        assert kind is AlterPartitionResponse
        self.requests.append(request)
        await asyncio.sleep(0.001)
        answer = self.script.pop(0) if self.script else granted
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


def altered(request, **fields):
    return AlterPartitionResponse(
        topics=[
            AlteredTopic(
                topic_id=topic.topic_id,
                partitions=[
                    AlteredPartition(
                        partition_index=asked.partition_index,
                        isr=[member.broker_id for member in asked.new_isr_with_epochs],
                        partition_epoch=asked.partition_epoch + 1,
                        **fields,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


granted = altered


def refused(error):
    return lambda request: altered(request, error_code=error)


class Stage:
    def __init__(self):
        self.link = Link()
        self.stored = []
        self.grew = []
        self.deleted = []
        self.failures = []
        self.tasks = Tasks(
            asyncio.get_running_loop(), lambda name, error: self.failures.append((name, error))
        )
        self.shell = IsrShell(
            self.link,
            broker_id=1,
            broker_epoch=lambda: 101,
            tasks=self.tasks,
            stored=lambda partition, isr, epoch: self.stored.append((partition, isr, epoch)),
            changed=self.grew.append,
            topic_deleted=self.deleted.append,
        )

    def ask(self, partition, follower=2):
        self.shell.ask(partition, partition.leader.isr.expand(follower))

    async def quiet(self):
        await asyncio.gather(*self.tasks._running)


def play(story):
    async def main():
        stage = Stage()
        await story(stage)
        assert stage.failures == []

    sim.run(main())


def isr_of(request, index=0):
    (found,) = (
        asked
        for topic in request.topics
        for asked in topic.partitions
        if asked.partition_index == index
    )
    return {member.broker_id: member.broker_epoch for member in found.new_isr_with_epochs}


def test_proposed_isrs_are_in_the_order_of_joining():
    async def story(stage):
        partition = Held(isr=(3, 1))
        stage.ask(partition)
        await stage.quiet()
        assert list(isr_of(stage.link.requests[0])) == [3, 1, 2]
        assert stage.stored == [(partition, (3, 1, 2), 10)]

    play(story)


def test_what_is_asked_in_one_turn_goes_together():
    async def story(stage):
        first, second = Held(0), Held(1)
        stage.ask(first)
        stage.ask(second, 3)
        await stage.quiet()
        (request,) = stage.link.requests
        assert (request.broker_id, request.broker_epoch) == (1, 101)
        assert isr_of(request, 0) == {1: 101, 2: 102}
        assert isr_of(request, 1) == {1: 101, 3: 103}
        assert stage.stored == [(first, (1, 2), 10), (second, (1, 3), 10)]
        assert stage.grew == [True, True]

    play(story)


def test_what_is_asked_meanwhile_goes_next():
    async def story(stage):
        stage.ask(Held(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stage.ask(Held(1))
        await stage.quiet()
        assert [len(request.topics[0].partitions) for request in stage.link.requests] == [1, 1]

    play(story)


def test_a_smaller_isr_is_counted_as_such():
    async def story(stage):
        partition = Held(isr=(1, 2))
        stage.shell.ask(partition, partition.leader.isr.shrink(frozenset({2})))
        await stage.quiet()
        assert stage.grew == [False]

    play(story)


@pytest.mark.parametrize(
    "lost",
    [
        PeerError("nobody"),
        ApiError(ErrorCode.NOT_CONTROLLER),
        AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AlterPartitionResponse(),  # without this partition
        refused(ErrorCode.NOT_CONTROLLER),
        refused(ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["no answer", "not the controller", "error NOT_CONTROLLER", "error STALE_BROKER_EPOCH",
         "no partition", "partition NOT_CONTROLLER", "partition UNKNOWN_SERVER_ERROR"],
)  # fmt: skip
def test_without_an_answer_it_is_asked_again(lost):
    async def story(stage):
        stage.link.script = [lost, lost]
        partition = Held()
        stage.ask(partition)
        await stage.quiet()
        assert len(stage.link.requests) == 3
        assert stage.stored == [(partition, (1, 2), 10)]

    play(story)


def test_a_repeated_request_names_the_same_broker_epochs_whatever_has_fetched_since():
    async def story(stage):
        stage.link.script = [PeerError("nobody")]
        partition = Held()
        stage.ask(partition)
        await asyncio.sleep(0.0005)
        partition.leader.fetched(2, offset=0, monotonic_ms=1, broker_epoch=202)
        await stage.quiet()
        assert [isr_of(request) for request in stage.link.requests] == [{1: 101, 2: 102}] * 2

    play(story)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_change_that_cannot_be_had_is_given_up(error):
    async def story(stage):
        stage.link.script = [refused(error)]
        partition = Held()
        stage.ask(partition)
        await stage.quiet()
        assert len(stage.link.requests) == 1
        assert stage.stored == []
        assert not partition.leader.isr.is_in_flight

    play(story)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_change_that_was_overtaken_counts_until_the_controllers_word_comes(error):
    async def story(stage):
        stage.link.script = [refused(error)]
        partition = Held()
        stage.ask(partition)
        await stage.quiet()
        assert len(stage.link.requests) == 1
        assert partition.leader.isr.maximal == {1, 2}
        assert stage.deleted == ([partition] if error is ErrorCode.UNKNOWN_TOPIC_ID else [])

    play(story)


def test_a_former_leader_sends_no_more_alter_partition():
    async def story(stage):
        stage.link.script = [PeerError("nobody"), granted]
        deposed, other = Held(0), Held(1)
        stage.ask(deposed)
        stage.ask(other)
        await asyncio.sleep(0.0005)
        deposed.leader_epoch += 1
        await stage.quiet()
        assert [len(request.topics[0].partitions) for request in stage.link.requests] == [2, 1]
        assert stage.stored == [(other, (1, 2), 10)]

    play(story)


def test_an_answer_to_a_former_leader_epoch_is_ignored():
    async def story(stage):
        partition = Held()
        stage.ask(partition)
        await asyncio.sleep(0.0005)
        partition.leader = None
        await stage.quiet()
        assert stage.stored == []

    play(story)


def test_a_newer_isr_replaces_one_whose_response_was_lost():
    async def story(stage):
        stage.link.script = [PeerError("nobody")]
        partition = Held()
        stage.ask(partition)
        await asyncio.sleep(0.0005)
        partition.leader.isr_refused()
        stage.ask(partition, 3)
        await stage.quiet()
        assert [sorted(isr_of(request)) for request in stage.link.requests] == [[1, 2], [1, 3]]

    play(story)
