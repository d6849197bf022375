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

from odradek.replica.isr import Isr, may_join


@dataclass(slots=True)
class Follower:
    """What the leader knows of one follower, from its fetch requests alone."""

    leo: int
    caught_up_ms: int  # the last time at which it had everything the leader had
    fetched_ms: int = 0  # when it last fetched,
    leader_leo_then: int = 0  # and where the leader's log ended at that moment
    broker_epoch: int = -1  # the life in which it fetches
    log_start_offset: int = -1  # as it said last


class LeaderReplica:
    """One partition while this broker leads it, in one leader epoch."""

    __slots__ = (
        "_isr_min",
        "_lag_ms_max",
        "_maximal",
        "_refused",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "is_under_min_isr",
        "isr",
        "leo",
        "live",
    )

    def __init__(  # noqa: PLR0913 - what a reign begins with
        self,
        *,
        leo: int,
        high_watermark: int,
        followers: dict[int, Follower],
        isr: Isr,
        isr_min: int,
        lag_ms_max: int,
        epoch_start_offset: int = 0,
        live: frozenset[int] | None = None,
    ) -> None:
        """`isr` names the leader too, `followers` do not; `isr_min` counts it.

        `live` are the brokers that are registered; None: every follower's is.
        """
        assert 0 <= high_watermark <= leo
        self.leo = (
            leo  # up to where this replica counts: behind its log's end while that is flushed
        )
        self.high_watermark = high_watermark
        self.followers = followers
        self.isr = isr
        self.live = frozenset(followers) if live is None else live
        self.epoch_start_offset = epoch_start_offset  # where this reign began to write
        self._isr_min = isr_min
        self._lag_ms_max = lag_ms_max
        self._refused = frozenset[int]()  # whom the controller did not let join when last asked
        self._count_isr()

    # ----------------------------------------------------------------- the way of the data

    def appended(self, leo: int, *, now_ms: int) -> int:
        """The local log grew, and counts up to `leo`. Returns the high watermark."""
        assert leo >= self.leo, (leo, self.leo)
        if not self.followers:
            self.leo = self.high_watermark = leo
            return leo
        for follower, progress in self.followers.items():
            if progress.leo >= self.leo and follower in self._maximal:
                # It had everything until now. An idle follower is not heard of while nothing
                # happens (fetch sessions), so this is when its lag begins to count.
                progress.caught_up_ms = now_ms
        self.leo = leo
        return self._advance(now_ms)

    def fetched(self, follower: int, *, offset: int, now_ms: int, broker_epoch: int = -1) -> int:
        """A follower asked for `offset`: it has everything before. Returns the HW."""
        progress = self.followers[follower]
        if -1 < broker_epoch < progress.broker_epoch:
            return self.high_watermark  # of a life that is over, and late (KAFKA-15221)
        progress.broker_epoch = broker_epoch
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

    def low_watermark(self, log_start_offset: int) -> int:
        """Below it no replica that is there has anything; -1 while one has not said.

        `log_start_offset` is the leader's own.
        """
        starts = [p.log_start_offset for f, p in self.followers.items() if f in self.live]
        return min([log_start_offset, *starts])

    @property
    def leo_in_sync(self) -> int:
        """Up to where every in-sync replica has the log."""
        followers = [p.leo for f, p in self.followers.items() if f in self._maximal]
        return min([self.leo, *followers])

    # ------------------------------------------------------------------------- the ISR

    def expansion(self, follower: int) -> tuple[int, ...] | None:
        """The ISR to ask for now that this follower has fetched; None if there is no reason."""
        isr = self.isr
        if isr.is_in_flight or follower in isr.committed or follower not in self.live:
            return None
        if not may_join(
            replica_leo=self.followers[follower].leo,
            high_watermark=self.high_watermark,
            epoch_start_offset=self.epoch_start_offset,
        ):
            return None
        proposed = isr.expand(follower)
        self._count_isr()
        return proposed

    def missed_expansion(self) -> tuple[int, ...] | None:
        """The same for any follower that has everything; None if there is none.

        An idle partition brings no further fetch to try again by. One that only reaches the high
        watermark has to fetch: it may be silent since it left the ISR.
        """
        # One that is refused each time must not keep the others out.
        for follower in sorted(self.followers, key=lambda f: (f in self._refused, f)):
            if self.followers[follower].leo >= self.leo:
                proposed = self.expansion(follower)
                if proposed is not None:
                    return proposed
        return None

    def shrinkage(self, now_ms: int) -> tuple[int, ...] | None:
        """The ISR to ask for because some have fallen behind; None if none has."""
        if self.isr.is_in_flight:
            return None
        leaving = self.fallen_behind(now_ms)
        if not leaving:
            return None
        proposed = self.isr.shrink(leaving)
        self._count_isr()
        return proposed

    def fallen_behind(self, now_ms: int) -> frozenset[int]:
        """The in-sync followers that may not be called so any longer."""
        committed = self.isr.committed
        return frozenset(
            follower
            for follower, progress in self.followers.items()
            if follower in committed
            and progress.leo < self.leo
            and now_ms - progress.caught_up_ms > self._lag_ms_max
        )

    def isr_stored(self, isr: tuple[int, ...], partition_epoch: int, *, now_ms: int) -> int:
        """The controller stored an ISR. Returns the HW: a smaller ISR may raise it."""
        self.isr.stored(isr, partition_epoch)
        self._count_isr()
        return self._advance(now_ms)

    def isr_refused(self) -> None:
        """The controller did not take the change that was asked for."""
        self._refused = frozenset(self.isr.proposed).difference(self.isr.committed)
        self.isr.refused()
        self._count_isr()

    def brokers_changed(self, live: frozenset[int], *, now_ms: int) -> int:
        """Other brokers are registered now. Returns the HW: the dead hold up nobody."""
        self.live = live
        return self._advance(now_ms)

    def isr_min_changed(self, isr_min: int, *, now_ms: int) -> int:
        """`min.insync.replicas` is another one. Returns the HW: a smaller one may raise it."""
        self._isr_min = isr_min
        self._count_isr()
        return self._advance(now_ms)

    def _count_isr(self) -> None:
        # Too few for acks=all? No topic needs more in sync than it has replicas.
        enough = min(self._isr_min, len(self.followers) + 1)
        self.is_under_min_isr = len(self.isr.committed) < enough
        self._maximal = self.isr.maximal

    def _advance(self, now_ms: int) -> int:
        if self.is_under_min_isr:
            return self.high_watermark
        committed = self.leo
        for follower, progress in self.followers.items():
            if progress.leo < committed and (
                # One that has caught up holds the HW even before it is in the ISR:
                # otherwise the HW would run away from it and it could never join.
                follower in self._maximal
                or (follower in self.live and now_ms - progress.caught_up_ms <= self._lag_ms_max)
            ):
                committed = progress.leo
        # A follower may restart without its tail; that un-commits nothing.
        self.high_watermark = max(self.high_watermark, committed)
        return self.high_watermark
