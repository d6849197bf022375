"""Collects what the pages of groups show, for `odradek.web.facts.poller`.

The history of all groups is shared by both pages, and lives as long as the application. The
timestamp of a record at a committed offset is read once; it is asked for only where the samples of
the end offset do not go back far enough, and for a few partitions at a time, the largest lags
first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from odradek.client.cluster import Cluster
from odradek.model.partition import TopicPartition
from odradek.web.facts.poller import FactKey, FactKind, Facts
from odradek.web.facts.source import Source
from odradek.web.groups import view
from odradek.web.groups.facts import (
    NextRecord,
    next_records,
    observe_group,
    observe_groups,
)
from odradek.web.groups.history import GroupHistory
from odradek.web.groups.lag import LagSource, lag_time
from odradek.web.groups.picture import assignment_svg
from odradek.web.groups.values import ObservedGroup
from odradek.web.lanes.drawing import SvgText
from odradek.web.paging import PAGE_ROWS, rows_of

_RECORDS_READ_MAX: Final = 10  # in one observation
_SHARE_MAX: Final = 0.1
GROUPS: Final = FactKey("groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsView:
    """Groups, the largest lag first; `unobserved` says why some are missing.

    `groups` are those of one page of the list, `found` is the number of those that match.
    """

    problem: str | None = None
    groups: tuple[Mapping[str, Any], ...] | None = None
    unobserved: Mapping[str, str] | None = None
    found: int = 0
    page: int = 1
    pages: int = 1
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group; the picture is not part of the JSON."""

    name: str
    problem: str | None = None
    group: Mapping[str, Any] | None = None
    picture: SvgText | None = None


class GroupCollector:
    """The collectors of one application, with the history that they share."""

    def __init__(self) -> None:
        self._history = GroupHistory()
        self._records: dict[tuple[str, TopicPartition], tuple[int, NextRecord]] = {}

    def kinds(self) -> dict[str, FactKind]:
        """The kinds of facts that are collected here."""
        return {
            "groups": FactKind(self._groups, share_max=_SHARE_MAX),
            "group": FactKind(self._group, share_max=_SHARE_MAX),
        }

    async def _groups(self, source: Source, _argument: str, _before: object) -> GroupsView:
        cluster = await source.cluster()
        found = await observe_groups(cluster)
        self._history.keep_only([*(each.group_id for each in found.groups), *found.unobserved])
        for group in found.groups:
            self._history.observe(group)
        names = {group.group_id for group in found.groups}
        self._records = {key: value for key, value in self._records.items() if key[0] in names}
        records = await self._next_records(cluster, found.groups)
        rows = [
            view.summary(each, self._history, records.get(each.group_id)) for each in found.groups
        ]
        rows.sort(key=lambda row: (-(row["lag"] or 0), row["group"]))
        return GroupsView(groups=tuple(rows), unobserved=found.unobserved)

    async def _group(self, source: Source, name: str, _before: object) -> GroupView:
        cluster = await source.cluster()
        group = await observe_group(cluster, name)
        self._history.observe(group)
        records = (await self._next_records(cluster, [group])).get(name)
        return GroupView(
            name=name,
            group=view.details(group, self._history, records),
            picture=assignment_svg(group),
        )

    async def _next_records(
        self, cluster: Cluster, groups: Sequence[ObservedGroup]
    ) -> dict[str, dict[TopicPartition, NextRecord]]:
        """By group: the records at committed offsets whose time the samples do not show."""
        wanted = [
            (group.group_id, each)
            for group in groups
            for each in group.partitions
            if lag_time(each, self._history.ends(each.partition), group.wall_ms).source
            is LagSource.UNKNOWN
        ]
        kept: dict[tuple[str, TopicPartition], tuple[int, NextRecord]] = {}
        missing = []
        for name, each in sorted(wanted, key=lambda pair: -(pair[1].lag or 0)):
            read = self._records.get((name, each.partition))
            if read is not None and read[0] == each.committed:
                kept[name, each.partition] = read
            else:
                missing.append((name, each))
        for name, each in missing[:_RECORDS_READ_MAX]:
            for partition, record in (await next_records(cluster, [each])).items():
                kept[name, partition] = (each.committed or 0, record)
        names = {group.group_id for group in groups}
        others = {key: value for key, value in self._records.items() if key[0] not in names}
        self._records = others | kept
        found: dict[str, dict[TopicPartition, NextRecord]] = {}
        for (name, partition), (_, record) in kept.items():
            found.setdefault(name, {})[partition] = record
        return found


def groups_view(facts: Facts, name: str = "", page: int = 1, limit: int = PAGE_ROWS) -> GroupsView:
    """A page of the groups with this text in their names, as they were collected last."""
    collected = facts.get(GROUPS)
    if collected is None:
        return GroupsView()
    value: GroupsView = collected.value or GroupsView()
    if value.groups is None:
        return replace(value, problem=collected.problem)
    found = [group for group in value.groups if name.lower() in group["group"].lower()]
    rows = rows_of(found, page, limit)
    return replace(
        value,
        problem=collected.problem,
        groups=rows.shown,
        found=len(found),
        page=rows.page,
        pages=rows.pages,
        name=name,
    )


def group_view(facts: Facts, name: str) -> GroupView:
    """One group as it was collected last."""
    found = facts.get(FactKey("group", name))
    if found is None or found.value is None:
        return GroupView(name=name, problem=found.problem if found else None)
    value: GroupView = found.value
    return GroupView(name=name, problem=found.problem, group=value.group, picture=value.picture)
