"""A consumer's quota counts every byte of an answer, however large the answer is."""

import asyncio

import pytest
from tests.unit.broker.live import fetch, play
from tests.unit.broker.serving.test_client_quotas import alter, peer

from odradek.wire.messages.fetch import FetchPartition

RATE = 200_000  # bytes a second
WINDOW_S = 11  # quota.window.num samples of quota.window.size.seconds, with their defaults
RUN_S = 60


@pytest.mark.parametrize("batch_bytes", [1_000, 60_000, 300_000, 900_000])
def test_a_consumer_is_given_the_bytes_of_its_quota_and_no_more(batch_bytes):
    async def story(live):
        await live.topic("t")
        live.append(bytes(batch_bytes))
        await alter(live, {"client-id": "quick"}, consumer_byte_rate=float(RATE))
        client, given_bytes, largest_bytes = peer(live, "quick"), 0, 0
        begun = live.loop.time()
        while live.loop.time() < begun + RUN_S:
            wanted = {("t", 0): FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20)}
            answer = await client.ask(fetch(wanted, max_bytes=1 << 20), 12)
            parts = [part for topic in answer.responses for part in topic.partitions]
            size_bytes = sum(len(part.records or b"") for part in parts)  # none while throttled
            given_bytes += size_bytes
            largest_bytes = max(largest_bytes, size_bytes)
            # A client waits for the throttle time; between others it needs some time itself.
            await asyncio.sleep(max(answer.throttle_time_ms / 1000, 0.002))

        assert largest_bytes >= batch_bytes
        # The quota of the first window may be used at its beginning; the answer that exceeds the
        # quota is the last one before a pause.
        assert given_bytes <= RATE * (RUN_S + WINDOW_S) + largest_bytes
        # What is left of a window may be too little for one more answer.
        assert given_bytes >= RATE * RUN_S - largest_bytes * (RUN_S / WINDOW_S + 1)

    play(story)
