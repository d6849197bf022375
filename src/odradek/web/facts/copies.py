"""A replica that is being copied to a broker: what is left, at which rate. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_WEIGHT: Final = 0.3  # of a new rate against the mean so far


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """A new replica that is being copied; None is not known."""

    broker: int
    held_bytes: int | None = None
    left_bytes: int | None = None
    bytes_per_s: float | None = None  # by which it grows
    left_per_s: float | None = None  # by which what is left shrinks; below 0 it grows

    @property
    def seconds_left(self) -> float | None:
        """The time left at the present rate; None if that is not known, or it does not shrink."""
        if not self.left_bytes or not self.left_per_s or self.left_per_s <= 0:
            return None
        return self.left_bytes / self.left_per_s


def whole_bytes(sizes: Mapping[int, int | None], leader: int) -> int | None:
    """The bytes of a partition by those of its replicas; None if none is known.

    While the leader's size is not known, the largest replica is the best estimate.
    """
    known = {broker: size for broker, size in sizes.items() if size is not None}
    return known.get(leader, max(known.values(), default=None))


def copy_facts(
    broker: int, held: int | None, whole: int | None, former: CopyFacts | None, past_s: float
) -> CopyFacts:
    """A copy of `whole` bytes of which `held` are there, and its rates since `past_s`."""
    left = None if held is None or whole is None else max(0, whole - held)
    if former is None or past_s <= 0:
        return CopyFacts(broker=broker, held_bytes=held, left_bytes=left)
    return CopyFacts(
        broker=broker,
        held_bytes=held,
        left_bytes=left,
        bytes_per_s=_mean(former.bytes_per_s, former.held_bytes, held, past_s),
        left_per_s=_mean(former.left_per_s, left, former.left_bytes, past_s),
    )


def _mean(mean: float | None, least: int | None, most: int | None, past_s: float) -> float | None:
    if least is None or most is None:
        return mean
    rate = (most - least) / past_s
    return rate if mean is None else (1 - _WEIGHT) * mean + _WEIGHT * rate
