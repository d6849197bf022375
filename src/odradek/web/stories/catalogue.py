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
from odradek.web.stories.alignment import aligned
from odradek.web.stories.introductions import STORIES, find
from odradek.web.stories.scripts import groups, replication, transactions
from odradek.web.stories.story_cluster import (
    COORDINATORS,
    Script,
    StoryCluster,
    StorySetup,
    perform,
)
from odradek.web.stories.values import Played, Story


@dataclass(frozen=True, slots=True)
class _RunSetup:
    """How one run is made."""

    title: str
    script: Script
    setup: StorySetup = StorySetup()


PLAIN: Final = StorySetup(properties=COORDINATORS)
_ONE_IN_SYNC: Final = {"min.insync.replicas": "1"}
_UNCLEAN: Final = {"unclean.leader.election.enable": "true", **_ONE_IN_SYNC}
# Fetches of one batch, so that the throttle can be seen.
_SMALL_FETCHES: Final = {
    "replica.fetch.max.bytes": "50000",
    "replica.fetch.response.max.bytes": "50000",
}
_NO_TOPIC: Final = StorySetup(replicas=(), properties=COORDINATORS)
_RACKS: Final = {0: "a", 1: "b", 2: "a", 3: "b"}

_RUNS: Final[dict[str, tuple[_RunSetup, ...]]] = {
    "high-watermark": (_RunSetup("", replication.the_high_watermark_moves),),
    "truncation": (_RunSetup("", replication.a_follower_truncates),),
    "isr": (_RunSetup("", replication.the_isr_shrinks),),
    "min-isr": (_RunSetup("", replication.too_few_in_sync),),
    "leader-failover": (_RunSetup("", replication.the_leader_is_killed),),
    "unclean-election": (
        _RunSetup(
            "unclean.leader.election.enable=false",
            replication.a_clean_election_waits,
            StorySetup(configs=_ONE_IN_SYNC),
        ),
        _RunSetup(
            "unclean.leader.election.enable=true",
            replication.an_unclean_election_loses,
            StorySetup(configs=_UNCLEAN),
        ),
    ),
    "preferred-leader": (_RunSetup("", replication.preferred_leaders),),
    "controlled-shutdown": (_RunSetup("", replication.a_controlled_shutdown),),
    "controller-failover": (_RunSetup("", replication.the_controller_fails),),
    "reassignment": (
        _RunSetup(
            "",
            replication.a_reassignment,
            StorySetup(replicas=(0, 1), configs={}, properties=_SMALL_FETCHES),
        ),
    ),
    "deletion": (_RunSetup("", replication.a_deletion_waits),),
    "placement": (
        _RunSetup("without broker.rack", replication.replicas_are_placed, _NO_TOPIC),
        _RunSetup(
            "with broker.rack", replication.replicas_are_placed, replace(_NO_TOPIC, racks=_RACKS)
        ),
    ),
    "rebalance": (
        _RunSetup("eager (RangeAssignor)", groups.an_eager_rebalance, _NO_TOPIC),
        _RunSetup(
            "cooperative (CooperativeStickyAssignor)", groups.a_cooperative_rebalance, _NO_TOPIC
        ),
    ),
    "commits": (
        _RunSetup("commit before processing", groups.commits_before_processing, PLAIN),
        _RunSetup("commit after processing", groups.commits_after_processing, PLAIN),
    ),
    "positions": (_RunSetup("", groups.positions, PLAIN),),
    "idempotent-producer": (
        _RunSetup("enable.idempotence=false", transactions.a_retry_without_idempotence, PLAIN),
        _RunSetup("enable.idempotence=true", transactions.a_retry_of_an_idempotent_producer, PLAIN),
    ),
    "transaction": (
        _RunSetup("commit", transactions.a_committed_transaction, PLAIN),
        _RunSetup("abort", transactions.an_aborted_transaction, PLAIN),
    ),
    "fenced-producer": (_RunSetup("", transactions.a_fenced_producer, PLAIN),),
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
    runs = tuple(perform(run.title, run.script, run.setup) for run in _setups(name))
    return Played(story=story, runs=runs, steps=aligned([run.frames for run in runs]))


def _setups(name: str) -> tuple[_RunSetup, ...]:
    if name in _RUNS:
        return _RUNS[name]
    rule, era = _HISTORIC[name]
    scenario = next(found for found in SCENARIOS if found.rule is rule)
    script = _of_scene(scenario.story)
    return (
        _RunSetup(era, script, StorySetup(replicas=scenario.replicas, rules=(rule,))),
        _RunSetup("the present rule", script, StorySetup(replicas=scenario.replicas)),
    )


def _of_scene(scenario: Callable[[Scene], Awaitable[None]]) -> Script:
    async def script(story: StoryCluster) -> None:
        await scenario(story.scene)

    return script
