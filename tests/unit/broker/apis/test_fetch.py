"""Fetch: what is read, how much of it, and when a waiting request is answered."""

import asyncio

import pytest
from tests.unit.broker.live import (
    OwnSocket,
    fetch,
    fetched,
    part_of,
    play,
    produce,
    soon,
    values,
)

from odradek.broker.serving.session import AllowAll
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.record.control import ControlType
from odradek.replica.selector import RACK_AWARE
from odradek.sim.world.disk import DiskFault, SimulatedFile
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, ReplicaState
from odradek.wire.messages.metadata import MetadataRequest

T0 = ("t", 0)
T1 = ("t", 1)
BY_NAME = 12
READ_COMMITTED = 1
NEVER_MS = 600_000


class Denying(AllowAll):
    """Denies what is named; or all but what is allowed."""

    def __init__(self, *denied, allowed=None):
        self.denied, self.allowed = denied, allowed

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        acl = (operation, resource_type, name)
        return acl not in self.denied if self.allowed is None else acl == self.allowed


def asked(offset, *, max_bytes=1 << 20, **more):
    return FetchPartition(fetch_offset=offset, partition_max_bytes=max_bytes, **more)


async def followed(live, replica, offset, **more):
    """Fetch as a follower, which acknowledges everything below the offset."""
    request = fetch({T0: asked(offset, **more)}, replica_id=replica, max_wait_ms=0)
    return await live.peer().ask(request, BY_NAME)


# -------------------------------------------------------------------------------- waiting


def test_what_is_there_is_answered_at_once():
    async def story(live):
        await live.topic("t")
        live.append(b"a", b"b")
        live.append(b"c")
        answer = live.peer().send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)

        assert answer.done()
        part = part_of(answer.result())
        assert values(part.records) == [b"a", b"b", b"c"]
        assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (3, 3, 0)
        assert part.preferred_read_replica == -1

    play(story)


@pytest.mark.parametrize(("hold_ms", "waited_s"), [(300, 0.0), (0, 0.5)])
def test_a_waiting_fetch_is_answered_before_another_request_of_its_connection(hold_ms, waited_s):
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        waiting = peer.send(fetch({T0: 0}, max_wait_ms=500), BY_NAME)
        begun = live.loop.time()

        await peer.ask(MetadataRequest(topics=None))
        assert live.loop.time() - begun == pytest.approx(waited_s, abs=0.05)
        assert fetched(await waiting) == {T0: []}
        again = peer.send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        await asyncio.sleep(1)
        assert not again.done(), "the next one waits again"

    play(story, odradek_metadata_hold_ms=hold_ms)


def test_an_append_wakes_waiting_fetches():
    async def story(live):
        await live.topic("t")
        answer = live.peer().send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        assert not answer.done()
        await live.peer().ask(produce(live.batch(b"a")))

        assert fetched(await soon(answer)) == {T0: [b"a"]}
        assert live.broker.purgatory.size == 0

    play(story)


def test_one_waits_for_all_its_partitions_and_the_first_to_come_answers():
    async def story(live):
        await live.topic("t", 2)
        answer = live.peer().send(fetch({T0: 0, T1: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        live.append(b"b", index=1)

        assert fetched(await soon(answer)) == {T0: [], T1: [b"b"]}

    play(story)


def test_min_bytes_are_waited_for_over_many_appends():
    async def story(live):
        await live.topic("t", 2)
        size = len(live.batch(b"x" * 100))
        request = fetch({T0: 0, T1: 0}, min_bytes=3 * size, max_wait_ms=NEVER_MS)
        answer = live.peer().send(request, BY_NAME)
        for index in (0, 1):
            live.append(b"x" * 100, index=index)
            await asyncio.sleep(0.01)
            assert not answer.done()
        live.append(b"x" * 100)

        assert {name: len(found) for name, found in fetched(await soon(answer)).items()} == {
            T0: 2,
            T1: 1,
        }

    play(story)


def test_what_is_there_already_counts_towards_min_bytes():
    async def story(live):
        await live.topic("t")
        live.append(b"x" * 100)
        size = live.log().size_bytes
        request = fetch({T0: 0}, min_bytes=2 * size, max_wait_ms=NEVER_MS)
        answer = live.peer().send(request, BY_NAME)
        assert not answer.done()
        live.append(b"y" * 100)

        assert fetched(await soon(answer)) == {T0: [b"x" * 100, b"y" * 100]}

    play(story)


def test_what_is_below_min_bytes_is_answered_when_the_time_is_up():
    async def story(live):
        await live.topic("t")
        live.append(b"a")
        started = live.loop.time()
        answer = await live.peer().ask(fetch({T0: 0}, min_bytes=1 << 20, max_wait_ms=300), BY_NAME)

        assert fetched(answer) == {T0: [b"a"]}
        assert 0.3 <= live.loop.time() - started < 0.32

    play(story)


def test_the_end_of_a_segment_is_answered_at_once_if_another_stands_behind_it():
    async def story(live):
        await live.topic("t", segment_bytes=1024)
        live.append(b"x" * 600)
        live.append(b"y" * 600)
        request = fetch({T0: 0}, min_bytes=2_000, max_wait_ms=NEVER_MS)
        answer = live.peer().send(request, BY_NAME)

        assert fetched(await soon(answer)) == {T0: [b"x" * 600]}

        last = live.peer().send(fetch({T0: 1}, min_bytes=2_000, max_wait_ms=NEVER_MS), BY_NAME)
        await asyncio.sleep(0.01)
        assert not last.done()

    play(story)


def test_with_nothing_to_read_the_answer_is_empty_and_not_null():
    async def story(live):
        await live.topic("t")
        started = live.loop.time()
        answer = await live.peer().ask(fetch({T0: 0}, max_wait_ms=100), BY_NAME)

        assert bytes(part_of(answer).records) == b""
        assert 0.1 <= live.loop.time() - started < 0.12
        at_once = live.peer().send(fetch({T0: 0}, max_wait_ms=0), BY_NAME)
        assert at_once.done()
        at_once = live.peer().send(fetch({T0: 0}, min_bytes=0), BY_NAME)
        assert at_once.done()

    play(story)


def test_consumers_read_what_is_committed_and_are_woken_by_the_high_watermark():
    async def story(live):
        await live.order()
        live.append(b"a")
        answer = live.peer().send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        live.append(b"b")
        await followed(live, 2, 2)
        await asyncio.sleep(0.01)
        assert not answer.done()
        await followed(live, 3, 1)

        assert fetched(await soon(answer)) == {T0: [b"a"]}

    play(story)


@pytest.mark.parametrize("woken", [False, True])
def test_a_fetch_of_a_closed_connection_is_dropped(woken):
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        peer.send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        assert live.broker.purgatory.size == 1
        if woken:
            live.append(b"a")
        peer.hang_up()
        await asyncio.sleep(0.01)

        assert live.broker.purgatory.size == 0
        assert live.partition().watches is None

    play(story)


# ----------------------------------------------------------------------------- how much


def test_the_first_batch_is_given_however_large_and_no_more():
    async def story(live):
        await live.topic("t")
        live.append(b"x" * 5000)
        live.append(b"y")
        answer = await live.peer().ask(fetch({T0: asked(0, max_bytes=10)}), BY_NAME)
        assert values(part_of(answer).records) == [b"x" * 5000]

        answer = await live.peer().ask(fetch({T0: 0}, max_bytes=10), BY_NAME)
        assert values(part_of(answer).records) == [b"x" * 5000]

    play(story)


def test_only_the_first_partition_with_data_may_go_above_the_limit():
    async def story(live):
        await live.topic("t", 3)
        live.append(b"x" * 1000, index=1)
        live.append(b"y" * 1000, index=2)
        offsets = {("t", n): 0 for n in range(3)}
        answer = fetched(await live.peer().ask(fetch(offsets, max_bytes=100), BY_NAME))

        assert answer == {T0: [], T1: [b"x" * 1000], ("t", 2): []}

    play(story)


def test_what_fits_is_given_up_to_max_bytes():
    async def story(live):
        await live.topic("t", 2)
        size = len(live.batch(b"x" * 100))
        for index in (0, 1):
            for _ in range(3):
                live.append(b"x" * 100, index=index)
        request = fetch({T0: asked(0, max_bytes=2 * size), T1: 0}, max_bytes=4 * size)
        answer = fetched(await live.peer().ask(request, BY_NAME))

        assert {name: len(found) for name, found in answer.items()} == {T0: 2, T1: 2}

    play(story)


def test_the_brokers_own_limit_holds():
    async def story(live):
        await live.topic("t", 2)
        for index in (0, 1):
            live.append(b"x" * 2000, index=index)
        answer = fetched(await live.peer().ask(fetch({T0: 0, T1: 0}), BY_NAME))

        assert {name: len(found) for name, found in answer.items()} == {T0: 1, T1: 0}

    play(story, fetch_max_bytes=1024)


# --------------------------------------------------------------------------------- errors


def test_out_of_range_on_both_sides_is_answered_at_once():
    async def story(live):
        await live.topic("t")
        for _ in range(5):
            live.append(b"a")
        live.log().advance_log_start(2)
        for offset in (1, 6):
            answer = live.peer().send(fetch({T0: offset}, max_wait_ms=NEVER_MS), BY_NAME)
            part = part_of(answer.result())
            assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (part.high_watermark, part.log_start_offset) == (-1, -1)

    play(story)


def test_a_consumer_behind_the_high_watermark_waits_for_it():
    async def story(live):
        await live.order()
        for _ in range(3):
            live.append(b"a")
        answer = await live.peer().ask(fetch({T0: 2}, max_wait_ms=50), BY_NAME)

        assert fetched(answer) == {T0: []}, "offset 2 is there, and not committed"

    play(story)


def test_unknown_and_elsewhere():
    async def story(live):
        await live.topic("t")
        await live.order("followed", leader=2)
        offsets = {("t", 9): 0, ("absent", 0): 0, ("followed", 0): 0, T0: 0}
        answer = live.peer().send(fetch(offsets, max_wait_ms=NEVER_MS), BY_NAME)

        assert fetched(answer.result()) == {
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("followed", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            T0: [],
        }

    play(story)


def test_topic_ids_are_resolved_and_unknown_ones_answered_with_an_error():
    async def story(live):
        known = (await live.topic("t")).topic_id
        live.append(b"a")
        unknown = b"?" * 16
        answer = await live.peer().ask(fetch({(known, 0): 0, (unknown, 0): 0, (known, 9): 0}))

        assert fetched(answer) == {
            (known, 0): [b"a"],
            (unknown, 0): ErrorCode.UNKNOWN_TOPIC_ID,
            (known, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    play(story)


def test_leader_epochs_fence_the_asker():
    async def story(live):
        await live.order(leader_epoch=3)
        for epoch, error in (
            (2, ErrorCode.FENCED_LEADER_EPOCH),
            (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (3, []),
            (-1, []),
        ):
            request = fetch({T0: asked(0, current_leader_epoch=epoch)}, max_wait_ms=0)
            assert fetched(await live.peer().ask(request, BY_NAME)) == {T0: error}

    play(story)


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"leader": 2, "leader_epoch": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_new_leader_epoch_answers_waiting_fetches(order, error):
    async def story(live):
        await live.order()
        request = fetch({T0: asked(0, current_leader_epoch=0)}, max_wait_ms=NEVER_MS)
        answer = live.peer().send(request, BY_NAME)
        assert not answer.done()
        await live.order(**order)
        await asyncio.sleep(0.01)

        assert answer.done()
        assert fetched(answer.result()) == {T0: error}

    play(story)


def test_deletion_answers_waiting_fetches():
    async def story(live):
        topic_id = (await live.topic("t")).topic_id
        peer = live.peer()
        by_name = peer.send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        by_id = live.peer().send(fetch({(topic_id, 0): 0}, max_wait_ms=NEVER_MS))
        await live.peer().ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        )

        assert fetched(await soon(by_name))[T0] in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        assert fetched(await soon(by_id))[topic_id, 0] in (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )

    play(story)


def test_the_stop_of_the_broker_answers_waiting_fetches():
    async def story(live):
        await live.topic("t")
        answer = live.peer().send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        await live.broker.stop()

        assert fetched(answer.result()) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(story)


# -------------------------------------------------------------------------- authorization


def test_what_may_not_be_read_fails_alone_and_does_not_show_whether_it_exists():
    async def story(live):
        await live.topic("t")
        await live.topic("secret")
        live.append(b"a")
        live.authorizer.chosen = Denying(
            (AclOperation.READ, ResourceType.TOPIC, "secret"),
            (AclOperation.READ, ResourceType.TOPIC, "absent"),
        )
        answer = await live.peer().ask(fetch({T0: 0, ("secret", 0): 0, ("absent", 0): 0}), BY_NAME)

        assert fetched(answer) == {
            T0: [b"a"],
            ("secret", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ("absent", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }

    play(story)


@pytest.mark.parametrize("version", [BY_NAME, 17])
def test_only_clients_with_cluster_action_fetch_as_followers(version):
    async def story(live):
        await live.order()
        live.append(b"uncommitted")
        live.authorizer.chosen = Denying(
            (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
        )
        if version == BY_NAME:
            request = fetch({T0: 0, ("absent", 0): 0}, replica_id=2, max_wait_ms=0)
        else:
            topic_id = live.partition().topic_id
            request = fetch({(topic_id, 0): 0}, max_wait_ms=0)
            request.replica_state = ReplicaState(replica_id=2, replica_epoch=1)
        answer = await live.peer().ask(request, version)

        assert set(fetched(answer).values()) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert live.partition().leader.followers[2].leo == -1, "and acknowledges nothing"

    play(story)


# ------------------------------------------------------------------------- read_committed


def test_read_committed_stops_at_the_first_open_transaction():
    async def story(live):
        await live.topic("t")
        live.append(b"a")
        live.append(b"b", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        live.append(b"c")
        request = fetch({T0: 0}, isolation_level=READ_COMMITTED, max_wait_ms=0)
        part = part_of(await live.peer().ask(request, BY_NAME))

        assert values(part.records) == [b"a"]
        assert (part.high_watermark, part.last_stable_offset) == (3, 1)
        assert part.aborted_transactions == []
        part = part_of(await live.peer().ask(fetch({T0: 0}), BY_NAME))
        assert values(part.records) == [b"a", b"b", b"c"], "read_uncommitted reads on"
        assert part.aborted_transactions is None

    play(story)


@pytest.mark.parametrize("how", list(ControlType))
def test_the_end_of_a_transaction_wakes_read_committed(how):
    async def story(live):
        await live.topic("t")
        live.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        request = fetch({T0: 0}, isolation_level=READ_COMMITTED, max_wait_ms=NEVER_MS)
        answer = live.peer().send(request, BY_NAME)
        live.append(b"b")
        await asyncio.sleep(0.01)
        assert not answer.done()
        live.mark(how, 5)
        part = part_of(await soon(answer))

        assert values(part.records) == [b"a", b"b"]
        assert part.last_stable_offset == 3
        aborted = [(t.producer_id, t.first_offset) for t in part.aborted_transactions]
        assert aborted == ([(5, 0)] if how is ControlType.ABORT else [])

    play(story)


def test_aborted_transactions_are_those_of_what_is_read():
    async def story(live):
        await live.topic("t")
        ids = (5, 6, 7)
        for producer_id in ids:  # three aborted transactions of two offsets each
            live.append(
                b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
            )
            live.mark(ControlType.ABORT, producer_id)
        request = fetch({T0: 2}, isolation_level=READ_COMMITTED)
        part = part_of(await live.peer().ask(request, BY_NAME))

        assert [(t.producer_id, t.first_offset) for t in part.aborted_transactions] == [
            (6, 2),
            (7, 4),
        ]

    play(story)


def test_a_marker_that_is_not_replicated_ends_nothing():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        live.mark(ControlType.COMMIT, 5)
        await followed(live, 2, 1)
        request = fetch({T0: 0}, isolation_level=READ_COMMITTED, max_wait_ms=0)
        assert fetched(await live.peer().ask(request, BY_NAME)) == {T0: []}

        await followed(live, 2, 2)
        assert fetched(await live.peer().ask(request, BY_NAME)) == {T0: [b"a"]}

    play(story)


# ------------------------------------------------------------------------------ followers


def test_a_follower_reads_to_the_end_of_the_log_and_acknowledges_by_asking():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        live.append(b"b")
        part = part_of(await followed(live, 2, 0))
        assert values(part.records) == [b"a", b"b"]
        assert part.high_watermark == 0
        assert live.log().high_watermark == 0

        part = part_of(await followed(live, 2, 2))
        assert live.log().high_watermark == 2
        assert part.high_watermark == 2

    play(story)


async def idle_follower(live):
    """Follower 2 has everything and waits for more; follower 3 has not acknowledged it."""
    await live.order()
    live.append(b"a")
    peer, more = await begun_session(live, 1)
    answer = peer.send(fetch({}, session_epoch=1, max_wait_ms=NEVER_MS, **more), BY_NAME)
    assert not answer.done()
    return answer


async def begun_session(live, offset):
    """Follower 2 has begun a session at this offset: its connection, and what names the session."""
    peer = live.peer()
    first = await peer.ask(
        fetch({T0: offset}, replica_id=2, max_wait_ms=0, session_epoch=0), BY_NAME
    )
    return peer, {"replica_id": 2, "session_id": first.session_id}


def test_a_waiting_follower_gets_a_newer_high_watermark_within_milliseconds():
    async def story(live):
        answer = await idle_follower(live)
        begun_s = live.loop.time()
        await followed(live, 3, 1)
        assert not answer.done(), "perhaps there are records in a moment"

        part = part_of(await soon(answer))
        assert (part.high_watermark, bytes(part.records)) == (1, b"")
        assert live.loop.time() - begun_s < 0.02

    play(story)


def test_a_newer_high_watermark_goes_with_the_next_records():
    async def story(live):
        answer = await idle_follower(live)
        await followed(live, 3, 1)
        live.append(b"b")

        part = part_of(await soon(answer))
        assert (part.high_watermark, values(part.records)) == (1, [b"b"])

    play(story)


def test_the_follower_whose_fetch_moves_the_high_watermark_waits_for_it_like_the_others():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        peer, more = await begun_session(live, 0)
        answer = peer.send(fetch({T0: 1}, session_epoch=1, max_wait_ms=NEVER_MS, **more), BY_NAME)
        assert live.log().high_watermark == 1
        assert not answer.done()

        assert part_of(await soon(answer)).high_watermark == 1

    play(story)


def test_a_follower_that_has_everything_gets_a_newer_log_start_at_once():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        peer, more = await begun_session(live, 0)
        second = await peer.ask(fetch({T0: 1}, session_epoch=1, max_wait_ms=0, **more), BY_NAME)
        assert part_of(second).high_watermark == 1

        live.log().advance_log_start(1)
        third = peer.send(fetch({T0: 1}, session_epoch=2, max_wait_ms=NEVER_MS, **more), BY_NAME)

        assert part_of(third.result()).log_start_offset == 1

    play(story)


def test_where_consumers_read_from_followers_a_newer_high_watermark_is_answered_at_once():
    async def story(live):
        answer = await idle_follower(live)
        begun_s = live.loop.time()
        await followed(live, 3, 1)

        assert part_of(await soon(answer)).high_watermark == 1
        assert live.loop.time() == begun_s

    play(story, replica_selector_class=RACK_AWARE)


def test_what_followers_read_is_counted_as_replication():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        size = live.log().size_bytes
        await followed(live, 2, 0)
        metrics = live.broker.metrics
        assert metrics.topics["t"].bytes_out == 0
        assert metrics.replication_bytes_out == size
        await followed(live, 2, 1)
        await live.peer().ask(fetch({T0: 0}), BY_NAME)

        assert metrics.topics["t"].bytes_out == size
        assert metrics.replication_bytes_out == size

    play(story)


def test_a_follower_that_waits_is_woken_by_an_append():
    async def story(live):
        await live.order()
        answer = live.peer().send(fetch({T0: 0}, replica_id=2, max_wait_ms=NEVER_MS), BY_NAME)
        live.append(b"a")

        assert fetched(await soon(answer)) == {T0: [b"a"]}

    play(story)


def test_a_stranger_is_given_and_acknowledges_nothing():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        for epoch, error in (
            (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            part = part_of(await followed(live, 9, 1, current_leader_epoch=epoch))
            assert part.error_code == error
        assert live.log().high_watermark == 0

        await followed(live, 2, 1, current_leader_epoch=7)
        assert live.log().high_watermark == 0, "nor does a follower with another leader epoch"

    play(story)


def test_a_follower_ahead_of_the_leader_acknowledges_nothing():
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        part = part_of(await followed(live, 2, 5))

        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for _ in range(4):
            live.append(b"b")
        assert live.log().high_watermark == 0

    play(story)


def test_a_diverging_follower_gets_the_diverging_epoch_and_acknowledges_nothing():
    async def story(live):
        await live.order(replicas=(0, 2), leader_epoch=1)
        for _ in range(3):
            live.append(b"a")
        await live.order(replicas=(0, 2), leader_epoch=4)
        for _ in range(3):
            live.append(b"b")
        # The follower has five records of epoch 1, of which the leader has three.
        answer = live.peer().send(
            fetch({T0: asked(5, last_fetched_epoch=1)}, replica_id=2, max_wait_ms=NEVER_MS), BY_NAME
        )
        part = part_of(answer.result())
        assert (part.error_code, bytes(part.records)) == (0, b"")
        assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (1, 3)
        assert live.log().high_watermark == 0

        # The epoch is not in the leader's log: the answer is the one before it.
        for offset in (2, 5):
            part = part_of(await followed(live, 2, offset, last_fetched_epoch=3))
            assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (1, 3)
        assert live.log().high_watermark == 0

        part = part_of(await followed(live, 2, 3, last_fetched_epoch=1))
        assert part.diverging_epoch is None
        assert values(part.records) == [b"b"] * 3
        assert live.log().high_watermark == 3

    play(story)


def test_an_epoch_that_the_leader_cannot_place_is_out_of_range():
    async def story(live):
        await live.order(replicas=(0, 2), leader_epoch=1)
        for _ in range(3):
            live.append(b"a")
        part = part_of(await followed(live, 2, 2, last_fetched_epoch=9))

        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert part.diverging_epoch is None
        assert live.log().high_watermark == 0, "and acknowledges nothing"

    play(story)


def test_below_the_log_start_offset_divergence_is_not_reported():
    async def story(live):
        await live.order(replicas=(0,), leader_epoch=1)
        for _ in range(3):
            live.append(b"a")
        await live.order(replicas=(0, 2), leader_epoch=4, isr=(0,))
        live.append(b"b")
        live.log().advance_log_start(3)
        part = part_of(await followed(live, 2, 1, last_fetched_epoch=2))
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

        part = part_of(await followed(live, 2, 3, last_fetched_epoch=4))
        assert (part.error_code, values(part.records)) == (ErrorCode.NONE, [b"b"])

    play(story)


def test_epoch_0_and_broker_0_are_an_epoch_and_a_broker():
    async def story(live):
        await live.order(leader=1, replicas=(1, 0))
        for _ in range(2):
            live.append(b"a")
        await live.order(leader=1, replicas=(1, 0), leader_epoch=3)
        live.append(b"b")
        part = part_of(await followed(live, 0, 5, last_fetched_epoch=0))
        assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 2)

        part = part_of(await followed(live, 0, 2, last_fetched_epoch=0))
        assert values(part.records) == [b"b"], "to the end of the log, as a follower"
        await followed(live, 0, 3, last_fetched_epoch=3)
        assert live.log().high_watermark == 3
        part = part_of(await followed(live, 9, 0))
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(story, broker_id=1)


def test_broker_0_is_not_served_as_a_consumer_is():
    async def story(live):
        await live.order(leader=1, replicas=(1, 0, 2))
        live.append(b"a")
        session = await live.peer().ask(
            fetch({T0: 1}, replica_id=0, max_wait_ms=0, session_epoch=0), BY_NAME
        )
        answer = live.peer().send(
            fetch(
                {},
                replica_id=0,
                max_wait_ms=NEVER_MS,
                session_id=session.session_id,
                session_epoch=1,
            ),
            BY_NAME,
        )
        await followed(live, 2, 1)
        assert part_of(await soon(answer)).high_watermark == 1, "answered at once"
        may_act = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
        live.authorizer.chosen = Denying(allowed=may_act)
        part = part_of(await followed(live, 0, 0))
        assert values(part.records) == [b"a"], "it needs no right to each topic"
        await live.order("v", leader=1, replicas=(1, 2))
        part = part_of(
            await live.peer().ask(fetch({("v", 0): 0}, replica_id=0, max_wait_ms=0), BY_NAME), "v"
        )
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(story, broker_id=1)


# ------------------------------------------------------------------------------- the disk


def test_what_is_not_in_memory_is_loaded_and_then_answered():
    async def story(live):
        await live.topic("t")
        live.append(b"a")
        live.disk.cold_share = 1.0
        answer = live.peer().send(fetch({T0: 0}, max_wait_ms=NEVER_MS), BY_NAME)
        assert not answer.done(), "the disk is asked, and the loop goes on"

        assert fetched(await soon(answer)) == {T0: [b"a"]}

    play(story)


def test_many_cold_partitions():
    async def story(live):
        await live.topic("t", 8)
        for index in range(8):
            live.append(b"a", index=index)
        live.disk.cold_share = 0.5
        offsets = {("t", index): 0 for index in range(8)}
        answer = await live.peer().ask(fetch(offsets, max_wait_ms=NEVER_MS), BY_NAME)

        assert fetched(answer) == {key: [b"a"] for key in offsets}

    play(story)


def test_a_disk_slower_than_the_asker_does_not_make_it_wait():
    async def story(live):
        await live.topic("t")
        live.append(b"a")
        live.disk.cold_share, live.disk.slowest_ms = 1.0, 10_000_000
        started = live.loop.time()
        answer = await live.peer().ask(fetch({T0: 0}, max_wait_ms=200), BY_NAME)

        assert fetched(answer) == {T0: []}
        assert live.loop.time() - started < 0.22
        live.disk.cold_share = 0.0

    play(story)


@pytest.mark.parametrize("cold", [0.0, 1.0])
def test_a_read_that_fails_is_a_storage_error_and_takes_the_directory_along(cold):
    async def story(live):
        await live.topic("t", 2)
        for index in (0, 1):
            live.append(b"a", index=index)
        live.disk.cold_share = cold
        live.disk.faults.append(DiskFault("read", "t-0/", times=1 << 30))
        peer = live.peer()
        answer = await peer.ask(fetch({T0: 0, T1: 0}, max_wait_ms=100), BY_NAME)

        assert fetched(answer)[T0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert not peer.closed
        live.disk.faults.clear()
        answer = await peer.ask(fetch({T0: 0, T1: 0}), BY_NAME)
        assert fetched(answer) == {T0: ErrorCode.KAFKA_STORAGE_ERROR, T1: [b"a"]}

    play(story)


# --------------------------------------------------------------------- more than a peer is given


async def many_megabytes(live):
    """A topic with 3 MB in each of two partitions, and the answer to a fetch of everything."""
    await live.topic("t", 2, max_message_bytes=str(2 << 20))
    wanted = {}
    for index in (0, 1):
        batches = [bytes([65 + index]) * 1_000_000, b"b" * 1_000_000, b"c" * 1_000_000]
        for value in batches:
            live.append(value, index=index)
        wanted["t", index] = batches
    return wanted


def test_what_is_read_late_is_all_there():
    async def story(live):
        wanted = await many_megabytes(live)
        request = fetch({T0: asked(0, max_bytes=50 << 20), T1: asked(0, max_bytes=50 << 20)})
        response = await live.peer().ask(request, BY_NAME)

        assert fetched(response) == wanted

    play(story)


@pytest.fixture
def offered(monkeypatch):
    """The bytes of files that were offered to the socket of a connection, which has taken none."""
    found = []

    def send(file, position, length, to):
        found.append(length)
        return 0

    monkeypatch.setattr(SimulatedFile, "send", send)
    return found


def test_many_records_are_offered_to_the_socket_and_few_are_not(offered):
    async def story(live):
        await live.topic("t", 2, max_message_bytes=str(2 << 20))
        live.append(b"a" * 200_000)
        live.append(b"b" * 100_000, index=1)
        peer = live.peer(own_socket=OwnSocket())
        response = await peer.ask(fetch({T0: 0, T1: 0}), BY_NAME)

        assert fetched(response) == {T0: [b"a" * 200_000], T1: [b"b" * 100_000]}
        assert len(offered) == 1
        assert offered[0] in range(200_000, 200_200)

    play(story)


def test_records_of_a_follower_are_read_into_memory(offered):
    async def story(live):
        await live.order()
        live.append(b"a" * 200_000)
        request = fetch({T0: 0}, replica_id=2, max_wait_ms=0)
        response = await live.peer(own_socket=OwnSocket()).ask(request, BY_NAME)

        assert fetched(response) == {T0: [b"a" * 200_000]}
        assert not offered

    play(story)


def test_a_connection_without_a_socket_of_its_own_is_offered_nothing(offered):
    async def story(live):
        await live.topic("t", max_message_bytes=str(2 << 20))
        live.append(b"a" * 200_000)
        assert fetched(await live.peer().ask(fetch({T0: 0}), BY_NAME)) == {T0: [b"a" * 200_000]}
        assert not offered

    play(story)


def test_records_that_are_not_in_memory_when_their_turn_comes_are_waited_for():
    async def story(live):
        wanted = await many_megabytes(live)
        request = fetch({T0: asked(0, max_bytes=50 << 20), T1: asked(0, max_bytes=50 << 20)})
        live.disk.cold_share = 0.5
        response = await live.peer().ask(request, BY_NAME)
        live.disk.cold_share = 0.0

        assert fetched(response)[T0] == wanted[T0]

    play(story)


def test_a_fetch_behind_one_that_waits_is_executed_when_that_is_answered():
    async def story(live):
        await live.topic("t", 2)
        live.append(b"a", index=1)
        peer = live.peer()
        first = peer.send(fetch({T0: 0}, max_wait_ms=1_000), BY_NAME)
        second = peer.send(fetch({T1: 0}), BY_NAME)
        live.append(b"b", index=1)
        await first

        assert fetched(await second) == {T1: [b"a", b"b"]}, "as it is now, not as it was"
        assert live.broker.purgatory.size == 0

    play(story)
