"""Who leads when all that are in sync may have lost their tail."""

from uuid import UUID

import pytest

from odradek.controller.causes import Verdict
from odradek.controller.controller import Controller
from odradek.controller.effects import (
    Proceed,
    ReadLogEnds,
    RecordDecisions,
    SendRequests,
    StoreStates,
)
from odradek.controller.events import (
    BrokersChanged,
    BrokersLoaded,
    LoadingFinished,
    LogEndsRead,
    Stored,
    TopicSeen,
    TopicsLoaded,
)
from odradek.controller.isr_history import (
    NO_LOG,
    IsrHistory,
    Left,
    LogEnd,
    choose,
    holders,
    next_history,
)
from odradek.controller.proposals import Accepted, StoredState
from odradek.model.cluster import Broker
from odradek.model.partition import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    Assignment,
    LeaderAndIsr,
    TopicPartition,
)
from odradek.model.trampoline import Trampoline

ONE_LEFT = IsrHistory(7, 1, left={2: Left(isr_size=1, transaction_id=50)})


def test_a_replica_that_leaves_the_isr_is_kept_with_the_size_of_the_isr_after_it():
    left, isr = next_history(
        before=None, isr_before=(1, 2, 3), isr=(1,), transaction_id=50, leads=True
    )
    assert left == {2: Left(1, 50), 3: Left(1, 50)}
    assert isr == {}


def test_a_replica_that_left_stays_in_the_history_until_it_is_in_sync_again():
    left, isr = next_history(
        before=ONE_LEFT, isr_before=(1,), isr=(1,), transaction_id=60, leads=False
    )
    assert left == {2: Left(1, 50)}
    assert isr == {1: 60}


def test_a_larger_isr_raises_the_size_since_a_replica_left():
    left, _ = next_history(
        before=ONE_LEFT, isr_before=(1,), isr=(1, 3), transaction_id=60, leads=False
    )
    assert left == {2: Left(2, 50)}


def test_a_replica_that_is_in_sync_again_is_not_in_the_history():
    left, _ = next_history(
        before=ONE_LEFT, isr_before=(1,), isr=(1, 2), transaction_id=60, leads=False
    )
    assert left == {}


def test_writing_a_leaderless_isr_again_does_not_renew_until_when_its_members_held_everything():
    before = IsrHistory(8, 1, isr={1: 50})
    left, isr = next_history(
        before=before, isr_before=(1,), isr=(1,), transaction_id=99, leads=False
    )
    assert (left, isr) == ({}, {1: 50})
    left, _ = next_history(before=before, isr_before=(1,), isr=(2,), transaction_id=99, leads=True)
    assert left == {1: Left(1, 50)}


@pytest.mark.parametrize(
    ("ends", "sound", "isr_min", "elected"),
    [
        pytest.param({1: (5, 80)}, (), 2, None, id="the other is waited for"),
        pytest.param({1: (5, 80), 2: (5, 100)}, (2,), 2, 2, id="the tail is on the other"),
        pytest.param({1: (5, 120), 2: (5, 100)}, (2,), 2, 1, id="nothing was lost"),
        pytest.param({1: (5, 80), 2: (5, 100)}, (), 2, 2, id="both in doubt, the longer"),
        pytest.param({2: (5, 100)}, (2,), 2, 2, id="the sound one need not wait"),
        pytest.param({2: (5, 100)}, (), 2, None, id="one in doubt waits for the other"),
        pytest.param({1: (5, 80), 3: (5, 200)}, (), 2, None, id="a stranger's word is not enough"),
        pytest.param({1: (6, 80), 2: (5, 100)}, (2,), 2, 1, id="the later epoch"),
        pytest.param({1: (5, 80)}, (), 1, 1, id="min.insync.replicas=1 waits for no other"),
        pytest.param({1: (5, 80), 2: (5, 100)}, (), 1, 2, id="but takes what there is"),
        pytest.param({1: (5, 80), 2: (5, 80)}, (2,), 2, 1, id="equal: the in-sync replica"),
        pytest.param({1: tuple(NO_LOG), 2: (5, 3)}, (2,), 2, 2, id="an empty disk"),
        pytest.param({1: (-1, 137), 2: (3, 135)}, (2,), 2, 1, id="what was deleted was committed"),
        pytest.param({1: (-1, 137), 2: (3, 150)}, (2,), 2, 2, id="and more was written since"),
        pytest.param(
            {1: tuple(NO_LOG), 2: tuple(NO_LOG), 3: (5, 34)}, (), 2, 3, id="only a stranger has any"
        ),
        pytest.param({}, (), 1, None, id="nobody"),
        pytest.param(
            {1: (5, 100), 2: (5, 100), 3: (6, 90)}, (2,), 2, 1, id="a stranger's later epoch"
        ),
        pytest.param(
            {1: (5, 80), 2: (5, 90), 3: (5, 95)}, (2,), 2, 3, id="a stranger's longer log"
        ),
    ],
)
def test_the_choice(ends, sound, isr_min, elected):
    chosen = choose(
        ends={replica: LogEnd(*end) for replica, end in ends.items()},
        isr=(1,),
        history=ONE_LEFT,
        sound=sound,
        isr_min=isr_min,
        assigned=(3, 2, 1),
    )
    assert chosen == elected


LAST_TWO = IsrHistory(7, 1, left={2: Left(1, 50), 3: Left(1, 40)})


@pytest.mark.parametrize(
    ("isr", "history", "ends", "emptied", "elected"),
    [
        pytest.param((1, 2), None, {1: NO_LOG}, {1}, None, id="another in sync is waited for"),
        pytest.param((1, 2), None, {1: NO_LOG, 2: LogEnd(5, 80)}, {1}, 2, id="and leads"),
        pytest.param(
            (1,), LAST_TWO, {1: NO_LOG}, {1}, None, id="the replica that left last is waited for"
        ),
        pytest.param(
            (1,),
            LAST_TWO,
            {1: NO_LOG, 3: LogEnd(5, 70)},
            {1},
            None,
            id="a replica that left earlier has less",
        ),
        pytest.param(
            (1,), LAST_TWO, {1: NO_LOG, 2: LogEnd(5, 80), 3: LogEnd(5, 70)}, {1}, 2, id="the longer"
        ),
        pytest.param(
            (1,), LAST_TWO, {1: NO_LOG, 3: LogEnd(5, 70)}, {1, 2}, 3, id="the last with anything"
        ),
        pytest.param((1,), None, {1: NO_LOG, 3: LogEnd(5, 7)}, {1}, 3, id="there is no history"),
        pytest.param(
            (1,), LAST_TWO, {1: LogEnd(5, 9), 2: LogEnd(4, 8)}, {1}, 2, id="a copy that had begun"
        ),
        pytest.param((1,), LAST_TWO, {1: NO_LOG}, {1, 2, 3}, 1, id="all have lost everything"),
    ],
)
def test_a_replica_that_lost_its_log_does_not_lead_while_another_has_records(
    isr, history, ends, emptied, elected
):
    chosen = choose(
        ends=ends,
        isr=isr,
        history=history,
        sound=(),
        isr_min=1,
        assigned=(1, 2, 3),
        emptied=emptied,
    )
    assert chosen == elected


@pytest.mark.parametrize(
    ("isr", "history", "ends", "put_back", "elected"),
    [
        pytest.param((1, 2), None, {1: LogEnd(5, 40)}, {1}, None, id="another in sync is awaited"),
        pytest.param((1, 2), None, {1: LogEnd(5, 40), 2: LogEnd(5, 80)}, {1}, 2, id="and leads"),
        pytest.param(
            # 1. Broker 1 appends a record in epoch 5, and is copied. 2. Broker 2 leads epoch 6: the
            # record is truncated, and records of epoch 4 are committed. 3. The copy is put back.
            (1, 2),
            None,
            {1: LogEnd(5, 41), 2: LogEnd(4, 80)},
            {1},
            2,
            id="a record of a later epoch was truncated after the copy",
        ),
        pytest.param(
            (1,), LAST_TWO, {1: LogEnd(5, 40)}, {1}, None, id="the one that left last is awaited"
        ),
        pytest.param(
            (1,), LAST_TWO, {1: LogEnd(5, 40), 2: LogEnd(5, 80)}, {1}, 2, id="it may have more"
        ),
        pytest.param((1,), LAST_TWO, {1: LogEnd(5, 90), 2: LogEnd(5, 80)}, {1}, 1, id="or fewer"),
        pytest.param((1, 2), None, {1: LogEnd(5, 9)}, {1, 2, 3}, 1, id="all are put back"),
        pytest.param(
            (1,), None, {1: LogEnd(5, 9)}, {1, 2, 3}, 1, id="the whole ISR, and all others"
        ),
    ],
)
def test_a_replica_whose_log_is_an_older_copy_is_not_believed_while_another_is_in_sync(
    isr, history, ends, put_back, elected
):
    chosen = choose(
        ends=ends,
        isr=isr,
        history=history,
        sound=(),
        isr_min=1,
        assigned=(1, 2, 3),
        put_back=put_back,
    )
    assert chosen == elected


@pytest.mark.parametrize(
    ("ends", "elected"), [({1: LogEnd(5, 9)}, None), ({1: LogEnd(5, 9), 2: LogEnd(5, 12)}, 2)]
)
def test_if_all_are_put_back_as_many_are_awaited_as_after_a_power_failure(ends, elected):
    chosen = choose(
        ends=ends,
        isr=(1, 2),
        history=None,
        sound=(),
        isr_min=2,
        assigned=(1, 2, 3),
        put_back={1, 2, 3},
    )
    assert chosen == elected


def test_a_replica_that_is_put_back_is_awaited_like_others_if_the_rest_lost_their_logs():
    chosen = choose(
        ends={1: LogEnd(5, 9), 2: NO_LOG, 3: NO_LOG},
        isr=(1, 2),
        history=None,
        sound=(),
        isr_min=1,
        assigned=(1, 2, 3),
        emptied={2, 3},
        put_back={1},
    )
    assert chosen == 1


def test_the_last_replica_that_left_has_what_the_remaining_one_has():
    left = {2: Left(isr_size=1, transaction_id=50), 3: Left(isr_size=2, transaction_id=40)}
    assert holders((1,), IsrHistory(7, 1, left=left)) == {1, 2}
    assert holders((1,), None) == {1}


def test_a_broker_that_is_not_assigned_any_more_is_not_waited_for():
    """Its log is deleted: the election would wait for it for ever."""
    chosen = choose(
        ends={1: LogEnd(5, 80), 3: LogEnd(5, 70)},
        isr=(1,),
        history=ONE_LEFT,
        sound=(),
        isr_min=2,
        assigned=(3, 1),
    )
    assert chosen == 1


@pytest.mark.parametrize(
    ("received", "isr_min", "elected"),
    [((1,), 2, None), ((1, 2), 2, 2), ((1,), 1, 1), ((1, 2), 3, None)],
)
def test_after_a_power_failure_min_insync_replicas_in_sync_replicas_are_waited_for(
    received, isr_min, elected
):
    ends = {replica: LogEnd(5, 80 + replica) for replica in received}
    chosen = choose(
        ends=ends, isr=(1, 2, 3), history=None, sound=(), isr_min=isr_min, assigned=(1, 2, 3)
    )
    assert chosen == elected


TOPIC = TopicPartition("t", 0)


class Settled:
    """A controller whose stores all succeed; its writes and requests are kept."""

    def __init__(self, brokers, state, *, replicas, adding=()):
        self.controller = Controller(controller_epoch=2)
        self.stored = []
        self.asked = []
        self.announced = []
        self.decisions = []
        assignment = Assignment(replicas=replicas, adding=adding)
        seen = TopicSeen(name="t", id=UUID(int=7), assignments={0: assignment})
        self.settle(BrokersLoaded(brokers))
        self.settle(TopicsLoaded((seen,), {TOPIC: state}))
        self.settle(LoadingFinished())

    def settle(self, event):
        trampoline = Trampoline(self.controller.handle)
        for effect in trampoline.settle(event):
            match effect:
                case Proceed(step):
                    trampoline.report(step)
                case StoreStates(proposals):
                    self.stored += [proposal.proposed for proposal in proposals]
                    accepted = [Accepted(p, p.proposed.partition_epoch + 1) for p in proposals]
                    trampoline.report(Stored(tuple(accepted)))
                case ReadLogEnds():
                    self.asked.append(effect)
                case RecordDecisions(decisions):
                    self.decisions += decisions
                case SendRequests(update):
                    self.announced += update


def broker(id_, epoch, *, clean_since=None, empty_since=-1, put_back_since=-1, noted_id=-1):
    return Broker(
        id=id_,
        end_points=(),
        broker_epoch=epoch,
        clean_since=epoch if clean_since is None else clean_since,
        empty_since=empty_since,
        put_back_since=put_back_since,
        noted_id=noted_id,
    )


def leaderless(*, isr, left):
    state = LeaderAndIsr(leader=NO_LEADER, leader_epoch=5, isr=isr, partition_epoch=7)
    history = IsrHistory(7, 1, left=left, isr=dict.fromkeys(isr, 50))
    return StoredState(state, 1, 60, history)


def test_a_log_end_from_before_a_restart_does_not_count():
    others = (broker(1, 100), broker(3, 102))
    state = leaderless(isr=(1,), left={2: Left(1, 50), 3: Left(1, 50)})
    settled = Settled((*others, broker(2, 101)), state, replicas=(1, 2, 3))
    (asked,) = settled.asked
    assert set(asked.replicas[TOPIC]) == {1, 2, 3}

    settled.settle(BrokersChanged((*others, broker(2, 200))))
    ends = {1: LogEnd(5, 80), 2: LogEnd(5, 100), 3: LogEnd(5, 90)}
    settled.settle(LogEndsRead({TOPIC: ends}, {"t": 2}))
    assert settled.stored[-1].leader == 3


@pytest.mark.parametrize(("left", "may_begin_anew"), [({}, True), ({3: Left(1, 50)}, False)])
def test_a_replica_that_is_being_added_creates_its_log_unless_it_was_in_sync_before(
    left, may_begin_anew
):
    """Otherwise a replica whose directory is offline would report an empty log."""
    brokers = (broker(1, 40), broker(2, 41), broker(3, 42))
    state = leaderless(isr=(1,), left=left)
    settled = Settled(brokers, state, replicas=(1, 2, 3), adding=(3,))
    notified = {
        update.broker: update.leader_and_isr
        for update in settled.announced
        if update.leader_and_isr
    }
    assert {id_: notified[id_][-1].is_new for id_ in notified} == {
        1: False,
        2: False,
        3: may_begin_anew,
    }


@pytest.mark.parametrize(("noted_id", "leader"), [(61, 2), (59, 1)])
def test_an_isr_written_before_a_restart_was_noted_does_not_prove_what_the_member_has(
    noted_id, leader
):
    """Broker 1 has registered in transaction 58, and the state was written in 60."""
    state = LeaderAndIsr(leader=3, leader_epoch=5, isr=(1, 2, 3), partition_epoch=7)
    brokers = broker(1, 58, noted_id=noted_id), broker(2, 10, noted_id=11)
    settled = Settled(brokers, StoredState(state, 1, 60), replicas=(1, 2, 3))
    assert settled.stored[-1].leader == leader


def test_a_leader_that_restarts_with_an_empty_directory_follows_the_replica_that_left_last():
    state = leaderless(isr=(1,), left={2: Left(1, 50), 3: Left(1, 40)})
    emptied = broker(1, 100, empty_since=100)
    settled = Settled((emptied, broker(3, 42)), state, replicas=(1, 2, 3))
    settled.settle(LogEndsRead({TOPIC: {1: NO_LOG, 3: LogEnd(5, 70)}}, {"t": 1}))
    assert settled.stored == [], "broker 2 left later, and is waited for"

    settled.settle(BrokersChanged((emptied, broker(2, 101), broker(3, 42))))
    ends = {1: NO_LOG, 2: LogEnd(5, 80), 3: LogEnd(5, 70)}
    settled.settle(LogEndsRead({TOPIC: ends}, {"t": 1}))
    (elected,) = settled.stored
    assert (elected.leader, elected.isr, elected.leader_recovery_state) == (2, (2,), RECOVERING)
    (text,) = [d for d in settled.decisions if d.verdict is Verdict.LEADER_ELECTED_UNCLEAN]
    assert str(text.cause) == "broker 1 registered with an empty log directory"


@pytest.mark.parametrize(
    ("empty_since", "known_in"),
    [(58, 60), (-1, 60)],
    ids=["it has caught up since", "it never lost any"],
)
def test_a_replica_that_lost_its_logs_before_it_caught_up_may_lead(empty_since, known_in):
    state = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=7)
    brokers = (broker(1, 61, clean_since=50, empty_since=empty_since), broker(2, 10))
    settled = Settled(brokers, StoredState(state, 1, known_in), replicas=(1, 2))
    partition = settled.controller.context.partition(TOPIC)
    assert settled.controller.context.emptied(partition, {1: NO_LOG}) == frozenset()


def test_a_leader_that_returns_with_an_older_copy_waits_for_the_replica_that_left_last():
    state = leaderless(isr=(1,), left={2: Left(1, 50), 3: Left(1, 40)})
    older = broker(1, 100, put_back_since=100)
    settled = Settled((older, broker(3, 42)), state, replicas=(1, 2, 3))
    settled.settle(LogEndsRead({TOPIC: {1: LogEnd(5, 40), 3: LogEnd(5, 70)}}, {"t": 1}))
    assert settled.stored == [], "broker 2 left later, and is waited for"

    settled.settle(BrokersChanged((older, broker(2, 101), broker(3, 42))))
    ends = {1: LogEnd(5, 40), 2: LogEnd(5, 80), 3: LogEnd(5, 70)}
    settled.settle(LogEndsRead({TOPIC: ends}, {"t": 1}))
    (elected,) = settled.stored
    assert (elected.leader, elected.isr, elected.leader_recovery_state) == (2, (2,), RECOVERING)
    (text,) = [d for d in settled.decisions if d.verdict is Verdict.LEADER_ELECTED_UNCLEAN]
    assert str(text.cause) == "broker 1 registered with an older copy of the log directories"


@pytest.mark.parametrize(("put_back_since", "awaited"), [(100, True), (58, False), (-1, False)])
def test_an_older_copy_counts_until_the_replica_is_in_sync_again(put_back_since, awaited):
    """In transaction 60 it was in the ISR; it is registered in 100, and was not stopped cleanly."""
    state = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=7)
    settled = Settled(
        (broker(1, 100, put_back_since=put_back_since),),
        StoredState(state, 1, 60),
        replicas=(1, 2),
    )
    settled.settle(LogEndsRead({TOPIC: {1: LogEnd(5, 9)}}, {"t": 1}))
    assert settled.stored[-1].leader == (NO_LEADER if awaited else 1)


def test_a_replica_in_another_directory_than_the_empty_one_may_lead():
    state = leaderless(isr=(1,), left={2: Left(1, 50), 3: Left(1, 40)})
    settled = Settled((broker(1, 100, empty_since=100),), state, replicas=(1, 2, 3))
    settled.settle(LogEndsRead({TOPIC: {1: LogEnd(5, 90)}}, {"t": 1}))
    (elected,) = settled.stored
    assert (elected.leader, elected.leader_recovery_state) == (1, RECOVERED)


def test_the_journal_has_the_number_of_replicas_that_a_broker_lost():
    state = LeaderAndIsr(leader=2, leader_epoch=5, isr=(2,), partition_epoch=7)
    settled = Settled((broker(2, 10),), StoredState(state, 1, 60), replicas=(1, 2))
    settled.settle(BrokersChanged((broker(1, 70, empty_since=70), broker(2, 10))))
    (text,) = [d for d in settled.decisions if d.verdict is Verdict.BROKER_EMPTY]
    assert (text.subject, text.detail) == (1, "replicas there: 1")
    assert str(text.cause) == "broker 1 registered with an empty log directory"
