"""What the group machine is told, what it answers, and what it asks for.

A `ticket` is who waits for an answer: the machine keeps it and hands it back, nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.group.protocols import Protocols
from odradek.model.errors import ErrorCode

Ticket = object
NOT_PROVIDED: Final = "not provided"  # a client's reason, where it gives none
KeyAndValue = tuple[bytes, bytes | None]


class Now(NamedTuple):
    """Both clocks: time-outs go by the one, timestamps by the other."""

    monotonic_ms: int
    wall_ms: int


# ------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A member wants in, or returns for a rebalance."""

    ticket: Ticket
    group_id: str
    member_id: str  # "": it has none yet,
    fresh_member_id: str  # and may have this one
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    knows_member_ids: bool = True  # it can be sent back to come with its id (v4)
    can_skip_assignment: bool = True  # v9
    reason: str = NOT_PROVIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A member asks for its part; the leader brings everybody's."""

    ticket: Ticket
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None  # None: not told, so not checked (before v5)
    protocol: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """One who leaves: by its member id, or a static one by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = NOT_PROVIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Members leave."""

    ticket: Ticket
    group_id: str
    members: Sequence[Leaving]


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a `Store`."""

    store: "Store"
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: `next_deadline_ms` was reached."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """All of the log was replayed."""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Another broker coordinates from now on: whoever waits is sent there."""


Event = Join | Sync | Leave | Stored | Tick | Loaded | Unloaded


# ------------------------------------------------------------------------------ answers


class JoinedMember(NamedTuple):
    """What the leader of a group is told of each member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """To a `Join`."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    """To a `Sync`."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeaveAnswer(NamedTuple):
    """To a `Leave`: of all of them, and of each."""

    error: ErrorCode
    members: tuple[ErrorCode, ...]


Answer = JoinAnswer | SyncAnswer | LeaveAnswer


# ------------------------------------------------------------------------------ effects


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer who waits."""

    ticket: Ticket
    answer: Answer


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write this, and say what became of it (`Stored`)."""

    group_id: str
    records: tuple[KeyAndValue, ...]
    purpose: object  # the machine's own


@dataclass(frozen=True, slots=True)
class Erase:
    """Write these tombstones; nobody waits for them, who leads next can do it again."""

    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Something that an operator may want to read."""

    text: str


Effect = Reply | Store | Erase | Note
