"""CVE-2026-10142: a client made room for the length that a broker announced."""

import tracemalloc

import pytest

from odradek.client.connection import RESPONSE_BYTES_MAX
from odradek.model.errors import MalformedRequestError
from odradek.net.channel import RESPONSE_BYTES_MAX as BETWEEN_BROKERS
from odradek.wire.frame import FrameBuffer


@pytest.mark.parametrize("limit", [RESPONSE_BYTES_MAX, BETWEEN_BROKERS])
@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
def test_an_impossible_length_ends_the_connection(limit, length):
    frames = FrameBuffer(frame_bytes_max=limit)
    frames.writable()[:4] = length.to_bytes(4, "big", signed=True)
    frames.wrote(4)

    with pytest.raises(MalformedRequestError):
        frames.next_frame()


def test_memory_follows_the_bytes_received_and_not_the_length_announced():
    frames = FrameBuffer(frame_bytes_max=RESPONSE_BYTES_MAX)
    tracemalloc.start()
    try:
        frames.writable()[:4] = RESPONSE_BYTES_MAX.to_bytes(4, "big")
        frames.wrote(4)
        assert frames.next_frame() is None
        frames.writable()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 16
