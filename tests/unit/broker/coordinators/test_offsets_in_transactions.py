"""Consume, transform, produce on one whole broker: a group's offsets in a transaction."""

import asyncio

import pytest
from tests.unit.broker.coordinators.test_group_shell import coordinated, error_of, fetched, led
from tests.unit.broker.coordinators.test_transactions import Client
from tests.unit.broker.live import play

from odradek.group.effects import PartitionsAnswer
from odradek.group.events import DeleteGroup
from odradek.model.errors import ErrorCode
from odradek.record.control import ControlType
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NONE = ErrorCode.NONE
ADDS_THE_GROUP = 5


async def client_of(live):
    """A transactional producer, where both coordinators answer."""
    await coordinated(live)
    client = Client(live)
    await client.find()
    assert await client.init() is NONE
    return client


async def started_anew(live):
    """Restart the broker: its state is rebuilt from its log."""
    await live.restart()
    await live.until(lambda: not isinstance(live.broker.groups.topic.find("g"), ErrorCode))
    return live.peer()


def offsets_of(client, offset, **fields):
    part = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return TxnOffsetCommitRequest(
        **{
            "transactional_id": client.name,
            "group_id": "g",
            "producer_id": client.id,
            "producer_epoch": client.epoch,
            "topics": [TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
            **fields,
        }
    )


async def add_group(client):
    request = AddOffsetsToTxnRequest(
        transactional_id=client.name,
        producer_id=client.id,
        producer_epoch=client.epoch,
        group_id="g",
    )
    return ErrorCode((await client.peer.ask(request)).error_code)


async def commit(client, offset, version=4, **fields):
    return error_of(await client.peer.ask(offsets_of(client, offset, **fields), version))


async def stable(peer):
    """OffsetFetch with `require_stable`."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    (part,) = (await peer.ask(request)).groups[0].topics[0].partitions
    return ErrorCode(part.error_code) or part.committed_offset


@pytest.mark.parametrize("decision", [True, False])
@pytest.mark.parametrize("version", [4, ADDS_THE_GROUP])
def test_offsets_count_with_the_end_of_their_transaction(version, decision):
    async def story(live):
        client = await client_of(live)
        error = NONE if version == ADDS_THE_GROUP else await add_group(client)
        assert error is NONE
        assert await commit(client, 5, version) is NONE
        assert await fetched(client.peer) == {}
        assert await stable(client.peer) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        end = 5 if version == ADDS_THE_GROUP else 4
        assert await client.end(commit=decision, version=end) is NONE
        await client.at_rest()

        assert await stable(client.peer) == (5 if decision else -1)
        peer = await started_anew(live)
        assert await stable(peer) == (5 if decision else -1)

    play(story)


@pytest.mark.parametrize(
    ("version", "error"),
    [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_offsets_of_a_group_that_is_not_in_the_transaction_are_refused(version, error):
    async def story(live):
        client = await client_of(live)
        assert await client.add(("t", 0)) is NONE
        assert await commit(client, 5, version) is error
        assert await stable(client.peer) == -1

    play(story)


def test_offsets_of_a_fenced_producer_are_refused():
    async def story(live):
        client = await client_of(live)
        assert await Client(live).init() is NONE
        assert await add_group(client) is ErrorCode.PRODUCER_FENCED
        assert await commit(client, 5) is ErrorCode.INVALID_PRODUCER_EPOCH

    play(story)


def test_offsets_of_an_old_generation_are_refused_in_a_transaction_too():
    async def story(live):
        client = await client_of(live)
        assert await add_group(client) is NONE
        who = {"generation_id": 3, "member_id": "m"}
        assert await commit(client, 5, **who) is ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_a_marker_between_the_coordinators_word_and_the_append_makes_the_word_void():
    async def story(live):
        client = await client_of(live)
        assert await add_group(client) is NONE
        partition = led(live).partition.topic_partition
        verified = await live.broker.groups.transactions.verify(
            client.name, client.id, client.epoch, partition, add=False
        )
        assert verified() is NONE
        live.mark(ControlType.ABORT, client.id, name=partition.topic, index=partition.partition)
        assert verified() is ErrorCode.INVALID_TXN_STATE

    play(story)


def test_a_deleted_group_is_deleted_for_the_next_coordinator_too():
    async def story(live):
        peer = await coordinated(live)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequestTopic(name="t", partitions=[part])
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, topics=[topic]
        )
        assert error_of(await peer.ask(request)) is NONE
        mine = led(live)
        assert mine.machine.committed_offsets("g")
        answer = live.broker.groups.ask(mine, lambda number: DeleteGroup(number, "g"))
        assert answer == PartitionsAnswer(NONE)
        peer = await started_anew(live)
        assert await fetched(peer) == {}

    play(story)


def test_a_commit_that_is_not_on_all_in_sync_replicas_in_time_times_out():
    async def story(live):
        peer = await coordinated(live)
        mine = led(live)
        append = mine.append

        def never(records, done, **fields):
            asyncio.get_running_loop().call_later(5, done, ErrorCode.REQUEST_TIMED_OUT)

        mine.append = never
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequestTopic(name="t", partitions=[part])
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, topics=[topic]
        )
        waiting = peer.send(request)
        await asyncio.sleep(4.9)
        assert not waiting.done()
        assert error_of(await waiting) is ErrorCode.REQUEST_TIMED_OUT
        mine.append = append
        assert await fetched(peer) == {}

    play(story)


def test_before_there_is_a_topic_for_offsets_it_is_made_and_the_group_joins_then():
    async def story(live):
        client = Client(live)
        await client.find()
        assert await client.init() is NONE
        assert await add_group(client) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await live.until(lambda: live.broker.offsets_partition_of("g") is not None)
        assert await add_group(client) is NONE

    play(story)
