"""The shown values: one message, the cost, and what was not searched, in sentences."""

from odradek.model.clock import WallMs
from odradek.record.compression import Codec
from odradek.web.messages import view
from odradek.web.messages.progress import (
    PartitionProgress,
    SearchProgress,
    UnsearchedRange,
)
from odradek.web.messages.query import read_query
from odradek.web.messages.ranges import PartitionRange, SearchRanges
from odradek.web.messages.scan import FoundRecord, TransactionState

STARTED = 1_767_225_600_000

RECORD = FoundRecord(
    partition=1, offset=7, timestamp=STARTED, timestamp_type=1, key=None, key_bytes=0,
    value=b'{"a":1}', value_bytes=7, headers=(("h", None), ("\udcff", b"x")), headers_cut=0,
    leader_epoch=3, codec=Codec.ZSTD, batch_offset=5, batch_bytes=90, batch_records=4,
    producer_id=8, producer_epoch=1, sequence=2, state=TransactionState.ABORTED, marker="",
)  # fmt: skip


def test_a_message_has_everything_its_batch_says():
    shown = view.message(RECORD)

    assert shown["key"]["kind"] == "null"
    assert shown["value"]["kind"] == "json"
    assert shown["time"] == "2026-01-01T00:00:00.000Z"
    assert shown["timestamp_type"] == "LogAppendTime"
    assert shown["codec"] == "zstd"
    assert shown["batch"] == {"base_offset": 5, "bytes": 90, "records": 4}
    assert shown["transaction"] == "aborted"
    assert [each["name"] for each in shown["headers"]] == ["h", "\ufffd"]


def ranges(*each, unknown=""):
    return SearchRanges(ranges=each, sizes_unknown=unknown, started_ms=STARTED)


def test_the_cost_is_the_share_of_the_bytes():
    shown = view.cost(
        ranges(
            PartitionRange(partition=0, log_start=0, high_watermark=1_000, stable=1_000, start=900,
                           end=1_000, held_bytes=10 << 20),
            PartitionRange(partition=1, log_start=5, high_watermark=5, stable=5, start=5, end=5,
                           held_bytes=0),
        )
    )  # fmt: skip

    assert (shown["offsets"], shown["bytes"]) == (100, 1 << 20)
    assert shown["text"] == "100 offsets in 2 partitions, about 1.0 MiB"


def test_the_cost_says_why_sizes_are_not_known():
    one = PartitionRange(partition=0, log_start=0, high_watermark=9, stable=9, start=0, end=9)

    shown = view.cost(ranges(one, unknown="CLUSTER_AUTHORIZATION_FAILED"))

    assert shown["bytes"] == -1
    assert shown["text"] == (
        "9 offsets in 1 partition; sizes are not known: CLUSTER_AUTHORIZATION_FAILED"
    )


def search(state, **fields):
    query = read_query({"topic": "orders", **fields}, WallMs(STARTED))
    return view.progress(query, SearchProgress(query.digest, STARTED, state))


def test_everything_that_was_not_searched_is_named():
    shown = search(
        {
            0: PartitionProgress(
                start=0, end=1_000, position=400, records=300, missing=70, markers=10, not_json=5,
                undecodable=(UnsearchedRange(10, 20, "damaged"),),
                expired=(UnsearchedRange(30, 40, "deleted meanwhile"),),
            ),
            1: PartitionProgress(start=0, end=50, position=20, error="it has no leader"),
        }
    )  # fmt: skip

    assert shown["percent"] == 40.0
    assert not shown["complete"]
    assert shown["sentences"] == [
        "630 offsets in 2 partitions: not read yet",
        "partition 1 cannot be read any further: it has no leader",
        "10 offsets in 1 partition: deleted before the search came to them",
        "10 offsets in 1 partition: in batches that cannot be decoded",
        "no record is at 70 offsets: compaction has removed them",
        "control records, at 10 offsets, were not searched",
        "the condition on JSON cannot hold in 5 records: no JSON",
        "records that were written after 2026-01-01T00:00:00.000Z are not part of the search",
    ]
    assert [(r["start"], r["end"]) for r in shown["not_searched"]] == [
        (10, 20), (30, 40), (400, 1_000), (20, 50),
    ]  # fmt: skip


def test_a_partition_that_cannot_be_read_makes_a_search_incomplete():
    shown = search({0: PartitionProgress(start=0, end=0, position=0, error="it has no leader")})

    assert (shown["done"], shown["complete"]) == (True, False)


def test_the_bounds_of_a_search_are_named():
    shown = search({}, to="2026-01-01T00:00:01", partitions="1-2")

    assert shown["percent"] == 100.0
    assert shown["sentences"] == [
        (
            "each partition is read up to its first record at or after 2026-01-01T00:00:01.000Z; "
            "with CreateTime, records behind it may be older and were not searched"
        ),
        "only partitions 1, 2 were searched",
    ]
