"""Throttled replicas that lag are copied no faster than the broker's options say."""

import asyncio

import pytest
from tests.unit.broker.live import LOG_DIRS, fetch, part_of, play
from tests.unit.broker.replication.test_following import Leader, answer, batch, named, part

from odradek.model.partition import TopicPartition
from odradek.wire.messages.fetch import FetchPartition, ReplicaState

TOPIC_ID = b"t".ljust(16, b".")
SLOW = 1_000  # bytes a second


def throttled(live, **options):
    live.broker.settings.set_topic("t", {k.replace("_", "."): v for k, v in options.items()})


async def fetched_by(live, follower, offset):
    wanted = FetchPartition(fetch_offset=offset, log_start_offset=0, partition_max_bytes=1 << 20)
    state = ReplicaState(replica_id=follower, replica_epoch=1)
    request = fetch({(TOPIC_ID, 0): wanted}, replica_state=state, max_wait_ms=0)
    return len(part_of(await live.peer().ask(request, 17)).records or b"")


@pytest.mark.parametrize(
    ("replicas", "isr", "waits"),
    [
        pytest.param("0:0", (0, 3), True, id="a follower that lags"),
        pytest.param("*", (0, 3), True, id="likewise, all replicas"),
        pytest.param("0:0", (0, 2, 3), False, id="one in sync never waits"),
        pytest.param("0:2,1:0", (0, 3), False, id="another replica is throttled"),
        pytest.param("", (0, 3), False, id="none is"),
    ],
)
def test_a_leader_holds_back_what_is_throttled(replicas, isr, waits):
    async def story(live):
        await live.order(isr=isr)
        if replicas:
            throttled(live, leader_replication_throttled_replicas=replicas)
        for _ in range(5):
            live.append(b"x" * 1_000)
        assert await fetched_by(live, 2, 0) > 5_000
        assert (await fetched_by(live, 2, 0) == 0) is waits
        await asyncio.sleep(6)
        assert await fetched_by(live, 2, 0) > 5_000

    play(story, leader_replication_throttled_rate=SLOW)


def test_a_rate_may_change_while_the_broker_runs():
    async def story(live):
        await live.order(isr=(0, 3))
        throttled(live, leader_replication_throttled_replicas="*")
        live.append(b"x" * 5_000)
        assert await fetched_by(live, 2, 0)
        assert await fetched_by(live, 2, 0)
        rate = {"leader.replication.throttled.rate": str(SLOW)}
        live.broker.set_config(live.broker.config.with_dynamic(dynamic=rate, dynamic_default={}))
        assert not await fetched_by(live, 2, 0)
        live.broker.set_config(live.broker.config.with_dynamic(dynamic={}, dynamic_default={}))
        assert await fetched_by(live, 2, 0)

    play(story)


async def follows_throttled(live, high_watermark):
    leader = Leader()
    live.network.connect = leader.connect
    await live.order("t", leader=2, partitions=2)
    throttled(live, follower_replication_throttled_replicas="0:0")
    await live.until(lambda: leader.waiting)
    leader.reply(answer(part(records=batch(0, b"x" * 5_000), high_watermark=high_watermark)))
    await live.until(lambda: len(leader.fetches) == 2)
    return leader


def test_a_follower_that_lags_leaves_what_is_throttled_for_a_while():
    async def story(live):
        leader = await follows_throttled(live, 100)
        (removed,) = leader.fetches[1].forgotten_topics_data
        assert removed.partitions == [0]
        await asyncio.sleep(1.1)
        leader.reply(answer())
        await live.until(lambda: len(leader.fetches) == 3)
        assert named(leader.fetches[2])[0].fetch_offset == 1

    play(story, follower_replication_throttled_rate=SLOW)


def test_a_follower_that_has_everything_does_not_wait():
    async def story(live):
        leader = await follows_throttled(live, 1)
        assert leader.fetches[1].forgotten_topics_data == []
        assert sorted(named(leader.fetches[1])) == [0]

    play(story, follower_replication_throttled_rate=SLOW)


def test_moves_between_directories_take_their_time():
    async def story(live):
        await live.topic("t")
        for _ in range(5):
            live.append(b"x" * 1_000)
        source = live.broker.logs.directory_of(live.log())
        target = next(path for path in LOG_DIRS if path != source)
        began = live.loop.time()
        live.broker.move_quota.record(20_000, live.clock.monotonic_ms())
        live.broker.log_dir_moves.begin(TopicPartition("t", 0), target)
        await live.until(lambda: live.log().directory.startswith(target))
        assert live.loop.time() - began >= 10
        assert live.log().leo == 5

    play(story, replica_alter_log_dirs_io_max_bytes_per_second=SLOW)
