"""Limits of a fetch that are 0 or negative: the first batch is delivered all the same."""

import asyncio

import pytest
from tests.unit.broker.live import fetch, fetched, part_of, play, values
from tests.unit.broker.serving.test_client_quotas import alter, peer

from odradek.wire.messages.fetch import FetchPartition

T0, T1 = ("t", 0), ("t", 1)
VERSIONS = (3, 4, 9, 12)
WINDOWS_S = 11


def asked(offset, max_bytes):
    return FetchPartition(fetch_offset=offset, partition_max_bytes=max_bytes)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("max_bytes", "partition_bytes"), [(0, 1 << 20), (1 << 20, 0), (0, 0)])
def test_a_limit_of_0_gives_one_batch_a_fetch(version, max_bytes, partition_bytes):
    async def story(live):
        await live.topic("t", 2)
        for value in (b"a", b"b"):
            live.append(value)
        live.append(b"c", index=1)
        client = live.peer()
        for offset in (0, 1):
            wanted = {T0: asked(offset, partition_bytes), T1: asked(0, partition_bytes)}
            answer = await client.ask(fetch(wanted, max_bytes=max_bytes), version)
            sizes = [len(part_of(answer, *name).records or b"") for name in (T0, T1)]
            assert (sizes[0] > 0, sizes[1]) == (True, 0)

    play(story)


def test_with_a_limit_of_0_the_batches_follow_one_another():
    async def story(live):
        await live.topic("t")
        for value in (b"a", b"b"):
            live.append(value)
        client = live.peer()
        answers = [
            await client.ask(fetch({T0: asked(offset, 0)}, max_bytes=0), 12) for offset in (0, 1)
        ]

        assert [values(part_of(answer).records) for answer in answers] == [[b"a"], [b"b"]]

    play(story)


@pytest.mark.parametrize(("max_bytes", "partition_bytes"), [(-1, 1 << 20), (1 << 20, -1)])
def test_a_negative_limit_is_one_of_0(max_bytes, partition_bytes):
    async def story(live):
        await live.topic("t", 2)
        for index in (0, 1):
            live.append(b"a", index=index)
        request = fetch(
            {T0: asked(0, partition_bytes), T1: asked(0, partition_bytes)}, max_bytes=max_bytes
        )
        answer = fetched(await live.peer().ask(request, 12))

        assert answer == {T0: [b"a"], T1: []}

    play(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_with_a_limit_of_0_a_fetch_waits_for_the_first_batch(version):
    async def story(live):
        await live.topic("t")
        request = fetch({T0: asked(0, 0)}, max_bytes=0, min_bytes=1000, max_wait_ms=600_000)
        waiting = live.peer().send(request, version)
        await asyncio.sleep(10)
        assert not waiting.done()
        live.append(b"a")

        assert part_of(await waiting).records

    play(story)


def test_a_consumer_with_a_quota_of_0_gets_a_batch_in_all_windows():
    async def story(live):
        await live.topic("t")
        for value in (b"a", b"b", b"c"):
            live.append(value)
        await alter(live, {"client-id": "slow"}, consumer_byte_rate=0.0)
        client, offset, found, begun = peer(live, "slow"), 0, [], live.loop.time()
        while offset < 3:
            answer = fetched(await client.ask(fetch({T0: offset}), 12)).get(T0, [])
            found += answer
            offset += len(answer)

        assert found == [b"a", b"b", b"c"]
        # The second and the third one waited until nothing was left in the windows.
        assert live.loop.time() - begun == pytest.approx(2 * WINDOWS_S, abs=1)

    play(story)
