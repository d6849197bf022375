"""What a leader refuses and changes. The comparison with Kafka is in tests/oracle."""

import pytest

from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import (
    ATTRIBUTES_AT,
    TimestampType,
    has_valid_crc,
    read_header,
    sign,
)
from odradek.record.check import plain_check
from odradek.record.compression import Codec, Levels
from odradek.record.records import Record, build_batch, iter_records
from odradek.record.validate import (
    RECORD_ERRORS_MAX,
    RejectedBatchError,
    ValidationRules,
    validate_produced,
    validate_replicated,
)

NOW = 1_000_000


def some(count=3, key=b"k"):
    return [Record(key, b"v" * 50, NOW - i) for i in range(count)]


def by_header(batch):
    """Validated without checking the records, where no rule needs them."""
    return validate(batch, full=False, check=plain_check)


def validate(batch, *, api_version=9, **rules):
    return validate_produced(
        memoryview(batch), ValidationRules(**rules), wall_ms=NOW, api_version=api_version
    )


def resigned(batch, position, data):
    changed = bytearray(batch)
    changed[position : position + len(data)] = data
    sign(changed)
    return changed


def test_an_ordinary_batch_is_not_copied():
    view = memoryview(build_batch(some()))

    validated = validate_produced(view, ValidationRules(), wall_ms=NOW, api_version=9)

    assert validated.view is view
    assert validated.header == read_header(view)


def test_bytes_after_the_batch_are_ignored():
    batch = build_batch(some())

    assert validate(batch + batch[:30]).view == batch


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        (0x20, ErrorCode.INVALID_RECORD),
        (0x40, ErrorCode.INVALID_RECORD),
        (0x10, ErrorCode.INVALID_RECORD),  # transactional without a producer id
        (0x08, ErrorCode.INVALID_TIMESTAMP),
        (0x05, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (0x07, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_attributes_that_only_brokers_set_are_refused(attributes, code):
    batch = resigned(build_batch(some()), ATTRIBUTES_AT, attributes.to_bytes(2, "big"))

    with pytest.raises(ApiError) as refused:
        validate(batch)

    assert refused.value.code is code


def test_append_time_is_set_in_place_where_the_bytes_may_be_changed():
    buffer = bytearray(build_batch(some()))
    view = memoryview(buffer)

    validated = validate_produced(
        view,
        ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME),
        wall_ms=NOW + 7,
        api_version=9,
    )

    assert validated.view is view
    assert has_valid_crc(view, 0, validated.header)
    assert {record.timestamp for record in iter_records(buffer)} == {NOW + 7}


def test_append_time_is_set_in_a_copy_where_the_bytes_may_not_be_changed():
    produced = build_batch(some())
    kept = bytes(produced)

    validated = validate(produced, timestamp_type=TimestampType.LOG_APPEND_TIME)

    assert produced == kept
    assert validated.header.max_timestamp == NOW
    assert has_valid_crc(validated.view, 0, validated.header)


def test_a_wrong_max_timestamp_is_corrected_if_the_records_are_checked():
    batch = resigned(build_batch(some()), 35, (NOW + 99).to_bytes(8, "big"))

    assert by_header(batch).header.max_timestamp == NOW + 99
    set_right = validate(batch)
    assert set_right.header.max_timestamp == NOW
    assert has_valid_crc(set_right.view, 0, set_right.header)


@pytest.mark.parametrize("rules", [{"full": True}, {"compacted": True}])
def test_offsets_out_of_order_are_found_by_the_check_of_records(rules):
    one, two, three = some()
    batch = build_batch([one, two._replace(offset=2), three._replace(offset=2)])

    assert by_header(batch).header.record_count == 3
    with pytest.raises(ApiError, match="record 1 of 3: its offset delta is damaged") as refused:
        validate(batch, **rules)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_a_timestamp_beyond_64_bits_is_refused():
    batch = resigned(build_batch(some()), 27, (2**63 - 1).to_bytes(8, "big"))
    batch = resigned(batch, 64 - 1, b"\2")  # the first record's delta: 1

    with pytest.raises(ApiError, match="record 0 of 3: its timestamp is damaged"):
        validate(batch, full=True)


def test_limits_on_timestamps_include_their_ends():
    rules = {"timestamp_before_max_ms": 10, "timestamp_after_max_ms": 20}
    good = [Record(b"k", None, timestamp) for timestamp in (NOW - 10, NOW + 20, -1)]
    bad = [Record(b"k", None, timestamp) for timestamp in (NOW - 11, NOW, NOW + 21)]

    validate(build_batch(good), **rules)
    with pytest.raises(RejectedBatchError) as refused:
        validate(build_batch(bad), **rules)

    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [0, 2]


def test_limits_on_timestamps_do_not_apply_to_append_time():
    validate(
        build_batch([Record(b"k", None, 5)]),
        timestamp_before_max_ms=10,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        full=True,
    )


def test_the_number_of_listed_record_errors_is_limited():
    batch = build_batch([Record(None, b"", NOW)] * (RECORD_ERRORS_MAX + 5))

    with pytest.raises(RejectedBatchError, match="1005 records are rejected") as refused:
        validate(batch, compacted=True)

    assert len(refused.value.record_errors) == RECORD_ERRORS_MAX


def test_another_codec_keeps_the_records_and_every_other_field():
    produced = build_batch(some(50), codec=Codec.GZIP, producer_id=3, base_sequence=4)

    validated = validate(produced, codec=Codec.ZSTD, levels=Levels(zstd=9))

    changed = validated.header._replace(length=0, crc=0, attributes=0)
    assert validated.header.codec == Codec.ZSTD
    assert has_valid_crc(validated.view, 0, validated.header)
    assert list(iter_records(validated.view)) == list(iter_records(produced))
    assert changed == read_header(produced)._replace(length=0, crc=0, attributes=0)


def test_a_batch_of_the_topics_codec_is_not_compressed_again():
    view = memoryview(build_batch(some(), codec=Codec.GZIP, levels=Levels(gzip=1)))

    validated = validate_produced(
        view,
        ValidationRules(codec=Codec.GZIP, levels=Levels(gzip=9)),
        wall_ms=NOW,
        api_version=9,
    )

    assert validated.view is view


def test_a_batch_above_the_limit_after_decompression_is_too_large():
    batch = build_batch(some(50), codec=Codec.GZIP)

    with pytest.raises(ApiError) as refused:
        validate(batch, codec=Codec.NONE, message_bytes_max=1000)

    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_records_that_decompress_to_more_than_the_rules_allow_are_refused():
    batch = build_batch([Record(b"k", bytes(100_000), NOW)], codec=Codec.ZSTD)

    with pytest.raises(ApiError) as refused:
        validate(batch, full=True, decompressed_bytes_max=50_000)

    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_a_follower_refuses_a_damaged_batch():
    good = build_batch(some(), base_offset=5)
    bad = bytearray(build_batch(some(), base_offset=8))
    bad[-1] ^= 1

    with pytest.raises(ApiError, match="checksum of the batch at offset 8"):
        validate_replicated(memoryview(good + bad))


def test_a_follower_accepts_compacted_batches():
    first = build_batch([], base_offset=5, last_offset=9)
    second = build_batch(some(1), base_offset=30)

    end, headers = validate_replicated(memoryview(first + second))

    assert end == len(first + second)
    assert [header.next_offset for header in headers] == [10, 31]
