"""Past problems of this broker: refused clients, errors, failed directories, lost records.

They are kept in memory, with a limit, for `odradek why` and `odradek doctor`
(`odradek.broker.reports`). The log has them, too, but a tool on another host cannot read it.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.broker.error_counts import ErrorCounts
from odradek.log.repair.cuts import CutKind, LogCut
from odradek.model.clock import WallMs

REFUSALS_MAX: Final = 64
REFUSALS_OF_A_CLIENT_MAX: Final = 8
CUTS_MAX: Final = 256  # the newest; all are counted
_TEXT_MAX: Final = 200
_logger: Final = logging.getLogger(__name__)


class Lacks(NamedTuple):
    """The permission that a client lacks: names as in an ACL."""

    principal: str
    operation: str
    resource_type: str
    name: str
    is_denied: bool  # by an ACL; otherwise no ACL allows it


class Client(NamedTuple):
    """A client that was refused, and what was refused."""

    what: str
    host: str
    client_id: str
    software: str
    lacks: Lacks | None = None


@dataclass(slots=True)
class Count:
    """How often something happened, the first time and the last time (wall clock)."""

    first_ms: int
    last_ms: int
    count: int = 1


class CutRecords:
    """What was cut from the logs of one broker since its start."""

    def __init__(self, wall_ms: Callable[[], WallMs]) -> None:
        self._wall_ms = wall_ms
        self._kept: deque[tuple[WallMs, LogCut]] = deque(maxlen=CUTS_MAX)
        self.counts: Counter[CutKind] = Counter(dict.fromkeys(CutKind, 0))
        self.size_bytes: Counter[CutKind] = Counter(dict.fromkeys(CutKind, 0))

    def note(self, cut: LogCut) -> None:
        """Log a cut as a WARNING, count it and keep it."""
        _logger.warning("%s", cut)
        self.counts[cut.kind] += 1
        self.size_bytes[cut.kind] += cut.size_bytes
        self._kept.append((self._wall_ms(), cut))

    def as_json(self) -> list[Mapping[str, Any]]:
        """The cuts that are kept, the oldest first."""
        return [
            {
                "at_ms": at_ms,
                "topic": cut.partition.topic,
                "partition": cut.partition.partition,
                "kind": cut.kind.value,
                "path": cut.directory,
                "offset": cut.offset,
                "end_offset": cut.end_offset,
                "bytes": cut.size_bytes,
                "high_watermark": cut.high_watermark,
                "has_committed": cut.has_committed,
                "span": cut.span,
                "why": cut.reason,
            }
            for at_ms, cut in self._kept
        ]


class Incidents:
    """The past problems of one broker, since its start."""

    def __init__(self, wall_ms: Callable[[], WallMs]) -> None:
        self._wall_ms = wall_ms
        self.began_ms = wall_ms()
        self.refusals: dict[Client, Count] = {}  # the latest one is at the end
        self.counts = ErrorCounts(wall_ms)
        self.cuts = CutRecords(wall_ms)
        self.failed_directories: dict[str, tuple[int, str]] = {}  # since when, why
        # Of each log directory: since when its disk is full to this percentage or more.
        self.full_since: dict[str, dict[int, WallMs]] = {}

    def refused(
        self,
        what: str,
        *,
        host: str,
        client_id: str | None,
        software: str,
        lacks: Lacks | None = None,
    ) -> None:
        """Record a refused request. Above the limits, the refusal that is oldest is dropped.

        The limit of one client leaves room for those of others: it may be refused for each of a
        thousand topics.
        """
        client = Client(
            what[:_TEXT_MAX],
            host,
            (client_id or "")[:_TEXT_MAX],
            software[:_TEXT_MAX],
            lacks and lacks._replace(name=lacks.name[:_TEXT_MAX]),
        )
        wall_ms = self._wall_ms()
        known = self.refusals.pop(client, None)
        if known is None:
            known = Count(wall_ms, wall_ms)
            self._make_room(client)
        else:
            known.last_ms, known.count = wall_ms, known.count + 1
        self.refusals[client] = known

    def _make_room(self, client: Client) -> None:
        own = [
            kept
            for kept in self.refusals
            if (kept.host, kept.client_id) == (client.host, client.client_id)
        ]
        if len(own) >= REFUSALS_OF_A_CLIENT_MAX:
            del self.refusals[own[0]]
        elif len(self.refusals) >= REFUSALS_MAX:
            del self.refusals[next(iter(self.refusals))]

    def directory_failed(self, path: str, why: str) -> None:
        """Record that a log directory is offline from now on."""
        self.failed_directories.setdefault(path, (self._wall_ms(), why))

    def disks_sampled(self, spaces: Iterable[tuple[str, int, int]]) -> None:
        """Record how full disks are now: path, total bytes, usable bytes."""
        wall_ms = self._wall_ms()
        for path, total, usable in spaces:
            percent = 100 * (total - usable) // total if total else 0
            since = self.full_since.setdefault(path, {})
            for reached in range(percent + 1):
                since.setdefault(reached, wall_ms)
            for left in range(percent + 1, 101):
                since.pop(left, None)

    def as_json(self) -> list[Mapping[str, Any]]:
        """The refusals, the newest first."""
        return [
            {
                **client._asdict(),
                "lacks": client.lacks._asdict() if client.lacks else None,
                "count": c.count,
                "first_ms": c.first_ms,
                "last_ms": c.last_ms,
            }
            for client, c in reversed(self.refusals.items())
        ]
