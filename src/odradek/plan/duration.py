"""How long a plan takes under a throttle. Pure arithmetic.

A replication throttle limits, on each broker, the bytes a second of all throttled replicas
together, including the records that producers write to these partitions meanwhile. So the copies
get the throttle less that inflow, and the broker that gets most takes longest. With a throttle that
is not above the inflow a plan never completes.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.model.partition import TopicPartition
from odradek.plan.movement import MovementPlan
from odradek.plan.quantities import bytes_text


class Duration(NamedTuple):
    """The predicted duration, and the broker that takes longest."""

    seconds: float  # infinity: it never completes
    broker: int  # -1: nothing is copied
    inflow: float  # bytes a second that producers write to that broker's throttled replicas


def predict(
    plan: MovementPlan, throttle: float, inflow: Mapping[TopicPartition, float]
) -> Duration:
    """The duration of a plan with all copies at once and every broker under the throttle."""
    arriving = plan.arriving_bytes()
    written: dict[int, float] = dict.fromkeys(arriving, 0.0)
    for partition in plan.moved:
        for broker in set(plan.after[partition]) - set(plan.before[partition]):
            written[broker] += inflow.get(partition, 0.0)
    longest = Duration(0.0, -1, 0.0)
    for broker, size in sorted(arriving.items()):
        left = throttle - written[broker]
        seconds = size / left if left > 0 else float("inf")
        if seconds > longest.seconds:
            longest = Duration(seconds, broker, written[broker])
    return longest


def duration_text(duration: Duration, throttle: float) -> str:
    """A sentence: how long a plan takes, and which broker determines it."""
    if duration.seconds == float("inf"):
        return (
            f"It would never end: the new replicas of broker {duration.broker} receive "
            f"{bytes_text(duration.inflow)}/s of new records, and the throttle of "
            f"{bytes_text(throttle)}/s is not above that."
        )
    minutes, seconds = divmod(round(duration.seconds), 60)
    hours, minutes = divmod(minutes, 60)
    took = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
    return (
        f"At {bytes_text(throttle)}/s it takes about {took}: broker {duration.broker} copies most, "
        f"and {bytes_text(duration.inflow)}/s are written to its new replicas meanwhile."
    )
