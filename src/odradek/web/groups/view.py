"""The values that the pages of groups show, as JSON has them. Pure."""

from collections.abc import Mapping
from typing import Any

from odradek.model.partition import TopicPartition
from odradek.plan.quantities import span_text
from odradek.web.groups.facts import NextRecord
from odradek.web.groups.history import GroupHistory
from odradek.web.groups.lag import LagSource, LagTime, lag_time
from odradek.web.groups.picture import level
from odradek.web.groups.values import ObservedGroup, PartitionLag
from odradek.web.messages.content import moment

Records = Mapping[TopicPartition, NextRecord]


def summary(
    group: ObservedGroup, history: GroupHistory, records: Records | None = None
) -> dict[str, Any]:
    """One row of the list of groups."""
    slowest = _slowest(list(_times(group, history, records or {}).values()))
    trend = history.trend(group.group_id)
    return {
        "group": group.group_id,
        "state": group.state,
        "members": len(group.members),
        "coordinator": group.coordinator[0],
        "lag": group.lag,
        "lag_level": level(group.lag),
        "lag_seconds": slowest.seconds,
        "lag_time": _shown(slowest),
        "trend": trend.direction,
        "trend_text": trend.text,
        "unknown": group.unknown,
    }


def details(
    group: ObservedGroup, history: GroupHistory, records: Records | None = None
) -> dict[str, Any]:
    """One group with everything that is known about it."""
    times = _times(group, history, records or {})
    trend = history.trend(group.group_id)
    broker, host, port = group.coordinator
    return {
        **summary(group, history, records),
        "exists": group.state != "Dead",
        "observed": moment(group.wall_ms),
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": {"broker": broker, "host": host, "port": port},
        "members": [_member(group, index) for index in range(len(group.members))],
        "partitions": [
            _partition(each, times[each.partition]) for each in sorted(group.partitions, key=_key)
        ],
        "trend_rates": {
            "lag": round(trend.rate, 2),
            "consumed": round(trend.consumed, 2),
            "produced": round(trend.produced, 2),
            "caught_up_s": trend.caught_up_s,
            "over_s": trend.over_s,
        },
        "lags": [[each.wall_ms, each.lag] for each in history.lags(group.group_id)],
        "generation": group.rebalance.generation if group.rebalance is not None else None,
        "since": moment(group.rebalance.since_ms) if group.rebalance is not None else "",
        "rebalances": [
            {
                "time": moment(each.at_ms),
                "text": each.text,
                "source": each.source.value,
                "generation": each.generation,
            }
            for each in history.rebalances(group.group_id)
        ],
        "history_text": _history_text(group),
    }


def _key(lag: PartitionLag) -> tuple[int, TopicPartition]:
    """The largest lag first."""
    return -(lag.lag or 0), lag.partition


def _times(
    group: ObservedGroup, history: GroupHistory, records: Records
) -> dict[TopicPartition, LagTime]:
    times = {}
    for each in group.partitions:
        record = records.get(each.partition)
        times[each.partition] = lag_time(
            each,
            history.ends(each.partition),
            group.wall_ms,
            record_ms=None if record is None else record.timestamp_ms,
            is_append_time=record is not None and record.is_append_time,
        )
    return times


def _slowest(times: list[LagTime]) -> LagTime:
    """The largest lag; not known if that of a partition with a committed offset is not."""
    for each in times:
        if each.source is LagSource.UNKNOWN:
            return each
    known = [each for each in times if each.seconds is not None]
    if not known:
        return LagTime(None, LagSource.UNCOMMITTED, "no offset is committed")
    return max(known, key=lambda each: each.seconds or 0.0)


def _shown(time: LagTime) -> dict[str, Any]:
    text = "not known" if time.seconds is None else span_text(time.seconds)
    return {"text": text, "source": time.source.value, "why": time.text}


def _member(group: ObservedGroup, index: int) -> dict[str, Any]:
    member = group.members[index]
    owned = [each for each in group.partitions if each.member == member.member_id]
    known = [each.lag for each in owned if each.lag is not None]
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "silent_ms": member.silent_ms,
        "partitions": [str(each) for each in sorted(member.partitions)],
        "lag": sum(known) if known else None,
    }


def _partition(lag: PartitionLag, time: LagTime) -> dict[str, Any]:
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed_offset": lag.committed,
        "metadata": lag.metadata,
        "log_start_offset": lag.log_start,
        "high_watermark": lag.end,
        "last_stable_offset": lag.stable,
        "lag": lag.lag,
        "lag_level": level(lag.lag),
        "lag_seconds": time.seconds,
        "lag_time": _shown(time),
        "lost": lag.lost,
        "held_back": lag.committed is not None and lag.committed == lag.stable and bool(lag.lag),
        "member": lag.member,
        "error": lag.error,
    }


def _history_text(group: ObservedGroup) -> str:
    if group.rebalance is not None:
        return "The coordinator reports its last rebalance; earlier ones were seen by this page."
    return (
        "Kafka does not report rebalances: these are differences between two polls of this page, "
        "and a rebalance between two polls that changes nothing is not seen."
    )
