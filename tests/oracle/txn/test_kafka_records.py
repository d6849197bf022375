"""Values in `__transaction_state` that Apache Kafka 3.9.2 wrote: read, and written again alike.

The history of one transactional id of an aiokafka producer: begun, committed, aborted,
committed with the offsets of a group, fenced.
"""

import pytest

from odradek.model.partition import TopicPartition
from odradek.txn.records import decode_record, encode_key, encode_value
from odradek.txn.transaction import State

NAME = "transact-aiokafka"
_NAME = "7472616e736163742d61696f6b61666b612d313865613263333730653863633735612d6f7574"
OUT = TopicPartition(bytes.fromhex(_NAME).decode(), 0)
GROUP = TopicPartition("__consumer_offsets", 7)
_HEAD = "0000 0000000000000001 {epoch:04x} 0000ea60 {state:02x}"
_OUT = f"0026 {_NAME}"
_GROUP = "0012 5f5f636f6e73756d65725f6f666673657473 00000001 00000007"
_ONE = f"00000001 {_OUT} 00000001 00000000"
_TWO = f"00000002 {_GROUP} {_OUT} 00000001 00000000"


def value(epoch, state, partitions, updated, started):
    head = _HEAD.format(epoch=epoch, state=state)
    return bytes.fromhex(f"{head} {partitions} 000001a1fffb{updated} {started}")


NEVER = "ffffffffffffffff"
WRITTEN = {
    "begun": (value(0, 0, "ffffffff", "39f0", NEVER), State.EMPTY, set()),
    "open": (value(0, 1, _ONE, "39fe", "000001a1fffb39fe"), State.ONGOING, {OUT}),
    "commits": (value(0, 2, _ONE, "3a07", "000001a1fffb39fe"), State.PREPARE_COMMIT, {OUT}),
    "committed": (
        value(0, 4, "00000000", "3a08", "000001a1fffb39fe"), State.COMPLETE_COMMIT, set(),
    ),
    "aborts": (value(0, 3, _ONE, "3a2c", "000001a1fffb3a20"), State.PREPARE_ABORT, {OUT}),
    "with a group": (
        value(0, 1, _TWO, "3ac9", "000001a1fffb3ab5"), State.ONGOING, {OUT, GROUP},
    ),
    "fenced": (value(1, 3, _ONE, "3b93", "000001a1fffb3b6b"), State.PREPARE_ABORT, {OUT}),
    "begun again": (value(2, 0, "ffffffff", "3c09", NEVER), State.EMPTY, set()),
}  # fmt: skip


@pytest.mark.parametrize("moment", WRITTEN)
def test_what_kafka_wrote_is_read_and_written_alike(moment):
    written, state, partitions = WRITTEN[moment]
    stored = decode_record(encode_key(NAME), written)
    assert stored.transactional_id == NAME
    assert stored.transaction.state is state
    assert stored.transaction.partitions == partitions
    assert stored.transaction.timeout_ms == 60_000
    assert encode_value(stored.transaction) == written
