"""How records are shown, byte for byte as Apache Kafka 3.9.2's console consumer showed them."""

import struct

import pytest

from odradek.cli.kafka.clients.formatters import Default, SerializationError
from odradek.cli.kafka.clients.formatters_internal import internal
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.wire.codec import encoder
from odradek.wire.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.messages.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

GROUPS = "kafka.coordinator.group.GroupMetadataManager$"
TRANSACTIONS = "kafka.coordinator.transaction.TransactionLog$"
NEW = "org.apache.kafka.tools.consumer."


def record(key=None, value=b"v1", headers=(), kind=0):
    return ConsumerRecord("m1", 0, 2, 1795235380257, kind, key, value, headers, 0)


ALL = dict.fromkeys(
    ("print.key", "print.timestamp", "print.partition", "print.offset", "print.headers"), "true"
)


@pytest.mark.parametrize(
    ("properties", "given", "shown"),
    [
        ({}, record(), b"v1\n"),
        ({}, record(value=None), b"null\n"),
        (
            ALL,
            record(b"k1"),
            b"CreateTime:1795235380257\tPartition:0\tOffset:2\tNO_HEADERS\tk1\tv1\n",
        ),
        (
            ALL,
            record(headers=(("h1", b"x"), ("h2", None)), kind=1),
            b"LogAppendTime:1795235380257\tPartition:0\tOffset:2\th1:x,h2:null\tnull\tv1\n",
        ),
        ({"print.timestamp": "true"}, record(kind=-1), b"NO_TIMESTAMP\tv1\n"),
        ({"print.key": "TRUE ", "print.value": "no", "null.literal": "N"}, record(), b"N\n"),
        ({"print.value": "false"}, record(), b""),
        ({"line.separator": "|", "key.separator": ":", "print.key": "true"}, record(), b"null:v1|"),
        (
            {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"},
            record(value=struct.pack(">q", -7)),
            b"-7\n",
        ),
        (
            {"value.deserializer": "org.apache.kafka.common.serialization.DoubleDeserializer"},
            record(value=struct.pack(">d", 1e10)),
            b"1.0E10\n",
        ),
    ],
)
def test_the_default_shows_what_is_asked_for(properties, given, shown):
    assert Default(properties).show(given) == shown


def test_bytes_that_are_no_number_are_refused():
    name = "org.apache.kafka.common.serialization.IntegerDeserializer"
    with pytest.raises(SerializationError, match="received by IntegerDeserializer is not 4"):
        Default({"value.deserializer": name}).show(record())


def encoded(message, version):
    return version.to_bytes(2, "big") + encoder(type(message), version)(message)


OFFSET = record(
    encoded(OffsetCommitKey(group="g", topic="mix", partition=3), 1),
    encoded(OffsetCommitValue(offset=5, leader_epoch=0, commit_timestamp=7), 3),
)
GROUP = record(
    encoded(GroupMetadataKey(group="g"), 2),
    encoded(
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader="m",
            current_state_timestamp=9,
            members=[
                MemberMetadata(
                    member_id="m",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/127.0.0.1",
                    rebalance_timeout=300000,
                    session_timeout=45000,
                    subscription=b"\0\1",
                    assignment=b"\0\3",
                )
            ],
        ),
        3,
    ),
)
TRANSACTION = record(
    encoded(TransactionLogKey(transactional_id="tx1"), 0),
    encoded(
        TransactionLogValue(
            producer_id=4,
            producer_epoch=1,
            transaction_timeout_ms=60000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t1", partition_ids=[0])],
            transaction_last_update_timestamp_ms=20,
            transaction_start_timestamp_ms=10,
        ),
        0,
    ),
)


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        (
            f"{GROUPS}OffsetsMessageFormatter",
            OFFSET,
            (
                "[g,mix,3]::OffsetAndMetadata(offset=5, leaderEpoch=Optional[0], metadata=, "
                "commitTimestamp=7, expireTimestamp=None)\n"
            ),
        ),
        (
            f"{NEW}OffsetsMessageFormatter",
            OFFSET,
            (
                '{"key":{"version":1,"data":{"group":"g","topic":"mix","partition":3}},'
                '"value":{"version":3,"data":{"offset":5,"leaderEpoch":0,"metadata":"",'
                '"commitTimestamp":7}}}'
            ),
        ),
        (f"{NEW}OffsetsMessageFormatter", GROUP, ""),
        (
            f"{GROUPS}GroupMetadataMessageFormatter",
            GROUP,
            (
                "g::GroupMetadata(groupId=g, generation=1, protocolType=Some(consumer), "
                "currentState=Stable, members=HashMap(m -> MemberMetadata(memberId=m, "
                "groupInstanceId=None, clientId=c, clientHost=/127.0.0.1, sessionTimeoutMs=45000, "
                "rebalanceTimeoutMs=300000, supportedProtocols=List(range))))\n"
            ),
        ),
        (f"{GROUPS}GroupMetadataMessageFormatter", GROUP._replace(value=None), "g::NULL\n"),
        (
            f"{NEW}GroupMetadataMessageFormatter",
            GROUP._replace(value=None),
            '{"key":{"version":2,"data":{"group":"g"}},"value":null}',
        ),
        (f"{GROUPS}GroupMetadataMessageFormatter", OFFSET, ""),
        (
            f"{TRANSACTIONS}TransactionLogMessageFormatter",
            TRANSACTION,
            (
                "tx1::TransactionMetadata(transactionalId=tx1, producerId=4, producerEpoch=1, "
                "txnTimeoutMs=60000, state=Ongoing, pendingState=None, "
                "topicPartitions=HashSet(t1-0), "
                "txnStartTimestamp=10, txnLastUpdateTimestamp=20)\n"
            ),
        ),
        (f"{NEW}TransactionLogMessageFormatter", record(b"\0"), ""),
    ],
)
def test_internal_topics(name, given, shown):
    assert internal(name).show(given).decode() == shown


def test_members_as_json_are_kafkas():
    shown = internal(f"{NEW}GroupMetadataMessageFormatter").show(GROUP).decode()

    assert '"members":[{"memberId":"m","groupInstanceId":null,"clientId":"c",' in shown
    assert '"subscription":"AAE=","assignment":"AAM="}]' in shown


def test_other_names_are_no_formatter():
    assert internal("foo.Bar") is None
