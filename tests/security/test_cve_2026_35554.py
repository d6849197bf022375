"""CVE-2026-35554: a producer used the memory of an expired batch again while it was being sent.

Records of one topic arrived in another. Here nothing that is sent is changed later: a batch is made
as `bytes`, and a request refers to those of its own batches.
"""

from odradek.record.records import Record, build_batch
from odradek.wire.messages.produce import Produce, encode_produce_request


def frame(topic, batch):
    request = Produce(-1, 1000, None, [(topic, [(0, batch)])])
    return encode_produce_request(9, 1, "x", request)


def test_a_request_keeps_its_bytes_while_others_are_made():
    first, second = (build_batch([Record(None, value * 1000)]) for value in (b"a", b"b"))
    assert (type(first), type(second)) == (bytes, bytes)
    in_flight = frame("first", first)
    sent = b"".join(in_flight)
    others = [frame("second", second) for _ in range(10)]

    assert b"".join(in_flight) == sent
    shared = {id(piece) for piece in in_flight} & {id(p) for other in others for p in other}
    assert shared == set()
