"""The fetches from one leader that fail, with the lines in the log that say so."""

import logging
from typing import Final

from odradek.model.clock import Clock, MonotonicMs
from odradek.replica.failures import FetchFailures, Subject

log = logging.getLogger(__name__)

_NAMED: Final = 3  # partitions in a line


class LoggedFailures(FetchFailures):
    """What lasts is a WARNING, once; its end is an INFO."""

    def __init__(self, leader: str, clock: Clock) -> None:
        """`leader` is the leader's name in the log."""
        super().__init__()
        self._leader = leader
        self._clock = clock

    def failed(self, subject: Subject, reason: str, at_ms: MonotonicMs | None = None) -> None:
        """A fetch failed now, or at `at_ms`."""
        super().failed(subject, reason, self._clock.monotonic_ms() if at_ms is None else at_ms)

    def progressed(self, subject: Subject) -> None:
        """A fetch was answered."""
        failure = self.ended(subject)
        if failure is not None and failure.is_logged:
            log.info(
                "%s: replication from %s makes progress again, after %d s (%s)",
                "all partitions" if subject is None else subject,
                self._leader,
                (self._clock.monotonic_ms() - failure.since_ms) // 1000,
                failure.reason,
            )

    def log_lasting(self) -> None:
        """Log what has lasted for long enough; to be called about twice a second."""
        monotonic_ms = self._clock.monotonic_ms()
        for reason, found in self.to_log(monotonic_ms).items():
            names = [str(subject) for subject, _ in found if subject is not None]
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            log.warning(
                "%s%s: replication from %s has made no progress for %d s: %s; it is tried again, "
                "and a line follows if it succeeds",
                ", ".join(names[:_NAMED]) or "all partitions",
                more,
                self._leader,
                max(monotonic_ms - failure.since_ms for _, failure in found) // 1000,
                reason,
            )
