"""The leader's view of one partition: follower progress, the ISR and the high watermark.

    LEO   log end offset: the offset the next record will get
    HW    high watermark: every record below it is on every replica in sync (committed)
    ISR   the followers that had caught up with the leader within `replica.lag.time.max.ms`

The high watermark does not move while the ISR is smaller than `min.insync.replicas`, whatever
the producers' acks: what is not on enough replicas is not shown to anybody (Kafka 3.9).

This is on the way of the data: it is called once for each partition of a produce or fetch
request. So it returns plain numbers, makes no objects, and reads no clock: `now_ms` comes
from the caller, who read it once for the whole request.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Follower:
    """What the leader knows of one follower, from its fetch requests alone."""

    leo: int
    caught_up_ms: int  # the last time at which it had everything the leader had
    fetched_ms: int = 0  # when it last fetched,
    leader_leo_then: int = 0  # and where the leader's log ended at that moment


class LeaderReplica:
    """One partition while this broker leads it, in one leader epoch."""

    __slots__ = (
        "_isr",
        "_isr_min",
        "_lag_ms_max",
        "followers",
        "high_watermark",
        "is_under_min_isr",
        "leo",
    )

    def __init__(
        self,
        *,
        leo: int,
        high_watermark: int,
        followers: dict[int, Follower],
        isr: frozenset[int],
        isr_min: int,
        lag_ms_max: int,
    ) -> None:
        """`isr` and `followers` do not name the leader; `isr_min` counts it."""
        assert 0 <= high_watermark <= leo
        assert isr <= followers.keys(), "the leader itself is implied, not listed"
        self.leo = leo
        self.high_watermark = high_watermark
        self.followers = followers
        self._isr = isr
        self._isr_min = isr_min
        self._lag_ms_max = lag_ms_max
        self._count_isr()

    @property
    def isr(self) -> frozenset[int]:
        """The followers in sync."""
        return self._isr

    def appended(self, leo: int, *, now_ms: int) -> int:
        """The local log grew to `leo`. Returns the high watermark."""
        assert leo >= self.leo, (leo, self.leo)
        self.leo = leo
        if not self.followers:
            self.high_watermark = leo
            return leo
        return self._advance(now_ms)

    def fetched(self, follower: int, *, offset: int, now_ms: int) -> int:
        """A follower asked for `offset`: it has everything before. Returns the HW."""
        progress = self.followers[follower]
        if offset >= self.leo:
            progress.caught_up_ms = now_ms
        elif offset >= progress.leader_leo_then:
            # Under steady appends no fetch ever finds the end. One that reaches the end
            # of the fetch before it was caught up at that moment.
            progress.caught_up_ms = progress.fetched_ms
        progress.leo = offset
        progress.fetched_ms = now_ms
        progress.leader_leo_then = self.leo
        return self._advance(now_ms)

    def fallen_behind(self, now_ms: int) -> frozenset[int]:
        """The in-sync followers that may not be called so any longer."""
        return frozenset(
            follower
            for follower in self._isr
            if self.followers[follower].leo < self.leo
            and now_ms - self.followers[follower].caught_up_ms > self._lag_ms_max
        )

    def isr_stored(self, isr: frozenset[int], *, now_ms: int) -> int:
        """The store accepted a new ISR. Returns the HW: a smaller ISR may raise it."""
        assert isr <= self.followers.keys(), isr
        self._isr = isr
        self._count_isr()
        return self._advance(now_ms)

    def isr_min_changed(self, isr_min: int, *, now_ms: int) -> int:
        """`min.insync.replicas` is another one. Returns the HW: a smaller one may raise it."""
        self._isr_min = isr_min
        self._count_isr()
        return self._advance(now_ms)

    def _count_isr(self) -> None:
        # Too few for acks=all? No topic needs more in sync than it has replicas.
        self.is_under_min_isr = len(self._isr) + 1 < min(self._isr_min, len(self.followers) + 1)

    def _advance(self, now_ms: int) -> int:
        if self.is_under_min_isr:
            return self.high_watermark
        committed = self.leo
        for follower, progress in self.followers.items():
            if progress.leo < committed and (
                # One that has caught up holds the HW even before it is in the ISR:
                # otherwise the HW would run away from it and it could never join.
                follower in self._isr or now_ms - progress.caught_up_ms <= self._lag_ms_max
            ):
                committed = progress.leo
        # A follower may restart without its tail; that un-commits nothing.
        self.high_watermark = max(self.high_watermark, committed)
        return self.high_watermark
