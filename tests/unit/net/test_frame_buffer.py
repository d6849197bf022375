"""Frames of all sizes are read back unchanged, whatever buffer held them."""

import random

import pytest

from odradek.wire.frame import FrameBuffer

MIB = 1 << 20


def framed(data):
    return len(data).to_bytes(4, "big") + data


def frames_of(buffer, stream, pieces):
    """Feed a stream in pieces of random sizes; copies of all frames read."""
    found = []
    position = 0
    while position < len(stream):
        room = buffer.writable()
        size = min(len(room), next(pieces), len(stream) - position)
        room[:size] = stream[position : position + size]
        buffer.wrote(size)
        position += size
        while (frame := buffer.next_frame()) is not None:
            found.append(bytes(frame))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_large_and_small_frames_in_pieces(seed):
    draw = random.Random(seed)
    sizes = [draw.choice((0, 10, 20_000, 700_000, MIB, 3 * MIB, 9 * MIB)) for _ in range(8)]
    sent = [draw.randbytes(size) for size in sizes]
    pieces = iter(lambda: draw.choice((1, 1_000, 60_000, MIB, 4 * MIB)), None)
    buffer = FrameBuffer(frame_bytes_max=10 * MIB)

    assert frames_of(buffer, b"".join(map(framed, sent)), pieces) == sent
    buffer.release_memory()
    assert buffer.memory_bytes == 0


def test_the_buffer_grows_with_what_one_read_brings():
    buffer = FrameBuffer(frame_bytes_max=MIB)
    for _ in range(200):  # a client with a small request now and then
        frames_of(buffer, framed(bytes(300)), iter(lambda: MIB, None))
    assert buffer.memory_bytes == 2_048

    frames_of(buffer, framed(bytes(300)) * 20, iter(lambda: MIB, None))
    assert buffer.memory_bytes == 16_384


def test_the_buffer_grows_after_a_read_that_fills_it():
    buffer = FrameBuffer(frame_bytes_max=MIB)
    for size in (300, 2_044):
        frames_of(buffer, framed(bytes(size)), iter(lambda: MIB, None))
    buffer.writable()

    assert buffer.memory_bytes == 16_384


def test_a_frame_is_read_with_the_bytes_that_complete_it():
    buffer = FrameBuffer(frame_bytes_max=MIB)
    stream = framed(b"one") + framed(b"two")
    buffer.writable()[: len(stream)] = stream

    assert buffer.next_frame(5) is None
    assert buffer.next_frame(2) == b"one"
    assert not buffer.has_more
    assert buffer.next_frame(len(stream) - 7) == b"two"


def test_a_buffer_tells_whether_there_are_bytes_behind_a_frame():
    buffer = FrameBuffer(frame_bytes_max=MIB)
    stream = framed(b"one") + framed(b"two")
    buffer.writable()[: len(stream)] = stream
    read = [
        (buffer.next_frame(len(stream)), buffer.has_more),
        (buffer.next_frame(), buffer.has_more),
    ]

    assert read == [(b"one", True), (b"two", False)]


def test_a_buffer_with_received_bytes_is_not_released():
    buffer = FrameBuffer(frame_bytes_max=MIB)
    sent = framed(b"a request")
    frames_of(buffer, sent[:5], iter(lambda: MIB, None))
    buffer.release_memory()

    assert frames_of(buffer, sent[5:], iter(lambda: MIB, None)) == [b"a request"]


def test_memory_is_counted_by_received_bytes_and_not_by_the_frame_length():
    buffer = FrameBuffer(frame_bytes_max=100 * MIB)
    frames_of(buffer, framed(bytes(90 * MIB))[: 2 * MIB], iter(lambda: MIB, None))

    assert len(buffer) == 2 * MIB
    assert buffer.memory_bytes <= 4 * MIB


def test_a_frame_that_was_put_back_is_returned_again():
    buffer = FrameBuffer(frame_bytes_max=100)
    sent = framed(b"first") + framed(b"x")
    buffer.writable()[: len(sent)] = sent
    buffer.wrote(len(sent))
    frame = buffer.next_frame()
    assert bytes(frame) == b"first"
    buffer.put_back(frame)

    assert bytes(buffer.next_frame()) == b"first"
    assert bytes(buffer.next_frame()) == b"x"


def test_a_frame_whose_memory_was_given_away_is_not_overwritten():
    buffer = FrameBuffer(frame_bytes_max=3 * MIB)
    (large, behind) = framed(b"a" * 2 * MIB), framed(b"behind")
    unread = large + behind[:6]
    while unread:
        room = buffer.writable()
        size = min(len(room), len(unread))
        room[:size] = unread[:size]
        buffer.wrote(size)
        unread = unread[size:]
    kept = buffer.next_frame()
    buffer.detach()
    more = frames_of(buffer, behind[6:] + framed(b"b" * 2 * MIB), iter(lambda: MIB, None))

    assert more == [b"behind", b"b" * 2 * MIB]
    assert bytes(kept) == b"a" * 2 * MIB
