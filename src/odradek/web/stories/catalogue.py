"""The shelf of stories, and how one is played.

A story has one run, or two that are shown side by side: two settings, or a rule by which an earlier
Kafka lost records and the rule that holds now. `play` is a function of the name: the seed is fixed,
and simulated time has nothing to do with the time of day.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from odradek.sim.scenes import historic_rules as rules
from odradek.sim.scenes.historic import SCENARIOS
from odradek.sim.scenes.historic_rules import Patches
from odradek.sim.scenes.scene import Scene
from odradek.web.stories.introductions import STORIES, find
from odradek.web.stories.scripts import groups, replication, transactions
from odradek.web.stories.theatre import COORDINATORS, Script, Staging, Theatre, perform
from odradek.web.stories.values import Played, Story


@dataclass(frozen=True, slots=True)
class _Cast:
    """How one run is made."""

    title: str
    script: Script
    staging: Staging = Staging()


PLAIN: Final = Staging(properties=COORDINATORS)
_ONE_IN_SYNC: Final = {"min.insync.replicas": "1"}
_UNCLEAN: Final = {"unclean.leader.election.enable": "true", **_ONE_IN_SYNC}
# Fetches of one batch, so that the throttle can be seen.
_SMALL_FETCHES: Final = {
    "replica.fetch.max.bytes": "50000",
    "replica.fetch.response.max.bytes": "50000",
}
_NO_TOPIC: Final = Staging(replicas=(), properties=COORDINATORS)
_RACKS: Final = {0: "a", 1: "b", 2: "a", 3: "b"}

_RUNS: Final[dict[str, tuple[_Cast, ...]]] = {
    "high-watermark": (_Cast("", replication.the_high_watermark_moves),),
    "truncation": (_Cast("", replication.a_follower_truncates),),
    "isr": (_Cast("", replication.the_isr_shrinks),),
    "min-isr": (_Cast("", replication.too_few_in_sync),),
    "leader-failover": (_Cast("", replication.the_leader_is_killed),),
    "unclean-election": (
        _Cast(
            "unclean.leader.election.enable=false",
            replication.a_clean_election_waits,
            Staging(configs=_ONE_IN_SYNC),
        ),
        _Cast(
            "unclean.leader.election.enable=true",
            replication.an_unclean_election_loses,
            Staging(configs=_UNCLEAN),
        ),
    ),
    "preferred-leader": (_Cast("", replication.preferred_leaders),),
    "controlled-shutdown": (_Cast("", replication.a_controlled_shutdown),),
    "controller-failover": (_Cast("", replication.the_controller_fails),),
    "reassignment": (
        _Cast(
            "",
            replication.a_reassignment,
            Staging(replicas=(0, 1), configs={}, properties=_SMALL_FETCHES),
        ),
    ),
    "deletion": (_Cast("", replication.a_deletion_waits),),
    "placement": (
        _Cast("without broker.rack", replication.replicas_are_placed, _NO_TOPIC),
        _Cast(
            "with broker.rack", replication.replicas_are_placed, replace(_NO_TOPIC, racks=_RACKS)
        ),
    ),
    "rebalance": (
        _Cast("eager (RangeAssignor)", groups.an_eager_rebalance, _NO_TOPIC),
        _Cast("cooperative (CooperativeStickyAssignor)", groups.a_cooperative_rebalance, _NO_TOPIC),
    ),
    "commits": (
        _Cast("commit before processing", groups.commits_before_processing, PLAIN),
        _Cast("commit after processing", groups.commits_after_processing, PLAIN),
    ),
    "positions": (_Cast("", groups.positions, PLAIN),),
    "idempotent-producer": (
        _Cast("enable.idempotence=false", transactions.a_retry_without_idempotence, PLAIN),
        _Cast("enable.idempotence=true", transactions.a_retry_of_an_idempotent_producer, PLAIN),
    ),
    "transaction": (
        _Cast("commit", transactions.a_committed_transaction, PLAIN),
        _Cast("abort", transactions.an_aborted_transaction, PLAIN),
    ),
    "fenced-producer": (_Cast("", transactions.a_fenced_producer, PLAIN),),
}

_HISTORIC: Final[dict[str, tuple[Callable[[Patches], None], str]]] = {
    "historic-hw-truncation": (rules.truncation_to_the_high_watermark, "Kafka up to 0.10"),
    "historic-one-step-truncation": (rules.one_step_of_truncation, "Kafka 0.11 to 1.1"),
    "historic-unfenced-truncation": (rules.truncation_without_fencing, "Kafka 2.0"),
    "historic-unfenced-fetch": (rules.no_leader_epoch_in_fetches, "Kafka up to 2.0"),
    "historic-broker-epoch": (rules.no_broker_epoch, "Kafka up to 2.1"),
    "historic-controller-fencing": (rules.no_controller_fencing, "Kafka up to 2.1"),
    "historic-stored-isr": (rules.high_watermark_by_the_stored_isr, "a draft of Kafka 2.7"),
    "historic-min-isr": (rules.high_watermark_below_min_isr, "Kafka up to 3.6"),
    "historic-lso": (rules.last_stable_offset_off_by_one, "an LSO that is one too high"),
}


def catalogue() -> tuple[Story, ...]:
    """All stories, in the order of the shelf."""
    return STORIES


def play(name: str) -> Played:
    """Play a story to its end.

    A historic rule holds in the whole process while it is played: `pages` plays stories in
    another process.

    Raises:
        LookupError: there is no story of this name.
    """
    story = find(name)
    if story is None:
        raise LookupError(name)
    runs = tuple(perform(cast.title, cast.script, cast.staging) for cast in _casts(name))
    return Played(story=story, runs=runs)


def _casts(name: str) -> tuple[_Cast, ...]:
    if name in _RUNS:
        return _RUNS[name]
    rule, era = _HISTORIC[name]
    scenario = next(found for found in SCENARIOS if found.rule is rule)
    script = _of_scene(scenario.story)
    return (
        _Cast(era, script, Staging(replicas=scenario.replicas, rules=(rule,))),
        _Cast("the present rule", script, Staging(replicas=scenario.replicas)),
    )


def _of_scene(story: Callable[[Scene], Awaitable[None]]) -> Script:
    async def script(theatre: Theatre) -> None:
        await story(theatre.scene)

    return script
