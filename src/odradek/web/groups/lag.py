"""How long ago the record at the committed offset was written: the lag in seconds. Pure.

1. From samples of the end offset: when the end of the log was the committed offset. Between two
   samples the time is interpolated by the offsets. This is the time since the next record that the
   group has to read was appended, by the clock of this process.
2. Else from the timestamp of that record: with CreateTime it is the producer's clock.

Without lag in records there is none in seconds.
"""

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.plan.quantities import span_text
from odradek.web.groups.values import PartitionLag

SAMPLES_MAX: Final = 64
_TREND_MS_MIN: Final = 5_000  # shorter periods say nothing
_TREND_MS_MAX: Final = 30_000  # what was before says nothing about now
_STEADY: Final = 0.5  # records a second that are no trend


class LagSource(StrEnum):
    """How a lag in seconds was found."""

    NONE = "none"  # there is no lag in records
    SAMPLES = "samples"
    RECORD = "record"
    UNCOMMITTED = "no committed offset"
    UNKNOWN = "unknown"


class LagTime(NamedTuple):
    """A lag in seconds, how it was found, and a sentence about it."""

    seconds: float | None
    source: LagSource
    text: str


class EndSample(NamedTuple):
    """The end offset of a partition at a moment."""

    wall_ms: WallMs
    end: int


class EndSamples:
    """The last end offsets of a partition. When full, every second of the older half is dropped.

    So a long time is covered with few samples, and the latest ones are the densest.
    """

    def __init__(self) -> None:
        self._samples: list[EndSample] = []

    def add(self, wall_ms: WallMs, end: int) -> None:
        """A sample; what a clock that went back, or a truncation, contradicts is dropped."""
        samples = self._samples
        while samples and (samples[-1].wall_ms >= wall_ms or samples[-1].end > end):
            samples.pop()
        if len(samples) >= 2 and samples[-1].end == samples[-2].end == end:
            # Nothing was written for three samples: the middle one says nothing.
            samples.pop()
        samples.append(EndSample(wall_ms, end))
        if len(samples) > SAMPLES_MAX:
            half = SAMPLES_MAX // 2
            self._samples = samples[0:half:2] + samples[half:]

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def last(self) -> EndSample | None:
        return self._samples[-1] if self._samples else None

    def passed_ms(self, offset: int) -> float | None:
        """When the end of the log passed this offset: the record there was appended.

        None if that was before the first sample, or has not happened by the last one.
        """
        samples = self._samples
        at = bisect_right(samples, offset, key=lambda each: each.end)
        if at == 0 or at == len(samples):
            return None
        before, after = samples[at - 1], samples[at]
        # The record at `offset` is number offset - before.end of those between the samples.
        share = (offset - before.end) / (after.end - before.end)
        return before.wall_ms + share * (after.wall_ms - before.wall_ms)


def lag_time(
    lag: PartitionLag,
    samples: EndSamples | None,
    wall_ms: WallMs,
    *,
    record_ms: int | None = None,
    is_append_time: bool = False,
) -> LagTime:
    """The lag of one partition in seconds. `record_ms`: the timestamp at the committed offset."""
    if lag.committed is None:
        return LagTime(None, LagSource.UNCOMMITTED, "no offset is committed")
    if lag.lag is None:
        return LagTime(None, LagSource.UNKNOWN, lag.error or "the end offset is not known")
    if lag.lag == 0:
        return LagTime(0.0, LagSource.NONE, "the group has read everything")
    passed = samples.passed_ms(lag.committed) if samples is not None else None
    if passed is not None:
        text = "by samples of the end offset: since the next record was appended"
        return LagTime(max(0.0, (wall_ms - passed) / 1000), LagSource.SAMPLES, text)
    if record_ms is not None and record_ms >= 0:
        clock = "the broker's clock" if is_append_time else "the producer's clock"
        text = f"by the timestamp of the next record, which is {clock}"
        return LagTime(max(0.0, (wall_ms - record_ms) / 1000), LagSource.RECORD, text)
    text = "it began before the first sample, and the next record was not read"
    return LagTime(None, LagSource.UNKNOWN, text)


# -------------------------------------------------------------------------------------- trend


class LagSample(NamedTuple):
    """The sums over all partitions of a group at a moment."""

    wall_ms: WallMs
    lag: int
    committed: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTrend:
    """How the lag of a group changes, in records a second."""

    direction: str  # rising, falling, steady, or "" if it is not known yet
    rate: float = 0.0  # of the lag
    consumed: float = 0.0
    produced: float = 0.0
    caught_up_s: float | None = None  # when there is no lag any more, at this rate
    over_s: float = 0.0
    text: str = ""


def trend(samples: list[LagSample]) -> LagTrend:
    """The trend over the last samples of one set of partitions, the oldest first.

    If the samples are so far apart that there is none within the period, the last two count.
    """
    recent = [s for s in samples if samples[-1].wall_ms - s.wall_ms <= _TREND_MS_MAX]
    samples = recent if len(recent) > 1 else samples[-2:]
    if len(samples) < 2 or samples[-1].wall_ms - samples[0].wall_ms < _TREND_MS_MIN:
        return LagTrend(direction="", text="the trend is known after a few seconds")
    first, last = samples[0], samples[-1]
    seconds = (last.wall_ms - first.wall_ms) / 1000
    rate = (last.lag - first.lag) / seconds
    consumed = (last.committed - first.committed) / seconds
    produced = (last.end - first.end) / seconds
    direction = "steady" if abs(rate) < _STEADY else "rising" if rate > 0 else "falling"
    caught_up_s = last.lag / -rate if direction == "falling" else None
    return LagTrend(
        direction=direction,
        rate=rate,
        consumed=consumed,
        produced=produced,
        caught_up_s=caught_up_s,
        over_s=seconds,
        text=_trend_text(direction, rate, last.lag, consumed, caught_up_s),
    )


def _trend_text(
    direction: str, rate: float, lag: int, consumed: float, caught_up_s: float | None
) -> str:
    if direction == "rising":
        stopped = "; nothing is committed" if consumed <= 0 else ""
        return f"rising by {rate:,.1f} records/s{stopped}"
    if caught_up_s is not None:
        return f"falling by {-rate:,.1f} records/s: without lag in {span_text(caught_up_s)}"
    if not lag:
        return "no lag"
    return "steady: nothing is committed" if consumed <= 0 else "steady"
