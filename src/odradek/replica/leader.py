"""The leader's view of one partition: follower progress, the ISR and the high watermark.

    LEO   log end offset: the offset the next record will get
    HW    high watermark: every record below it is on every in-sync replica (committed)
    ISR   the replicas that had caught up with the leader within `replica.lag.time.max.ms`

The high watermark does not move while the ISR is smaller than `min.insync.replicas`, whatever
the producers' acks: consumers do not see records that are not on enough replicas (Kafka 3.9).

This is on the produce and fetch path: it is called once for each partition of a request. So it
returns plain numbers, makes no objects, and reads no clock: the caller reads it once for the whole
request.
"""

from dataclasses import dataclass

from odradek.model.clock import MonotonicMs
from odradek.replica.isr import Isr, may_join


@dataclass(slots=True)
class Follower:
    """A follower's state as the leader knows it from fetch requests (Kafka: `ReplicaState`)."""

    leo: int
    caught_up_ms: int  # the last time at which it had the whole log of the leader
    fetched_ms: int = 0  # when its last fetch arrived,
    leader_leo_then: int = 0  # and the leader's log end offset at that moment
    broker_epoch: int = -1  # of its last fetch
    log_start_offset: int = -1  # as in its last fetch


class LeaderReplica:
    """One partition that this broker leads, in one leader epoch."""

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

    def __init__(  # noqa: PLR0913 - the state at the start of a leader epoch
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
        """`isr` includes the leader, `followers` does not; `isr_min` counts it.

        `live` are the registered brokers; None: all followers are registered.
        """
        assert 0 <= high_watermark <= leo
        # Below the log's own end while the records after it are not flushed yet.
        self.leo = leo
        self.high_watermark = high_watermark
        self.followers = followers
        self.isr = isr
        self.live = frozenset(followers) if live is None else live
        self.epoch_start_offset = epoch_start_offset  # the log end offset when it became leader
        self._isr_min = isr_min
        self._lag_ms_max = lag_ms_max
        self._refused = frozenset[int]()  # replicas that the controller last refused to add
        self._count_isr()

    # ----------------------------------------------------------------- produce and fetch

    def appended(self, leo: int, monotonic_ms: MonotonicMs) -> int:
        """The local log has grown to `leo`. Returns the high watermark."""
        assert leo >= self.leo, (leo, self.leo)
        if not self.followers:
            self.leo = self.high_watermark = leo
            return leo
        for follower, progress in self.followers.items():
            if progress.leo >= self.leo and follower in self._maximal:
                # It had the whole log until now. An idle follower sends no fetch while nothing
                # is appended (fetch sessions), so its lag begins to count now.
                progress.caught_up_ms = monotonic_ms
        self.leo = leo
        return self._advance(monotonic_ms)

    def fetched(
        self, follower: int, *, offset: int, monotonic_ms: MonotonicMs, broker_epoch: int = -1
    ) -> int:
        """A follower fetched from `offset`: it has everything below. Returns the HW."""
        progress = self.followers[follower]
        if -1 < broker_epoch < progress.broker_epoch:
            return self.high_watermark  # a late fetch of an earlier registration (KAFKA-15221)
        progress.broker_epoch = broker_epoch
        if offset >= self.leo:
            progress.caught_up_ms = monotonic_ms
        elif offset >= progress.leader_leo_then:
            # While records are appended all the time no fetch reaches the log end. One that
            # reaches the log end of the fetch before it shows that it had caught up then.
            progress.caught_up_ms = progress.fetched_ms
        progress.leo = offset
        progress.fetched_ms = monotonic_ms
        progress.leader_leo_then = self.leo
        return self._advance(monotonic_ms)

    def low_watermark(self, log_start_offset: int) -> int:
        """The lowest log start offset of the registered replicas (DeleteRecords, KIP-107).

        -1 while a registered follower has not sent its own. `log_start_offset` is the leader's.
        """
        starts = [p.log_start_offset for f, p in self.followers.items() if f in self.live]
        return min([log_start_offset, *starts])

    @property
    def leo_in_sync(self) -> int:
        """The lowest log end offset of the in-sync replicas."""
        followers = [p.leo for f, p in self.followers.items() if f in self._maximal]
        return min([self.leo, *followers])

    # ------------------------------------------------------------------------- the ISR

    def expansion(self, follower: int) -> tuple[int, ...] | None:
        """The ISR to request after a fetch of this follower; None if it does not change."""
        isr = self.isr
        if follower in isr.committed or isr.is_in_flight or follower not in self.live:
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
        """The ISR to request with any follower that has the whole log; None if there is none.

        A partition without appends brings no further fetch after which to try again. A follower
        that has only reached the high watermark has to fetch: it may have stopped since.
        """
        # A replica that is refused each time must not keep the others out.
        for follower in sorted(self.followers, key=lambda f: (f in self._refused, f)):
            if self.followers[follower].leo >= self.leo:
                proposed = self.expansion(follower)
                if proposed is not None:
                    return proposed
        return None

    def shrinkage(self, monotonic_ms: MonotonicMs) -> tuple[int, ...] | None:
        """The ISR to request without the followers that have fallen behind; None if none has."""
        if self.isr.is_in_flight:
            return None
        leaving = self.fallen_behind(monotonic_ms)
        if not leaving:
            return None
        proposed = self.isr.shrink(leaving)
        self._count_isr()
        return proposed

    def fallen_behind(self, monotonic_ms: MonotonicMs) -> frozenset[int]:
        """The in-sync followers that exceed `replica.lag.time.max.ms` (Kafka: out of sync)."""
        committed = self.isr.committed
        return frozenset(
            follower
            for follower, progress in self.followers.items()
            if follower in committed
            and progress.leo < self.leo
            and monotonic_ms - progress.caught_up_ms > self._lag_ms_max
        )

    def isr_stored(
        self, isr: tuple[int, ...], partition_epoch: int, *, monotonic_ms: MonotonicMs
    ) -> int:
        """Take over the stored ISR. Returns the HW: a smaller ISR may raise it."""
        self.isr.stored(isr, partition_epoch)
        self._count_isr()
        return self._advance(monotonic_ms)

    def isr_refused(self) -> None:
        """The controller refused the requested ISR."""
        self._refused = frozenset(self.isr.proposed).difference(self.isr.committed)
        self.isr.refused()
        self._count_isr()

    def brokers_changed(self, live: frozenset[int], *, monotonic_ms: MonotonicMs) -> int:
        """The registered brokers changed. Returns the HW: it waits for no unregistered broker."""
        self.live = live
        return self._advance(monotonic_ms)

    def isr_min_changed(self, isr_min: int, *, monotonic_ms: MonotonicMs) -> int:
        """`min.insync.replicas` changed. Returns the HW: a smaller minimum may raise it."""
        self._isr_min = isr_min
        self._count_isr()
        return self._advance(monotonic_ms)

    def _count_isr(self) -> None:
        # A topic needs no more in-sync replicas than it has replicas.
        enough = min(self._isr_min, len(self.followers) + 1)
        self.is_under_min_isr = len(self.isr.committed) < enough
        self._maximal = self.isr.maximal

    @property
    def is_at_min_isr(self) -> bool:
        """Whether acks=all is refused when one more in-sync replica is lost."""
        return len(self.isr.committed) == min(self._isr_min, len(self.followers) + 1)

    @property
    def may_advance(self) -> bool:
        """Whether the high watermark may grow: not on too few replicas (KIP-966)."""
        return not self.is_under_min_isr

    def _advance(self, monotonic_ms: MonotonicMs) -> int:
        if not self.may_advance:
            return self.high_watermark
        committed = self.leo
        for follower, progress in self.followers.items():
            if progress.leo < committed and (
                # A follower that has caught up holds back the HW even before it joins the ISR:
                # otherwise the HW would stay ahead of it and it could never join.
                follower in self._maximal
                or (
                    follower in self.live
                    and monotonic_ms - progress.caught_up_ms <= self._lag_ms_max
                )
            ):
                committed = progress.leo
        # A follower may restart with a shorter log; what is committed stays committed.
        self.high_watermark = max(self.high_watermark, committed)
        return self.high_watermark
