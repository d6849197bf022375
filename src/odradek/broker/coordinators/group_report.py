"""What the coordinator reports of its groups: members, who has not joined, the last rebalance."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from odradek.broker.coordinators.group_shell import GroupShell
from odradek.group.group import Group, GroupState, Member
from odradek.group.protocols import CONSUMER_PROTOCOL, subscribed_topics
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ErrorCode

GROUPS_MAX: Final = 1_000
MEMBERS_MAX: Final = 1_000


def groups_report(shell: GroupShell) -> Iterator[Mapping[str, Any]]:
    """A summary of each group that is coordinated here."""
    monotonic_ms = shell.now().monotonic_ms
    groups = [group for each in shell.topic.serving for group in each.machine.groups.values()]
    return (_summary(group, monotonic_ms) for group in groups[:GROUPS_MAX])


def group_report(shell: GroupShell, group_id: str) -> Mapping[str, Any]:
    """One group with its members.

    `is_here` is false if this broker cannot answer as the group's coordinator; `why` is then the
    error: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or INVALID_GROUP_ID.
    """
    coordinator = shell.find(group_id)
    if isinstance(coordinator, ErrorCode):
        return {"group": group_id, "is_here": False, "why": coordinator.name}
    group = coordinator.machine.groups.get(group_id)
    if group is None:
        return {"group": group_id, "is_here": True, "exists": False}
    monotonic_ms = shell.now().monotonic_ms
    members = islice(group.members.values(), MEMBERS_MAX)
    return {
        "is_here": True,
        "exists": True,
        **_summary(group, monotonic_ms),
        "coordinator_partition": str(coordinator.partition.topic_partition),
        "protocol": group.protocol,
        "leader": group.leader,
        "members": [_member(group, member, monotonic_ms) for member in members],
    }


def _summary(group: Group, monotonic_ms: MonotonicMs) -> Mapping[str, Any]:
    joining = group.joining
    awaited: list[str] = []
    deadline_ms = None
    if joining is not None and not joining.is_initial:
        awaited = [id_ for id_, member in group.members.items() if member.join_request is None]
        deadline_ms = joining.deadline_ms
    elif group.state is GroupState.COMPLETING_REBALANCE:
        awaited = sorted(group.pending_syncs)
        deadline_ms = group.sync_deadline_ms
    commits = [committed.commit_timestamp_ms for committed in group.offsets.committed.values()]
    return {
        "group": group.group_id,
        "state": group.state.value,
        "since_ms": group.state_timestamp_ms,
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "member_count": len(group.members),
        "rebalance_reason": group.rebalance_reason,
        "rebalance_ms": group.rebalance_ms,
        "awaited": awaited[:MEMBERS_MAX],
        "awaited_for_ms": None if deadline_ms is None else max(0, deadline_ms - monotonic_ms),
        "last_commit_ms": max(commits, default=None),
    }


def _member(group: Group, member: Member, monotonic_ms: MonotonicMs) -> Mapping[str, Any]:
    topics = None
    if group.protocol_type == CONSUMER_PROTOCOL and member.protocols:
        topics = subscribed_topics([member.protocols[0][1]])
    silent_ms = None
    if not member.is_new and not member.is_waiting:
        silent_ms = monotonic_ms - (member.deadline_ms - member.session_timeout_ms)
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "strategies": [name for name, _ in member.protocols],
        "topics": None if topics is None else sorted(topics),
        "assignment": member.assignment.hex(),
        "session_timeout_ms": member.session_timeout_ms,
        "silent_ms": silent_ms,
        "waits": "JoinGroup"
        if member.join_request
        else "SyncGroup"
        if member.sync_request
        else None,
    }
