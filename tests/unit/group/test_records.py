"""Records of `__consumer_offsets`: as Apache Kafka 3.9.2 wrote them, and with damage."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.group.records import (
    STRING_BYTES_MAX,
    CommittedOffset,
    OffsetKey,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    key_version,
)
from odradek.model.errors import MalformedRequestError
from odradek.record.records import InvalidRecordError
from odradek.wire.codec import encoder
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
DAMAGE = (InvalidRecordError, MalformedRequestError)


@given(group=TEXT, topic=TEXT, partition=INT32)
def test_the_key_of_an_offset_follows_kafkas_schema(group, topic, partition):
    key = encode_offset_key(group, topic, partition)
    declared = OffsetCommitKey(group=group, topic=topic, partition=partition)

    assert key == b"\x00\x01" + encoder(OffsetCommitKey, 1)(declared)
    assert decode_offset_key(key) == OffsetKey(group, topic, partition)


@given(offset=INT64, epoch=INT32, metadata=TEXT, timestamp=INT64, expires=INT64)
def test_the_value_of_an_offset_follows_kafkas_schema(offset, epoch, metadata, timestamp, expires):
    committed = CommittedOffset(offset, epoch, metadata, timestamp, order=4)
    value = encode_offset_value(committed)
    declared = OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=timestamp
    )
    assert value == b"\x00\x03" + encoder(OffsetCommitValue, 3)(declared)
    assert decode_offset_value(value, 4) == committed
    for version in (0, 2, 4):
        old = version.to_bytes(2, "big") + encoder(OffsetCommitValue, version)(declared)
        found = decode_offset_value(old, 4)
        assert found == committed._replace(leader_epoch=epoch if version == 4 else -1)


def test_an_offset_with_a_retention_of_its_own_is_written_in_version_1():
    committed = CommittedOffset(9, -1, "m", 1000, 2000, 4)
    value = encode_offset_value(committed)
    declared = OffsetCommitValue(
        offset=9, metadata="m", commit_timestamp=1000, expire_timestamp=2000
    )

    assert value == b"\x00\x01" + encoder(OffsetCommitValue, 1)(declared)
    assert decode_offset_value(value, 4) == committed


@given(st.binary(max_size=60))
def test_damage_is_reported_as_damage(data):
    for decode in (
        decode_offset_key,
        lambda value: decode_offset_value(value, 0),
        decode_group_key,
        decode_group_value,
        key_version,
    ):
        with contextlib.suppress(DAMAGE):
            decode(data)


@pytest.mark.parametrize("cut", range(22))
def test_a_key_or_value_that_ends_early_is_damaged(cut):
    key, value = (
        encode_offset_key("g", "topic", 1),
        encode_offset_value(CommittedOffset(1, 2, "", 3)),
    )
    with pytest.raises(DAMAGE):
        decode_offset_key(key[: min(cut, len(key) - 1)])
    with pytest.raises(DAMAGE):
        decode_offset_value(value[:cut], 0)


def test_a_record_longer_than_its_schema_is_damaged():
    for decode, data in (
        (decode_offset_key, encode_offset_key("g", "t", 1)),
        (
            lambda value: decode_offset_value(value, 0),
            encode_offset_value(CommittedOffset(1, 2, "", 3)),
        ),
        (decode_group_key, encode_group_key("g")),
        (decode_group_value, encode_group_value(GROUP)),
    ):
        with pytest.raises(DAMAGE):
            decode(data + b"x")


def test_text_that_is_no_utf_8_is_damage():
    key, value = (
        encode_offset_key("gg", "t", 1),
        encode_offset_value(CommittedOffset(1, 2, "mm", 3)),
    )
    with pytest.raises(DAMAGE):
        decode_offset_key(key.replace(b"gg", b"\xff\xfe"))
    with pytest.raises(DAMAGE):
        decode_offset_value(value.replace(b"mm", b"\xff\xfe"), 0)


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\xff\xff"])
def test_a_record_without_a_readable_key_is_damaged(key):
    with pytest.raises(InvalidRecordError):
        key_version(key)


def test_undefined_versions_are_damage():
    for data in (b"\x00\x05" + bytes(40), b"\xff\xff" + bytes(40), b"\x00"):
        with pytest.raises(DAMAGE):
            decode_offset_value(data, 0)
        with pytest.raises(DAMAGE):
            decode_group_value(data)


# ------------------------------------------------------------- what Apache Kafka 3.9.2 wrote

GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=1,
    protocol="range",
    leader="i1-70026365-e875-47fa-96b7-09e973dda166",
    current_state_timestamp=1795293945085,
    members=[
        MemberMetadata(
            member_id="i1-70026365-e875-47fa-96b7-09e973dda166",
            group_instance_id="i1",
            client_id="probe",
            client_host="/127.0.0.1",
            rebalance_timeout=20_000,
            session_timeout=10_000,
            subscription=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0",
            assignment=b"abc",
        )
    ],
)
KAFKA_GROUP = bytes.fromhex(
    "00030008636f6e73756d657200000001000572616e6765002769312d37303032363336352d653837"
    "352d343766612d393662372d303965393733646461313636000001a1ffdb9cfd0000000100276931"
    "2d37303032363336352d653837352d343766612d393662372d303965393733646461313636000269"
    "31000570726f6265000a2f3132372e302e302e3100004e2000002710000000110001000000010001"
    "74ffffffff0000000000000003616263"
)
KAFKA_EMPTY_GROUP = bytes.fromhex(
    "00030008636f6e73756d657200000002ffffffff000001a1ffdb9dcb00000000"
)
KAFKA_OFFSET_KEY = bytes.fromhex("000100016700017400000001")
KAFKA_OFFSET = bytes.fromhex("0003000000000000000600000000000368c3a9000001a1ffdb867b")
KAFKA_LIMITED = bytes.fromhex("000100000000000000090000000001a1ffdb9ce8000001a20501f8e8")


def test_groups_are_written_as_kafka_writes_them():
    assert encode_group_key("h") == b"\x00\x02\x00\x01h"
    assert encode_group_value(GROUP) == KAFKA_GROUP
    assert decode_group_value(KAFKA_GROUP) == GROUP
    empty = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=1795293945291,
    )
    assert encode_group_value(empty) == KAFKA_EMPTY_GROUP


def test_offsets_are_written_as_kafka_writes_them():
    assert encode_offset_key("g", "t", 1) == KAFKA_OFFSET_KEY
    assert encode_offset_value(CommittedOffset(6, 0, "hé", 1795293939323)) == KAFKA_OFFSET
    limited = CommittedOffset(9, -1, "", 1795293945064, 1795380345064)
    assert encode_offset_value(limited) == KAFKA_LIMITED


def test_the_longest_text_that_fits_does():
    longest = "x" * STRING_BYTES_MAX
    key = encode_offset_key(longest, "t", 0)
    assert decode_offset_key(key).group_id == longest
    assert (
        decode_offset_value(encode_offset_value(CommittedOffset(1, 2, longest, 3)), 0).metadata
        == longest
    )
