"""What is said about the difference between two snapshots."""

from dataclasses import replace

from odradek.model.partition import TopicPartition
from odradek.web.stories.sentences import brokers, changes, epoch_end
from odradek.web.stories.snapshot import ShownReplica, Snapshot
from odradek.web.stories.values import ShownBroker, ShownGroup, ShownTransaction, StoredPartition

T0 = TopicPartition("t", 0)
LEADER = ShownReplica(
    broker=0,
    leads=True,
    leader=0,
    leader_epoch=2,
    leo=9,
    high_watermark=5,
    last_stable_offset=5,
    log_start_offset=0,
    size_bytes=900,
    epochs=((0, 0), (2, 5)),
    isr=(0, 1),
)
FOLLOWER = replace(LEADER, broker=1, leads=False, isr=(), leo=8, epochs=((0, 0), (1, 6)))
STORED = StoredPartition(partition=T0, replicas=(0, 1), leader=0, leader_epoch=2, isr=(0, 1))
BEFORE = Snapshot(
    controller=0,
    controller_epoch=1,
    brokers=(
        ShownBroker(broker=0, process="running", is_registered=True),
        ShownBroker(broker=1, process="running", is_registered=True),
    ),
    stored=(STORED,),
    replicas=((T0, (LEADER, FOLLOWER)),),
)


def said(after, before=BEFORE):
    return changes(before, after, lambda broker, partition, start, end: f"{end - start} records")


def with_replicas(*replicas, before=BEFORE):
    return replace(before, replicas=((T0, replicas),))


def test_nothing_is_said_about_nothing():
    assert said(BEFORE) == []


def test_brokers_are_named_in_a_sentence():
    assert [brokers(ids) for ids in ([], [1], [1, 2], [1, 2, 3])] == [
        "no broker", "broker 1", "brokers 1 and 2", "brokers 1, 2 and 3",
    ]  # fmt: skip


def test_a_truncation_to_the_end_of_a_leader_epoch():
    # The leader has no record of epoch 1; its epoch 0 ends at 5.
    after = with_replicas(LEADER, replace(FOLLOWER, leo=5, epochs=((0, 0),)))
    assert said(after) == [
        (
            "Broker 1 truncates its log of t-0 from 8 to 5: in the log of its leader, broker 0, "
            "leader epoch 0 ends at 5."
        )
    ]


def test_a_truncation_to_the_high_watermark():
    after = with_replicas(LEADER, replace(FOLLOWER, leo=4, high_watermark=4, last_stable_offset=4))
    before = with_replicas(LEADER, replace(FOLLOWER, high_watermark=4, last_stable_offset=4))
    assert said(after, before) == [
        "Broker 1 truncates its log of t-0 from 8 to 4, its own high watermark."
    ]


def test_a_truncation_to_anywhere_else_has_no_reason():
    after = with_replicas(LEADER, replace(FOLLOWER, leo=7))
    assert said(after) == ["Broker 1 truncates its log of t-0 from 8 to 7."]


def test_the_end_of_an_epoch_is_the_start_of_the_next_one_in_the_same_log():
    assert [epoch_end(LEADER, epoch) for epoch in (0, 1, 2, 3)] == [5, None, 9, None]


def test_the_high_watermark_of_a_leader_and_of_a_follower():
    moved = {"high_watermark": 8, "last_stable_offset": 8}
    after = with_replicas(replace(LEADER, **moved), replace(FOLLOWER, **moved))
    assert said(after) == [
        "Broker 0 moves the high watermark of t-0 from 5 to 8: broker 1 has the records below it.",
        (
            "Broker 1 takes the high watermark 8 of t-0 (before: 5) from a fetch response of its "
            "leader."
        ),
    ]


def test_appends_and_fetches():
    after = with_replicas(replace(LEADER, leo=11), replace(FOLLOWER, leo=9))
    assert said(after) == [
        "Broker 0, the leader, appends 2 records to t-0: its log end offset is 11.",
        "Broker 1 fetches 1 records of t-0 from broker 0: its log end offset is 9.",
    ]


def test_a_transaction_holds_back_the_last_stable_offset():
    held_back = replace(LEADER, leo=9, high_watermark=9, last_stable_offset=6)
    released = replace(held_back, last_stable_offset=9)
    before, after = with_replicas(held_back, FOLLOWER), with_replicas(released, FOLLOWER)
    assert said(after, before) == [
        (
            "The last stable offset of t-0 reaches the high watermark, 9: no transaction is open "
            "below it."
        )
    ]
    assert said(before, with_replicas(replace(held_back, last_stable_offset=5), FOLLOWER)) == [
        (
            "The last stable offset of t-0 is 6: read_committed consumers read up to it, because a "
            "transaction is open from there on."
        )
    ]


def test_roles():
    after = with_replicas(
        replace(LEADER, leads=False, isr=(), leader=1, leader_epoch=3),
        replace(FOLLOWER, leads=True, leader=1, leader_epoch=3, isr=(0, 1)),
    )
    assert said(after) == [
        "Broker 0 follows broker 1 in leader epoch 3 of t-0.",
        "Broker 1 leads t-0 in leader epoch 3, from its log end offset 8 on.",
    ]


def test_the_stored_state_says_what_it_was_before():
    stored = replace(STORED, leader=1, leader_epoch=3, isr=(1,))
    assert said(replace(BEFORE, stored=(stored,))) == [
        "Stored for t-0: leader 1, leader epoch 3, ISR 1 (before: leader 0, ISR 0, 1)."
    ]
    moving = replace(STORED, replicas=(0, 1, 2), adding=(2,), removing=(0,))
    assert said(replace(BEFORE, stored=(moving,))) == [
        "The replicas of t-0 are now 0, 1, 2, adding 2, removing 0."
    ]


def test_brokers_and_links():
    one, two = BEFORE.brokers
    after = replace(
        BEFORE,
        controller=1,
        controller_epoch=2,
        brokers=(
            replace(one, process="paused", dropped_to=(1,)),
            replace(two, is_registered=False),
        ),
    )
    assert said(after) == [
        "The process of broker 0 is paused (SIGSTOP).",
        "The network loses what broker 0 sends to broker 1.",
        "The session of broker 1 has ended: it is no longer registered.",
        "Broker 1 is elected controller, with controller epoch 2.",
    ]


def test_groups_and_transactions():
    group = ShownGroup(
        group="g",
        coordinator=1,
        state="Stable",
        generation=2,
        members=(("a", ("t-0",)),),
        committed=(("t-0", 3),),
    )
    transaction = ShownTransaction(
        transactional_id="x",
        coordinator=1,
        producer_id=7,
        producer_epoch=0,
        state="Ongoing",
        partitions=("t-0",),
    )
    before = replace(BEFORE, groups=(group,), transactions=(transaction,))
    after = replace(
        BEFORE,
        groups=(replace(group, members=(("b", ("t-0",)),), committed=(("t-0", 4),)),),
        transactions=(replace(transaction, state="PrepareCommit"),),
    )
    assert said(after, before) == [
        "b joins the group g.",
        "a is no longer a member of the group g.",
        "b is assigned t-0.",
        "The committed offset of g for t-0 is 4.",
        "The transaction of x is PrepareCommit.",
    ]
