"""CVE-2026-111108: the length of an array was allocated before its elements were there."""

import tracemalloc

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import CLIENT_ELEMENTS_MAX, decoder
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.offset_fetch import OffsetFetchRequest

GIB = 1 << 30


@pytest.mark.parametrize(
    ("message", "version", "data"),
    [
        (MetadataRequest, 1, (2**31 - 1).to_bytes(4, "big")),
        (MetadataRequest, 12, b"\xff\xff\xff\xff\x0f"),
        (DeleteTopicsRequest, 1, (GIB).to_bytes(4, "big") + b"\0" * 100),
        (OffsetFetchRequest, 1, b"\0\1g" + (GIB).to_bytes(4, "big")),
    ],
)
def test_an_announced_length_costs_nothing(message, version, data):
    decode = decoder(message, version)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequestError, match=r"elements|left"):
            decode(memoryview(data), 0, CLIENT_ELEMENTS_MAX)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


def test_all_arrays_of_a_request_share_one_budget():
    names = b"\0\1t" * (CLIENT_ELEMENTS_MAX + 1)
    count = (CLIENT_ELEMENTS_MAX + 1).to_bytes(4, "big")
    with pytest.raises(MalformedRequestError, match="element budget"):
        decoder(MetadataRequest, 1)(memoryview(count + names), 0, CLIENT_ELEMENTS_MAX)
