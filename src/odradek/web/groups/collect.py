"""Collects what the pages of groups show, for `odradek.web.facts.poller`.

The history of all groups is shared by both pages, and lives as long as the application. The
timestamp of a record at a committed offset is read once; it is asked for only where the samples of
the end offset do not go back far enough, and for the largest lags only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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

_RECORDS_READ_MAX: Final = 10  # in one observation
_SHARE_MAX: Final = 0.1
GROUPS: Final = FactKey("groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsView:
    """All groups, the largest lag first; `unobserved` says why some are missing."""

    problem: str | None = None
    groups: tuple[Mapping[str, Any], ...] | None = None
    unobserved: Mapping[str, str] | None = None


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
        found = await observe_groups(await source.cluster())
        self._history.keep_only([*(each.group_id for each in found.groups), *found.unobserved])
        for group in found.groups:
            self._history.observe(group)
        rows = [view.summary(each, self._history) for each in found.groups]
        rows.sort(key=lambda row: (-(row["lag"] or 0), row["group"]))
        return GroupsView(groups=tuple(rows), unobserved=found.unobserved)

    async def _group(self, source: Source, name: str, _before: object) -> GroupView:
        cluster = await source.cluster()
        group = await observe_group(cluster, name)
        self._history.observe(group)
        records = await self._next_records(cluster, group)
        return GroupView(
            name=name,
            group=view.details(group, self._history, records),
            picture=assignment_svg(group),
        )

    async def _next_records(
        self, cluster: Cluster, group: ObservedGroup
    ) -> dict[TopicPartition, NextRecord]:
        """The records at the committed offsets whose time the samples do not show."""
        wanted = [
            each
            for each in group.partitions
            if lag_time(each, self._history.ends(each.partition), group.wall_ms).source
            is LagSource.UNKNOWN
        ]
        known: dict[TopicPartition, NextRecord] = {}
        missing = []
        for each in sorted(wanted, key=lambda each: -(each.lag or 0)):
            read = self._records.get((group.group_id, each.partition))
            if read is not None and read[0] == each.committed:
                known[each.partition] = read[1]
            else:
                missing.append(each)
        missing = missing[:_RECORDS_READ_MAX]
        found = await next_records(cluster, missing)
        kept = {
            key: value for key, value in self._records.items() if key[0] != group.group_id
        }  # fmt: skip
        offsets = {each.partition: each.committed or 0 for each in wanted}
        known |= found
        self._records = kept | {
            (group.group_id, partition): (offsets[partition], record)
            for partition, record in known.items()
        }
        return known


def groups_view(facts: Facts) -> GroupsView:
    """The list of groups as it was collected last."""
    found = facts.get(GROUPS)
    if found is None:
        return GroupsView()
    value: GroupsView = found.value or GroupsView()
    return GroupsView(problem=found.problem, groups=value.groups, unobserved=value.unobserved)


def group_view(facts: Facts, name: str) -> GroupView:
    """One group as it was collected last."""
    found = facts.get(FactKey("group", name))
    if found is None or found.value is None:
        return GroupView(name=name, problem=found.problem if found else None)
    value: GroupView = found.value
    return GroupView(name=name, problem=found.problem, group=value.group, picture=value.picture)
