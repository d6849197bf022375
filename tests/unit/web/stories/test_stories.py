"""Each story is played to its end, and its frames show what it is about."""

import json
import pathlib
import re
from functools import cache

import pytest

import odradek
from odradek.model.partition import TopicPartition
from odradek.web.lanes.values import LaneMove, LaneRole, MarkKind
from odradek.web.rendering import plain
from odradek.web.stories.catalogue import _setups, catalogue, play
from odradek.web.stories.introductions import find

SRC = pathlib.Path(odradek.__file__).parent
NAMES = [story.name for story in catalogue()]
HISTORIC = [name for name in NAMES if name.startswith("historic-")]
OF_TWO_RUNS = [name for name in NAMES if len(_setups(name)) == 2]  # nothing is played for this
FRAMES_MAX = 60
T0 = TopicPartition("t", 0)


@cache
def played(name):
    return play(name)


def frames(name, run=0):
    return played(name).runs[run].frames


def said(name, run=0):
    return [sentence for frame in frames(name, run) for sentence in frame.sentences]


def lane(frame, broker, partition=0):
    lanes = frame.lanes[partition].lanes
    return next(each for each in lanes if each.broker == broker)


def lanes_of(name, broker, run=0):
    """The lane of a broker in each frame that has one."""
    return [
        each
        for frame in frames(name, run)
        for each in frame.lanes[0].lanes
        if each.broker == broker
    ]


def first(name, text, run=0):
    """The index of the first frame with a sentence that contains the text."""
    found = [
        number
        for number, frame in enumerate(frames(name, run))
        if any(text in sentence for sentence in frame.sentences)
    ]
    assert found, f"no frame says {text!r}: {said(name, run)}"
    return found[0]


# ------------------------------------------------------------------------------ all of them


@pytest.mark.parametrize("name", NAMES)
def test_a_story_plays_to_its_end(name):
    for run in played(name).runs:
        assert 5 <= len(run.frames) <= FRAMES_MAX
        assert all(frame.sentences for frame in run.frames)
        times = [frame.at_s for frame in run.frames]
        assert times == sorted(times)
        assert json.dumps(plain(run))


@pytest.mark.parametrize("name", OF_TWO_RUNS)
def test_the_steps_of_two_runs_show_all_frames_in_order(name):
    steps = played(name).steps
    assert len(steps) <= FRAMES_MAX
    assert steps[0] == (0, 0)
    for number, run in enumerate(played(name).runs):
        shown = [step[number] for step in steps]
        assert shown == sorted(shown)
        assert set(shown) == set(range(len(run.frames)))


def test_two_runs_are_shown_at_the_same_moment_of_the_plan():
    clean, unclean = played("unclean-election").runs
    shown = [
        (clean.frames[i].sentences[0], unclean.frames[j].sentences[0])
        for i, j in played("unclean-election").steps
    ]
    apart = next(n for n, (one, other) in enumerate(shown) if one != other)
    assert "Broker 1 has started" in shown[apart - 1][0]
    # The unclean election and what is written then, while the clean one waits for broker 0.
    waits = [
        other
        for one, other in shown[apart:]
        if one.startswith("Broker 1 has its replica") and other != shown[apart - 1][1]
    ]
    assert waits[0].startswith("Stored for t-0: leader 1, leader epoch 3")
    assert waits[-1].startswith("Broker 1, the leader, appends 1 record")
    for event in ("Broker 0 registers", "Broker 0 has started", "Broker 0 has its replica"):
        one, other = ([event in both[run] for both in shown].index(True) for run in (0, 1))
        assert one == other


@pytest.mark.parametrize("name", NAMES)
def test_the_code_that_a_story_names_exists(name):
    assert find(name).files
    assert [file for file in find(name).files if not (SRC / file).is_file()] == []


def test_the_names_are_parts_of_urls_and_unique():
    assert len(NAMES) == len(set(NAMES)) >= 20
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in NAMES)


def test_there_is_no_story_of_another_name():
    with pytest.raises(LookupError):
        play("no-such-story")


@pytest.mark.parametrize("name", ["high-watermark", "rebalance", "historic-hw-truncation"])
def test_a_story_is_the_same_whenever_it_is_played(name):
    assert play(name) == played(name)


@pytest.mark.parametrize("name", HISTORIC)
def test_a_historic_rule_does_damage_and_the_present_one_does_not(name):
    historic, present = played(name).runs
    assert historic.is_damaged
    assert any(sentence.startswith("Damage: ") for sentence in historic.frames[-1].sentences)
    assert not present.is_damaged


def test_after_a_historic_story_the_present_rules_hold():
    play("historic-hw-truncation")
    assert not play("historic-hw-truncation").runs[1].is_damaged


def test_no_other_story_does_damage_but_those_that_say_so():
    damaged = {
        (name, run.title)
        for name in NAMES
        if name not in HISTORIC
        for run in played(name).runs
        if run.is_damaged
    }
    assert damaged == {
        ("unclean-election", "unclean.leader.election.enable=true"),
        ("idempotent-producer", "enable.idempotence=false"),
    }


# ------------------------------------------------------------------------------ replication


def test_the_high_watermark_moves_when_all_in_sync_replicas_have_the_record():
    name = "high-watermark"
    moved = first(name, "moves the high watermark of t-0 from 0 to 1")
    assert {each.leo for each in frames(name)[moved - 1].lanes[0].lanes} == {1}
    assert lane(frames(name)[moved - 1], 0).high_watermark == 0
    assert lane(frames(name)[moved], 0).high_watermark == 1
    assert lane(frames(name)[moved], 1).high_watermark == 0, "a follower learns it one fetch later"
    assert {each.high_watermark for each in frames(name)[-1].lanes[0].lanes} == {3}


def test_a_follower_truncates_to_the_end_of_the_leader_epoch():
    name = "truncation"
    at = first(name, "truncates its log of t-0 from 7 to 5")
    leader = lane(frames(name)[at], 1)
    (start,) = [each.start_offset for each in leader.epochs if each.leader_epoch == 1]
    assert lane(frames(name)[at], 0).leo == start == 5
    assert any("leader epoch 0 ends at 5" in each for each in frames(name)[at].sentences)
    assert lane(frames(name)[at], 0).high_watermark == 0, "it is not its high watermark"


def test_the_isr_shrinks_after_the_lag_and_the_replica_returns():
    name = "isr"
    paused, without = first(name, "is paused"), first(name, "ISR 0, 1 (before: ISR 0, 1, 2)")
    assert frames(name)[without].at_s - frames(name)[paused].at_s >= 5.0
    assert lane(frames(name)[without], 2).in_sync is False
    assert lane(frames(name)[without - 1], 0).high_watermark == 1
    assert frames(name)[first(name, "from 1 to 2")].at_s >= frames(name)[without].at_s
    assert frames(name)[-1].stored[0].isr == (0, 1, 2)


def test_too_few_in_sync_replicas_refuse_acks_all_and_hold_the_high_watermark():
    name = "min-isr"
    refused = first(name, "NOT_ENOUGH_REPLICAS")
    accepted = first(name, "1 record with acks=1")
    assert lane(frames(name)[refused], 0).leo == 1
    returned = first(name, "ISR 0, 1 (before: ISR 0)")
    between = frames(name)[accepted + 1 : returned]
    assert {lane(frame, 0).high_watermark for frame in between} == {1}
    assert lane(frames(name)[-1], 0).high_watermark == 2


def test_the_next_leader_is_the_first_in_sync_replica_of_the_assignment():
    at = first("leader-failover", "leader elected (leader 1, epoch 1, ISR 1,2)")
    assert any("broker 0 went offline" in each for each in frames("leader-failover")[at].sentences)
    assert lane(frames("leader-failover")[at], 0).role is LaneRole.OFFLINE
    assert lane(frames("leader-failover")[-1], 0).role is LaneRole.FOLLOWER


def test_a_clean_election_waits_and_an_unclean_one_loses_a_record():
    waits = first("unclean-election", "is not in the ISR, so it is not elected")
    assert frames("unclean-election")[waits].stored[0].leader == -1
    assert lane(frames("unclean-election")[-1], 1).leo == 6
    elected = first("unclean-election", "leader elected from outside the ISR", run=1)
    assert frames("unclean-election", 1)[elected].stored[0].isr == (1,)
    first("unclean-election", "truncates its log of t-0 from 6 to 5", run=1)


def test_a_preferred_election_gives_the_leadership_back():
    name = "preferred-leader"
    asked = first(name, "asks for a preferred election")
    assert frames(name)[asked].stored[0].leader == 1
    assert frames(name)[-1].stored[0].leader == frames(name)[-1].stored[0].replicas[0] == 0
    first(name, "because an election was asked for")


def test_a_controlled_shutdown_moves_leaders_before_the_broker_stops():
    name = "controlled-shutdown"
    moved = first(name, "because broker 0 began to shut down")
    assert moved < first(name, "Broker 0 has stopped")
    assert frames(name)[moved].brokers[0].is_registered


def test_another_controller_decides_what_happened_in_between():
    name = "controller-failover"
    written = first(name, "appends 1 record to t-0: its log end offset is 2")
    ended = first(name, "There is no controller")
    assert written < ended, "partitions serve clients while the controller is down"
    assert frames(name)[first(name, "is elected controller, with")].controller_epoch == 2
    decided = [each for each in said(name) if "leader elected" in each]
    assert decided
    assert not decided[0].startswith("Controller 3")


def test_a_reassignment_copies_by_the_throttle_and_then_removes():
    name = "reassignment"
    began = first(name, "adding 2, removing 0")
    assert lane(frames(name)[began], 2).move is LaneMove.ADDING
    left = [each.bytes_left for each in lanes_of(name, 2) if each.bytes_left is not None]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    rates = [each.bytes_per_s for each in lanes_of(name, 2) if each.bytes_per_s is not None]
    assert rates
    assert max(rates) < 150_000, "the throttle is 100,000, and the first second counts whole"
    in_sync = first(name, "ISR 0, 1, 2 (before: ISR 0, 1)")
    # 400,000 bytes at 100,000 a second; the first second's quota may be used up at once.
    assert frames(name)[in_sync].at_s - frames(name)[began].at_s > 2.5
    assert frames(name)[-1].stored[0].replicas == (1, 2)
    assert [each.broker for each in frames(name)[-1].lanes[0].lanes] == [1, 2]


def test_a_deletion_waits_for_the_broker_that_is_offline():
    name = "deletion"
    halted, removed = first(name, "deletion halted"), first(name, "topic deleted")
    assert any("its replica on broker 1 is offline" in s for s in frames(name)[halted].sentences)
    assert halted < first(name, "Broker 1 registers") < removed
    assert frames(name)[-1].stored == ()


def test_without_racks_partitions_go_offline_and_with_racks_none():
    without, with_racks = frames("placement")[-1], frames("placement", 1)[-1]
    assert any(state.leader == -1 for state in without.stored)
    assert all(state.leader >= 0 for state in with_racks.stored)
    racks = {broker.broker: broker.rack for broker in with_racks.brokers}
    assert all(len({racks[id_] for id_ in state.replicas}) == 2 for state in with_racks.stored)


# ------------------------------------------------------------------------------ groups


def test_an_eager_rebalance_takes_all_and_a_cooperative_one_what_moves():
    halts, goes_on = ([dict(frame.readers) for frame in frames("rebalance", run)] for run in (0, 1))
    both = [each for each in halts if len(each) == 2]
    assert {"consumer-a": (), "consumer-b": ()} in both, "nobody reads during an eager rebalance"
    assert all(each["consumer-a"] for each in goes_on if len(each) == 2)
    eager = "consumer-a gives up t-0, t-1, t-2, t-3."
    assert eager in said("rebalance")
    assert eager not in said("rebalance", 1)
    assert "consumer-a gives up t-2, t-3." in said("rebalance", 1)
    generations = [frame.groups[0].generation for frame in frames("rebalance", 1) if frame.groups]
    assert generations[-1] == 4, "two rebalances for the second member, one when it is removed"
    for run in (0, 1):
        (assigned,) = [each for _, each in frames("rebalance", run)[-1].groups[0].members]
        assert assigned == ("t-0", "t-1", "t-2", "t-3")


def test_a_commit_before_processing_loses_and_one_afterwards_repeats():
    assert said("commits")[-1] == "Never processed: 2. Processed twice: none. At most once."
    assert said("commits", 1)[-1] == "Never processed: none. Processed twice: 0, 1. At least once."
    killed = frames("commits")[first("commits", "worker-1 is killed")]
    assert killed.groups[0].committed == (("t-0", 3),)
    killed = frames("commits", 1)[first("commits", "worker-1 is killed", run=1)]
    assert killed.groups[0].committed == ()


def test_a_position_comes_from_the_reset_policy_also_when_it_is_out_of_range():
    name = "positions"
    first(name, "The position of from-the-end is 5.")
    first(name, "The position of from-the-start is 0.")
    first(name, "by-hand gets an error")
    deleted = first(name, "on broker 1 starts at offset 3 now")
    first(name, "from-the-start reads the records 3, 4.")
    marks = {mark.label: mark.offset for mark in frames(name)[-1].lanes[0].marks}
    assert marks == {"of from-the-end": 5, "of from-the-start": 5}
    assert lane(frames(name)[deleted], 0).log_start_offset == 3


# ------------------------------------------------------------------------------ producers


def test_an_idempotent_retry_is_recognised_and_another_is_written_twice():
    assert lane(frames("idempotent-producer")[-1], 0).leo == 3
    assert lane(frames("idempotent-producer", 1)[-1], 0).leo == 2
    first("idempotent-producer", "offset 1. The log end offset is 2", run=1)


@pytest.mark.parametrize(("run", "marker"), [(0, "a commit marker"), (1, "an abort marker")])
def test_the_last_stable_offset_waits_for_the_marker(run, marker):
    name = "transaction"
    written = first(name, marker, run)
    opened = [frame for frame in frames(name, run)[:written] if lane(frame, 0).high_watermark > 2]
    assert {lane(frame, 0).last_stable_offset for frame in opened} == {0}
    kinds = {mark.kind for frame in opened for mark in frame.lanes[0].marks}
    assert kinds == {MarkKind.TRANSACTION}
    last = lane(frames(name, run)[-1], 0)
    assert last.last_stable_offset == last.high_watermark == last.leo == 4


def test_a_read_committed_consumer_reads_only_what_is_committed():
    before = "A consumer with isolation.level=read_committed reads: nothing."
    assert before in said("transaction")
    assert said("transaction")[-1].endswith("read_committed reads: debit, credit, other.")
    assert said("transaction", 1)[-1].endswith("read_committed reads: other.")


def test_a_new_process_fences_the_former_producer():
    name = "fenced-producer"
    epochs = [frame.transactions[0].producer_epoch for frame in frames(name) if frame.transactions]
    assert epochs[-1] > epochs[0]
    first(name, "an abort marker of producer 0")
    first(name, "its producer epoch is fenced")


# ------------------------------------------------------------------------------ historic rules


def test_the_high_watermark_is_no_place_to_truncate_to():
    name = "historic-hw-truncation"
    first(name, "truncates its log of t-0 from 6 to 5, its own high watermark")
    assert not any("truncates" in sentence for sentence in said(name, 1))


def test_records_that_were_read_below_min_isr_are_lost():
    moved = [each for each in said("historic-min-isr") if "from 5 to 6" in each]
    assert moved
    assert not [each for each in said("historic-min-isr", 1) if "from 5 to 6" in each]


def test_a_record_that_only_the_former_leader_has_is_acknowledged_by_the_stored_isr_alone():
    first("historic-stored-isr", "with acks=all is acknowledged.", run=0)
    first("historic-stored-isr", "with acks=all is not acknowledged", run=1)


def test_an_lso_behind_the_first_record_shows_a_record_of_an_open_transaction():
    first("historic-lso", "A read_committed consumer reads: 0, 1, 2, 3, 4, open.", run=0)
    first("historic-lso", "A read_committed consumer reads: 0, 1, 2, 3, 4.", run=1)
