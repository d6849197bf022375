"""The writing route of groups: new committed offsets, with a dry run.

    POST /groups/NAME     scenario: to-earliest, to-latest, to-current, to-offset, shift-by,
                          by-duration, to-datetime
                          value: of the last four
                          topics: "" (all with a committed offset), or orders:0,1 payments
                          execute: 1; without it nothing is committed

The answer has for each partition the committed offset, the new one, and why it differs from what
was asked for. Only a group without members can be reset, as with `kafka-consumer-groups`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import odradek.client.admin.groups as admin_groups
from odradek.client.admin.offset_reset import (
    RESETTABLE,
    NewOffsets,
    Scenario,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffsets,
    ToTime,
    duration_ms,
    new_offsets,
)
from odradek.client.cluster import Cluster
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.model.clock import WallMs
from odradek.model.command import flag
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.web.guard import form_of, writes
from odradek.web.rendering import plain
from odradek.web.workspace import workspace

SCENARIOS: Final = (
    "to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "by-duration", "to-datetime",
)  # fmt: skip
_OFFSET_MAX: Final = (1 << 63) - 1


class ResetError(OdradekError):
    """A field of the form is invalid, or the group cannot be reset."""


def read_topics(text: str) -> dict[str, tuple[int, ...] | None]:
    """The topics of `orders:0,1 payments`, with their partitions, or (None) all of them.

    Raises:
        ResetError: a partition is not a number.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    for part in text.split():
        name, colon, numbers = part.partition(":")
        indexes = numbers.split(",") if colon else []
        if not name or not all(each.isascii() and each.isdecimal() for each in indexes):
            raise ResetError(f"topics: {part!r} is not a topic such as orders or orders:0,1")
        found[name] = tuple(map(int, indexes)) if colon else None
    return found


def read_scenario(
    fields: Mapping[str, str], partitions: list[TopicPartition], wall_ms: WallMs
) -> Scenario:
    """What the offsets are reset to.

    Raises:
        ResetError: the scenario is not one of `SCENARIOS`, or its value is invalid.
    """
    name, value = fields.get("scenario", "").strip(), fields.get("value", "").strip()
    if (scenario := _WITHOUT_VALUE.get(name)) is not None:
        return scenario
    match name:
        case "to-offset":
            return ToOffsets(dict.fromkeys(partitions, _integer(value, least=0)))
        case "shift-by":
            return ShiftBy(_integer(value, least=-_OFFSET_MAX))
        case "by-duration":
            return ToTime(WallMs(wall_ms - _duration_ms(value)))
        case "to-datetime":
            return ToTime(WallMs(_moment_ms(value)))
        case _:
            raise ResetError(f"scenario: {name!r} is not one of {', '.join(SCENARIOS)}")


_WITHOUT_VALUE: Final[Mapping[str, Scenario]] = {
    "to-earliest": ToEarliest(),
    "to-latest": ToLatest(),
    "to-current": ToCurrent(),
}


def _integer(text: str, *, least: int) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 19:
        raise ResetError(f"value: {text!r} is not a number")
    if not least <= int(text) <= _OFFSET_MAX:
        raise ResetError(f"value: {text} is out of bounds")
    return int(text)


def _duration_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError:
        raise ResetError(f"value: {text!r} is not a duration such as PT1H30M or P2D") from None


def _moment_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ResetError(f"value: {text!r} is not a time such as 2026-01-31T12:00") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def chosen(
    topics: Mapping[str, tuple[int, ...] | None],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    there: Mapping[str, list[TopicPartition]],
) -> list[TopicPartition]:
    """The partitions to reset: those with a committed offset, or of the named topics.

    Raises:
        ResetError: there is no such topic or partition, or nothing to reset.
    """
    if not topics:
        if not committed:
            raise ResetError("topics: the group has no committed offsets; name the topics")
        return sorted(committed)
    found: list[TopicPartition] = []
    for topic, indexes in topics.items():
        if not there.get(topic):
            raise ResetError(f"topics: there is no topic {topic!r}")
        if indexes is None:
            found += there[topic]
            continue
        for index in indexes:
            partition = TopicPartition(topic, index)
            if partition not in there[topic]:
                raise ResetError(f"topics: there is no partition {partition}")
            found.append(partition)
    return sorted(set(found))


def tool_arguments(group: str, fields: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments with which `kafka-consumer-groups` does the same."""
    scenario, value = fields.get("scenario", "").strip(), fields.get("value", "").strip()
    topics = fields.get("topics", "").split()
    where = [word for each in topics for word in flag("--topic", each)] or ["--all-topics"]
    if scenario == "to-datetime" and value:
        at = datetime.fromtimestamp(_moment_ms(value) / 1000, UTC)
        value = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}"
    name = f"--{scenario}"
    to = flag(name, value) if value and scenario in SCENARIOS[3:] else (name,)
    action = "--execute" if fields.get("execute") == "1" else "--dry-run"
    return ("--reset-offsets", *flag("--group", group), *where, *to, action)


def reset_rows(
    new: NewOffsets, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[dict[str, Any]]:
    """One row for each partition: from which offset to which, and what differs from the request."""
    rows = []
    for partition, offset in sorted(new.offsets.items()):
        before = committed.get(partition)
        note = ""
        if partition in new.limited:
            wanted = new.limited[partition]
            bound = "the end offset" if wanted > offset else "the log start offset"
            note = f"{wanted} is out of bounds: {bound} is taken"
        elif partition in new.without_record:
            note = "there is no record at or after that time: the end offset is taken"
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed_offset": None if before is None else before.offset,
                "new_offset": offset,
                "shift": None if before is None else offset - before.offset,
                "note": note,
            }
        )
    return rows


async def reset(
    cluster: Cluster, group: str, fields: Mapping[str, str]
) -> tuple[list[dict[str, Any]], bool]:
    """The rows of `reset_rows`, and whether the offsets were committed.

    Raises:
        ResetError, NoCommittedOffsetError: the form is invalid, or the group has members.
        ApiError, ConnectionError: the cluster refuses, or does not answer.
    """
    state = (await admin_groups.describe_group(cluster, group)).state
    executes = fields.get("execute") == "1"
    if executes and state not in RESETTABLE:
        raise ResetError(
            f"the group is {state}: stop its members first; offsets of a group with members "
            "cannot be set"
        )
    topics = read_topics(fields.get("topics", ""))
    committed = await admin_groups.committed_offsets(cluster, group)
    if topics:
        await cluster.refresh(sorted(topics))
    there = {name: cluster.metadata.partitions(name) for name in topics}
    partitions = chosen(topics, committed, there)
    scenario = read_scenario(fields, partitions, real_wall_ms())
    new = await new_offsets(cluster, group, partitions, scenario)
    if executes:
        outcomes = await admin_groups.commit_offsets(cluster, group, new.offsets)
        failed = {p: error for p, error in outcomes.items() if error is not None}
        for partition, error in sorted(failed.items()):
            raise ResetError(f"{partition}: {error}; {len(failed)} of {len(outcomes)} failed")
    return reset_rows(new, committed), executes


@writes
async def reset_offsets(request: Request) -> Response:
    """POST /groups/NAME: new committed offsets; a dry run unless `execute` is 1."""
    group = request.path_params["group"]
    fields = await form_of(request)
    source = workspace(request).source
    try:
        rows, was_executed = await reset(await source.cluster(), group, fields)
    except OdradekError as error:
        raise HTTPException(400, str(error)) from None
    except ConnectionError as error:
        raise HTTPException(503, str(error)) from None
    lines = [
        f"{row['topic']}-{row['partition']}: "
        f"{'none' if row['committed_offset'] is None else row['committed_offset']} -> "
        f"{row['new_offset']}{' (' + row['note'] + ')' if row['note'] else ''}"
        for row in rows
    ]
    head = "committed" if was_executed else "dry run, nothing is committed"
    command = source.caller().kafka("kafka-consumer-groups", *tool_arguments(group, fields))
    return JSONResponse(
        {
            "says": "\n".join([head, *lines, str(command)]),
            "executed": was_executed,
            "offsets": rows,
            "command": plain(command),
        }
    )


ROUTES: Final = [Route("/groups/{group:path}", reset_offsets, methods=["POST"])]
