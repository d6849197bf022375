"""OffsetForLeaderEpoch: the end of an epoch, and the rights that it needs."""

import pytest
from tests.unit.broker.live import play

from odradek.model.errors import ErrorCode
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def ask(live, leader_epoch, *, current=-1, name="t", index=0, version=4):
    part = OffsetForLeaderPartition(
        partition=index, leader_epoch=leader_epoch, current_leader_epoch=current
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=[part])]
    )
    (topic,) = (await live.peer().ask(request, version)).topics
    (found,) = topic.partitions
    return ErrorCode(found.error_code) or (found.leader_epoch, found.end_offset)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param(1, (1, 0), id="before the first: it ended where that begins"),
        pytest.param(2, (2, 3), id="a known one ended where the next begins"),
        pytest.param(4, (2, 3), id="an unknown one between: the one before it"),
        pytest.param(5, (5, 4), id="the present one ends with the log"),
        pytest.param(6, (-1, -1), id="later than all"),
        pytest.param(-1, (-1, -1), id="none"),
    ],
)
@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ended(asked, answer, version):
    async def story(live):
        await live.order(replicas=(0,), leader_epoch=2)
        for _ in range(3):
            live.append(b"a")
        await live.order(replicas=(0,), leader_epoch=5)
        live.append(b"a")

        assert await ask(live, asked, version=version) == answer

    play(story)


def test_the_present_epoch_ends_with_the_log_committed_or_not():
    async def story(live):
        await live.order()
        live.append(b"a")

        assert live.log().high_watermark == 0
        assert await ask(live, 0) == (0, 1)

    play(story)


def test_refusals():
    async def story(live):
        await live.order(replicas=(0,), leader_epoch=3)
        await live.order("followed", leader=2)

        assert await ask(live, 3, current=2) == ErrorCode.FENCED_LEADER_EPOCH
        assert await ask(live, 3, current=4) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await ask(live, 3, current=3) == (3, 0)
        assert await ask(live, 3, name="followed") == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await ask(live, 3, name="absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await ask(live, 3, index=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)
