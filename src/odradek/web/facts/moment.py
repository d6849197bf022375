"""The offsets of a partition's replicas at one moment: that of its leader's report. Pure.

Each broker reports at another moment, and under load a follower that is asked 5 ms after its leader
has more than the leader had. The leader's report alone is of one moment: its own offsets and the
LEO of each follower's last fetch. A follower's own report adds what its leader does not know, as
far as that was possible at the leader's moment. The lane of a replica that the leader knows nothing
of has its own report, and says so.

1. The leader reports LEO 100 and HW 95. 2. A producer writes 20 records, and the follower fetches
them. 3. The follower reports LEO 120 and HW 100. Drawn together, the follower is ahead of its
leader.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.explain.replicas import leaders_of

Replica = Mapping[str, Any]
_LIMITED: Final = ("high_watermark", "last_stable_offset", "log_start_offset")


@dataclass(frozen=True, slots=True)
class LeaderMoment:
    """Which broker reports that it leads a partition, in which epoch, and its ISR."""

    broker: int
    leader_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportedReplicas:
    """What the reports have of one topic, by partition and broker, and by partition.

    A replica with `apart_ms` has only its own report, received so long after its leader's
    (negative: before it).
    """

    offsets: Mapping[tuple[int, int], Replica]
    leaders: Mapping[int, LeaderMoment]


def replicas_at_one_moment(
    reports: Mapping[int, Any], received_ms: Mapping[int, int], epochs: Mapping[int, int]
) -> ReportedReplicas:
    """Join `replicas` reports; `received_ms`: when the one of each broker was received.

    A report of a leader epoch below that of the metadata (`epochs`, by partition) is of a leader
    that was replaced: then each replica has its own report.
    """
    leaders = {
        number: led
        for number, led in leaders_of(reports).items()
        if led[1]["leader_epoch"] >= epochs.get(number, 0)
    }
    own = {
        (replica["partition"], broker): replica
        for broker, report in reports.items()
        for replica in report["replicas"]
    }
    moments_ms = {number: received_ms[broker] for number, (broker, _) in leaders.items()}
    found: dict[tuple[int, int], Replica] = {}
    for (number, broker), replica in own.items():
        since_ms = moments_ms.get(number, max(received_ms.values()))
        found[number, broker] = {**replica, "apart_ms": received_ms[broker] - since_ms}
    for number, (broker, leader) in leaders.items():
        found[number, broker] = leader
        for follower in leader["followers"]:
            key = number, follower["broker"]
            fetches = {
                "caught_up_ms_ago": follower["caught_up_ms_ago"],
                "fetched_ms_ago": follower["fetched_ms_ago"],
            }
            if follower["fetched_ms_ago"] is None:
                found[key] = {**found.get(key, {}), **fetches, "caught_up_ms_ago": None}
            elif follower["leo"] < 0:
                found[key] = {**found.get(key, {}), **fetches}
            else:
                held = _possible(own.get(key, {}), follower["leo"], leader)
                found[key] = {**held, **fetches, "leo": follower["leo"]}
    return ReportedReplicas(
        found,
        {
            number: LeaderMoment(broker, leader["leader_epoch"], tuple(leader["isr"]))
            for number, (broker, leader) in leaders.items()
        },
    )


def _possible(replica: Replica, leo: int, leader: Replica) -> Replica:
    """A follower's own report, limited to what it can have had at its leader's moment."""
    bound = min(leo, leader["high_watermark"])
    limited = {name: min(replica[name], bound) for name in _LIMITED if name in replica}
    return {**replica, **limited}
