"""Records of `__transaction_state`: what is written is read back, and damage is reported."""

import pytest

from odradek.model.clock import Now
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import RecordSkipped, Replayed
from odradek.record.records import InvalidRecordError, Record
from odradek.txn.machine import TransactionMachine
from odradek.txn.records import decode_record, encode_key, encode_value
from odradek.txn.transaction import VERSION_2, State, Transaction

KEY = encode_key("x")


def transaction(**fields):
    return Transaction(
        **{
            "transactional_id": "x",
            "producer_id": 7,
            "producer_epoch": 3,
            "timeout_ms": 60_000,
            "updated_ms": 5_000,
            **fields,
        }
    )


ONGOING = transaction(
    state=State.ONGOING,
    partitions=frozenset(TopicPartition(t, n) for t, n in (("t", 1), ("t", 0), ("u", 2))),
    started_ms=4_000,
)


def test_a_key_is_a_version_and_the_id():
    assert KEY == b"\0\0\0\1x"


def test_while_no_transaction_is_open_the_partitions_are_null():
    value = encode_value(transaction())
    assert value == bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 00 ffffffff 0000000000001388 ffffffffffffffff "
    )


def test_partitions_are_grouped_by_topic():
    value = encode_value(ONGOING)
    assert value == bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 01 00000002 "
        "0001 74 00000002 00000000 00000001 "
        "0001 75 00000001 00000002 "
        "0000000000001388 0000000000000fa0 "
    )


@pytest.mark.parametrize("state", [s for s in State if s < State.DEAD])
@pytest.mark.parametrize("version", [0, VERSION_2])
def test_what_is_written_is_read_back(state, version):
    has_ids = {"last_producer_id": 6, "next_producer_id": 9} if version else {}
    before = transaction(
        state=state,
        partitions=frozenset() if state is State.EMPTY else ONGOING.partitions,
        client_version=version,
        **has_ids,
    )
    stored = decode_record(KEY, encode_value(before))
    assert stored == ("x", before)


def test_only_version_2_needs_the_later_value():
    assert encode_value(ONGOING)[:2] == b"\0\0"
    assert encode_value(transaction(client_version=VERSION_2))[:2] == b"\0\1"


def replayed(*records):
    """The effects of these records, and the transactions of a machine that they made."""
    machine = TransactionMachine()
    numbered = tuple(Record(*each, offset=offset) for offset, each in enumerate(records))
    return machine.handle(Replayed(numbered, -1), Now(0, 0)), list(machine)


def test_the_last_record_of_an_id_counts():
    assert replayed(
        (KEY, encode_value(transaction())),
        (KEY, encode_value(ONGOING)),
        (encode_key("y"), encode_value(transaction(transactional_id="y"))),
        (encode_key("y"), None),
    ) == ([], [ONGOING])


def test_a_record_with_the_key_version_of_a_later_kafka_is_skipped():
    assert replayed((b"\0\1whatever", b"else")) == ([], [])


VALUE = encode_value(ONGOING)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (b"\0", VALUE),
        (b"\0\0\0\5x", VALUE),
        (KEY, b""),
        (KEY, b"\0"),
        (KEY, b"\0\2" + VALUE[2:]),
        (KEY, VALUE[:-1]),
        (KEY, VALUE[:16] + b"\6" + VALUE[17:]),  # Dead
        (KEY, VALUE[:16] + b"\x63" + VALUE[17:]),
        (KEY, VALUE[:10] + b"\xff\xff" + VALUE[12:]),  # an epoch of -1
    ],
    ids=str,
)
def test_a_damaged_record_is_reported_with_its_offset(key, value):
    with pytest.raises(InvalidRecordError) as caught:
        decode_record(key, value)
    damaged = (key, value)
    good = (KEY, VALUE)
    assert replayed(good, damaged) == ([RecordSkipped(1, str(caught.value))], [ONGOING])
