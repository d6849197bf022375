"""How long a plan takes under a throttle. A rule on figures.

A replication throttle holds, on each broker, all throttled replicas together to so many bytes a
second, and the records that producers go on writing to these partitions count, too. So what is
left for the copies is the throttle less the inflow, and the broker that gets most takes longest.
A throttle that is not above the inflow lets a plan never end.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.model.partition import TopicPartition
from odradek.plan.movement import Plan


class Duration(NamedTuple):
    """How long, and which broker takes longest."""

    seconds: float  # infinity: it never ends
    broker: int  # -1: nothing is copied
    inflow: float  # what is written meanwhile to what that broker is to hold, bytes a second


def predict(plan: Plan, throttle: float, inflow: Mapping[TopicPartition, float]) -> Duration:
    """How long a plan takes when all of it is copied at once, each broker under the throttle."""
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
