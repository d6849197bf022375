"""Compares both readers of usual produce requests with each other, and with the general path."""

import importlib.util
import itertools
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import one_batch_frames

from odradek.model.clock import WallMs
from odradek.record.batch import read_header
from odradek.record.one_batch import (
    CHECKSUM_BYTES_MAX,
    LAST_VERSION,
    OneBatch,
    fastest_read,
    plain_read_one_batch,
)
from odradek.record.records import Record, build_batch
from odradek.record.validate import ValidationRules, validate_produced
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.header import decode_request_header
from odradek.wire.messages.produce import Produce, decode_unusual, encode_produce_request

needs_kernel = pytest.mark.skipif(
    importlib.util.find_spec("odradek_fast") is None, reason="the compiled kernel is not installed"
)
READERS = [
    pytest.param(plain_read_one_batch, id="plain"),
    pytest.param(fastest_read(), id="compiled", marks=needs_kernel),
]
SIZES = (0, 1, 63, 64, 100, 4000, 8191, 8192, 100_000)
SEEDS = st.integers(0, 2**32)


@needs_kernel
def test_the_compiled_reader_is_used():
    assert fastest_read() is not plain_read_one_batch


@needs_kernel
@settings(max_examples=1500)
@given(SEEDS)
def test_both_readers_agree(seed):
    frame = memoryview(one_batch_frames.frame(random.Random(seed)))

    assert fastest_read()(frame) == plain_read_one_batch(frame)


@needs_kernel
@given(st.binary(max_size=200), st.integers(3, 12))
def test_both_readers_agree_on_any_bytes(data, version):
    for frame in (data, b"\0\0" + version.to_bytes(2, "big") + data):
        assert fastest_read()(memoryview(frame)) == plain_read_one_batch(memoryview(frame))


@pytest.mark.parametrize("read", READERS)
@settings(max_examples=500)
@given(SEEDS)
def test_what_is_read_is_what_the_general_path_reads_and_accepts(read, seed):
    frame = memoryview(one_batch_frames.frame(random.Random(seed)))
    found = read(frame)
    assume(found is not None)
    usual = OneBatch._make(found)
    assume(len(usual.batch) <= CHECKSUM_BYTES_MAX)
    header, position = decode_request_header(frame)
    request = decode_unusual(frame, position, header.api_version)
    ((topic, ((partition, batch),)),) = request.topics
    validated = validate_produced(
        memoryview(batch),
        ValidationRules(message_bytes_max=2**31 - 1),
        wall_ms=WallMs(0),
        api_version=header.api_version,
    )

    assert header == (0, usual.api_version, usual.correlation_id, usual.client_id)
    assert (usual.acks, usual.timeout_ms) == (request.acks, request.timeout_ms)
    assert (usual.topic, usual.partition) == (topic, partition)
    assert usual.batch == validated.view
    assert read_header(usual.batch) == usual.header == validated.header


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("timestamp", [-2, -1, 0, 1_700_000_000_000])
def test_one_record_with_lengths_of_one_to_three_bytes(read, version, timestamp):
    for key, value in itertools.product((None, *SIZES), repeat=2):
        key_data, value_data = (None if size is None else bytes(size) for size in (key, value))
        record = Record(offset=0, timestamp=timestamp, key=key_data, value=value_data)
        topics = [("t", [(3, build_batch([record]))])]
        pieces = encode_produce_request(version, 5, "c", Produce(-1, 9, None, topics))
        found = read(memoryview(b"".join(pieces))[4:])

        assert OneBatch._make(found)[:7] == (version, 5, "c", -1, 9, "t", 3)
        assert OneBatch._make(found).has_keys == (key is not None)


def test_a_third_of_the_generated_requests_is_usual():
    frames = [one_batch_frames.frame(random.Random(seed)) for seed in range(2000)]
    usual = [frame for frame in frames if plain_read_one_batch(memoryview(frame)) is not None]

    assert len(frames) / 4 < len(usual) < len(frames) * 3 / 4


def test_the_last_version_is_that_of_the_api():
    assert APIS[ApiKey.PRODUCE].accepted.last == LAST_VERSION
