"""A follower's fetches that fail: since when and why, and when that is logged.

A leader election, or a connection that is made again, takes moments, and its errors are over when
they could be read. What lasts is logged once, and again when it is over.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from odradek.model.clock import MonotonicMs
from odradek.model.partition import TopicPartition

LASTING_MS: Final = 10_000

# A partition; None: all partitions that are fetched from this leader.
Subject = TopicPartition | None


@dataclass(slots=True)
class Failure:
    """The failures of one subject since its last progress."""

    since_ms: MonotonicMs  # the first one
    reason: str  # of the last one
    is_logged: bool = False


class FetchFailures:
    """The failures of the fetches from one leader, by partition."""

    def __init__(self) -> None:
        self._current: dict[Subject, Failure] = {}

    def __len__(self) -> int:
        return len(self._current)

    def failed(self, subject: Subject, reason: str, at_ms: MonotonicMs) -> None:
        """A fetch failed, or was answered without getting any further."""
        failure = self._current.get(subject)
        if failure is None:
            self._current[subject] = Failure(at_ms, reason)
        else:
            failure.reason = reason

    def ended(self, subject: Subject) -> Failure | None:
        """The failure that is over now; None if there was none."""
        return self._current.pop(subject, None)

    def __iter__(self) -> Iterator[tuple[Subject, Failure]]:
        return iter(self._current.items())

    def to_log(self, at_ms: MonotonicMs) -> dict[str, list[tuple[Subject, Failure]]]:
        """The lasting failures that were not logged yet, by reason; they count as logged now."""
        found: dict[str, list[tuple[Subject, Failure]]] = defaultdict(list)
        for subject, failure in self._current.items():
            if not failure.is_logged and at_ms - failure.since_ms >= LASTING_MS:
                failure.is_logged = True
                found[failure.reason].append((subject, failure))
        return found
