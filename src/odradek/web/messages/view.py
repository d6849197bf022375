"""The values that the page of messages shows, as JSON has them. Pure.

What a slice has found, how far the search is, and in sentences what was not searched.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.plan.quantities import binary_text
from odradek.web.messages.content import content_of, moment
from odradek.web.messages.progress import PartitionProgress, SearchProgress
from odradek.web.messages.query import AtTime, Query
from odradek.web.messages.ranges import PartitionRange, SearchRanges
from odradek.web.messages.scan import FoundRecord, TransactionState

_TYPES: Final = ("CreateTime", "LogAppendTime")
_STATES: Final = {
    TransactionState.NONE: "",
    TransactionState.COMMITTED: "committed",
    TransactionState.ABORTED: "aborted: consumers with read_committed do not get this record",
    TransactionState.OPEN: "open: consumers with read_committed wait for its end",
    TransactionState.ENDED: (
        "ended, but above the last stable offset: consumers with read_committed wait for another "
        "transaction"
    ),
}


def message(record: FoundRecord) -> dict[str, Any]:
    """One found record with everything that its batch says."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "time": moment(record.timestamp),
        "timestamp_type": _TYPES[record.timestamp_type],
        "key": content_of(record.key, record.key_bytes).plain(),
        "value": content_of(record.value, record.value_bytes).plain(),
        "headers": [
            {
                "name": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                "value": content_of(value, len(value or b"")).plain(),
            }
            for name, value in record.headers
        ],
        "headers_cut": record.headers_cut,
        "is_cut": record.is_cut,
        "marker": record.marker,
        "coordinator_epoch": record.coordinator_epoch,
        "transaction": record.state.value,
        "transaction_text": _STATES[record.state],
        "leader_epoch": record.leader_epoch,
        "codec": record.codec.name.lower(),
        "batch": {
            "base_offset": record.batch_offset,
            "bytes": record.batch_bytes,
            "records": record.batch_records,
        },
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "sequence": record.sequence,
    }


def cost(ranges: SearchRanges) -> dict[str, Any]:
    """What a search reads, before it reads anything."""
    size = "" if ranges.bytes < 0 else f", about {binary_text(ranges.bytes)}"
    unknown = f"; sizes are not known: {ranges.sizes_unknown}" if ranges.sizes_unknown else ""
    return {
        "offsets": ranges.offsets,
        "bytes": ranges.bytes,
        "text": (
            f"{ranges.offsets:,} offsets in {len(ranges.ranges)} "
            f"partition{'s' * (len(ranges.ranges) != 1)}{size}{unknown}"
        ),
        "partitions": [_range(each) for each in ranges.ranges],
    }


def _range(each: PartitionRange) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "log_start_offset": each.log_start,
        "high_watermark": each.high_watermark,
        "last_stable_offset": each.stable,
        "start": each.start,
        "end": each.end,
        "offsets": each.offsets,
        "bytes": each.bytes,
        "error": each.error,
    }


def progress(query: Query, state: SearchProgress) -> dict[str, Any]:
    """How far a search is, with everything that it has not searched."""
    parts = state.partitions
    total = sum(max(0, each.end - each.start) for each in parts.values())
    remaining = state.total("remaining")
    return {
        "done": state.is_done,
        "complete": is_complete(state),
        "started": moment(state.started_ms),
        "offsets": total,
        "remaining": remaining,
        "percent": 100.0 if not total else round(100 * (total - remaining) / total, 1),
        "records": state.total("records"),
        "found": state.total("found"),
        "bytes": state.total("bytes"),
        "markers": state.total("markers"),
        "missing": state.total("missing"),
        "not_json": state.total("not_json"),
        "partitions": [_partition(index, each) for index, each in sorted(parts.items())],
        "not_searched": [
            {"partition": index, "start": r.start, "end": r.end, "reason": r.reason}
            for index, each in sorted(parts.items())
            for r in each.not_searched()
        ],
        "sentences": sentences(query, state),
    }


def is_complete(state: SearchProgress) -> bool:
    """Whether every offset of the search was searched, or has no record."""
    return all(
        each.is_done and not each.error and not each.not_searched()
        for each in state.partitions.values()
    )


def _partition(index: int, each: PartitionProgress) -> dict[str, Any]:
    return {
        "partition": index,
        "start": each.start,
        "end": each.end,
        "position": each.position,
        "records": each.records,
        "found": each.found,
        "missing": each.missing,
        "markers": each.markers,
        "not_json": each.not_json,
        "error": each.error,
    }


def sentences(query: Query, state: SearchProgress) -> list[str]:
    """What was not searched, and what bounds the search, for a reader."""
    parts = state.partitions
    found = []
    remaining = state.total("remaining")
    if remaining:
        count = sum(1 for each in parts.values() if each.remaining)
        found.append(f"{_offsets(remaining)} in {_partitions(count)}: not read yet")
    for index, each in sorted(parts.items()):
        if each.error:
            found.append(f"partition {index} cannot be read any further: {each.error}")
    for name, what in (
        ("expired", "deleted before the search came to them"),
        ("undecodable", "in batches that cannot be decoded"),
    ):
        lost = sum(r.size for each in parts.values() for r in getattr(each, name))
        if lost:
            count = sum(1 for each in parts.values() if getattr(each, name))
            found.append(f"{_offsets(lost)} in {_partitions(count)}: {what}")
    found += _counts(query, state)
    found += _bounds(query, state)
    return found


def cut_records(count: int) -> list[str]:
    """A sentence about records of which a part is not in an export."""
    return [f"a part of {count:,} record{'s' * (count != 1)} is left out"] if count else []


def _counts(query: Query, state: SearchProgress) -> list[str]:
    found = []
    if missing := state.total("missing"):
        found.append(f"no record is at {_offsets(missing)}: compaction has removed them")
    if markers := state.total("markers"):
        shown = "are shown" if query.shows_markers else "were not searched"
        found.append(f"control records, at {_offsets(markers)}, {shown}")
    if not_json := state.total("not_json"):
        found.append(f"the condition on JSON cannot hold in {not_json:,} records: no JSON")
    return found


def _bounds(query: Query, state: SearchProgress) -> list[str]:
    found = []
    if isinstance(query.end, AtTime):
        found.append(
            f"each partition is read up to its first record at or after {moment(query.end.wall_ms)}"
            "; with CreateTime, records behind it may be older and were not searched"
        )
    elif query.end is None and query.committed_only:
        found.append("records above the last stable offset were not searched: they are undecided")
    if query.end is None:
        found.append(
            f"records that were written after {moment(state.started_ms)} are not part of the search"
        )
    if query.partitions is not None:
        found.append(f"only partitions {', '.join(map(str, query.partitions))} were searched")
    return found


def _offsets(count: int) -> str:
    return f"{count:,} offset{'s' * (count != 1)}"


def _partitions(count: int) -> str:
    return f"{count} partition{'s' * (count != 1)}"


def neighbours(fields: Mapping[str, str], records: Sequence[FoundRecord]) -> list[dict[str, str]]:
    """For each record the fields of a search that shows it whole, with the records around it."""
    return [
        {
            "topic": fields["topic"],
            "partitions": str(each.partition),
            "from": str(max(0, each.offset - 5)),
            "to": str(each.offset + 6),
            "markers": "1",
        }
        for each in records
    ]
