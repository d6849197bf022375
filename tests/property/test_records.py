"""Encoded records are decoded with every codec; garbage raises only our errors."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

import odradek.log.index.transactions as transaction_index
from odradek.log.checkpoints import decode_epochs, decode_offsets
from odradek.log.producer_state import ProducerState
from odradek.model.errors import ApiError, OdradekError
from odradek.record.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    has_valid_crc,
    iter_batches,
    read_header,
    sign,
    whole_batches_end,
)
from odradek.record.compression import Codec, decompress
from odradek.record.control import read_marker
from odradek.record.records import Record, build_batch, iter_records
from odradek.record.validate import ValidationRules, validate_produced, validate_replicated

TIMESTAMPS = st.integers(-1, 2**45)
BYTES = st.none() | st.binary(max_size=20) | st.builds(bytes, st.sampled_from([64, 8192, 20_000]))
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=2).map(tuple)
RECORDS = st.lists(
    st.tuples(BYTES, BYTES, TIMESTAMPS, HEADERS).map(lambda fields: Record(*fields)), max_size=6
)
CODECS = st.sampled_from(list(Codec))


@given(RECORDS, CODECS, st.integers(0, 2**62))
def test_encoded_records_are_decoded(records, codec, base_offset):
    batch = build_batch(records, codec=codec, base_offset=base_offset)

    read = list(iter_records(batch))

    offsets = range(base_offset, base_offset + len(records))
    assert [record.offset for record in read] == list(offsets)
    assert [record._replace(offset=-1) for record in read] == records
    assert read_header(batch).next_offset == base_offset + len(records)


@given(RECORDS.filter(bool), CODECS, st.sampled_from([None, *Codec]))
def test_validation_does_not_change_the_records(records, codec, target):
    produced = build_batch(records, codec=codec)
    rules = ValidationRules(codec=target, full=True, message_bytes_max=1 << 30)

    validated = validate_produced(memoryview(produced), rules, wall_ms=0, api_version=9)

    assert list(iter_records(validated.view)) == list(iter_records(produced))
    assert has_valid_crc(validated.view, 0, validated.header)
    assert validated.header.codec == (codec if target is None else target)


FLIPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6)


def flipped(batch, flips, first=0):
    damaged = bytearray(batch)
    for where, value in flips:
        damaged[first + where % (len(damaged) - first)] = value
    return damaged


def judged(view):
    """Call every decoder of a batch; only the documented errors may be raised."""
    for rules in (
        ValidationRules(),
        ValidationRules(full=True, decompressed_bytes_max=1 << 20),
        ValidationRules(codec=Codec.GZIP, compacted=True, decompressed_bytes_max=1 << 20),
    ):
        with contextlib.suppress(ApiError):
            validate_produced(view, rules, wall_ms=0, api_version=9)
    with contextlib.suppress(ApiError):
        validate_replicated(view)
    with contextlib.suppress(ApiError):
        list(iter_batches(view))
    with contextlib.suppress(ApiError):
        whole_batches_end(view)
    with contextlib.suppress(ApiError):
        list(iter_records(view, decompressed_bytes_max=1 << 20))
    with contextlib.suppress(ApiError):
        read_marker(view)


@given(st.binary(max_size=200))
def test_random_bytes_raise_our_errors_only(data):
    judged(memoryview(data))


def replicated(data):
    try:
        return validate_replicated(memoryview(data))
    except ApiError as error:
        return str(error)


@given(RECORDS, CODECS, st.just([]) | FLIPS, st.booleans(), st.integers(-3, 2**40))
def test_a_single_replicated_batch_is_judged_as_one_of_several(
    records, codec, flips, signed_again, base_offset
):
    batch = bytearray(build_batch(records, codec=codec))
    batch[:8] = base_offset.to_bytes(8, "big", signed=True)
    batch = flipped(batch, flips)
    if signed_again:
        sign(batch)

    # The start of an incomplete batch behind it leads past the shorter path for a single one.
    assert replicated(batch) == replicated(batch + bytes(2))


@given(RECORDS, CODECS, FLIPS, st.booleans(), st.integers(0, 400))
def test_damaged_batches_raise_our_errors_only(records, codec, flips, signed_again, cut):
    damaged = flipped(build_batch(records, codec=codec), flips)
    damaged = damaged[: max(0, len(damaged) - cut)] if cut < 40 else damaged
    if signed_again and len(damaged) > ATTRIBUTES_AT:
        sign(damaged)

    judged(memoryview(damaged))


@given(RECORDS.filter(bool), FLIPS)
def test_damaged_records_raise_our_errors_or_fit_their_bytes(records, flips):
    damaged = flipped(build_batch(records), flips, first=HEADER_BYTES)

    with contextlib.suppress(ApiError):
        read = list(iter_records(damaged))
        assert len(read) == len(records)
        assert sum(len(r.key or b"") + len(r.value or b"") for r in read) <= len(damaged)


@given(CODECS, st.binary(max_size=300), st.binary(max_size=300))
def test_damaged_compression_raises_our_errors_only_and_stays_within_its_limit(codec, head, tail):
    marks = {
        Codec.NONE: b"",
        Codec.GZIP: b"\x1f\x8b\x08\0\0\0\0\0\0\0",
        Codec.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
        Codec.LZ4: b"\x04\x22\x4d\x18",
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for data in (head, marks[codec] + tail):
        with contextlib.suppress(ApiError):
            assert len(decompress(codec, data, 1000)) <= 1000


@given(st.binary(max_size=200) | st.text(max_size=60).map(str.encode))
def test_damaged_files_raise_our_errors_only(data):
    for decode in (decode_offsets, decode_epochs, transaction_index.decode):
        with contextlib.suppress(OdradekError):
            decode(data)
    with contextlib.suppress(OdradekError):
        ProducerState().load_snapshot(data, wall_ms=0, expiration_ms=1)
