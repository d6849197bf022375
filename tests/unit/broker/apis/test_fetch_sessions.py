"""Fetch sessions (KIP-227): a full response first, and then only what has changed."""

import asyncio

from tests.unit.broker.live import fetch, fetched, part_of, play, soon, values

from odradek.model.errors import ErrorCode
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import ForgottenTopic, ReplicaState

T0 = ("t", 0)
T1 = ("t", 1)
T2 = ("t", 2)
BY_NAME = 12
BY_ID = 17
NEVER_MS = 600_000


class Fetcher:
    """A client with a session: it keeps its id and epoch."""

    def __init__(self, live, version=BY_NAME, **always):
        self.peer = live.peer()
        self.version = version
        self.always = {"max_wait_ms": 0, **always}
        self.session_id, self.session_epoch = 0, 0

    def send(self, offsets=None, **more):
        request = fetch(
            offsets or {},
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            **{**self.always, **more},
        )
        self.session_epoch += 1
        return self.peer.send(request, self.version)

    async def ask(self, offsets=None, **more):
        response = await self.send(offsets, **more)
        self.session_id = response.session_id
        return response


def sessions(live):
    return live.broker.fetch.sessions


def test_a_new_session_names_all_and_then_only_changes():
    async def story(live):
        await live.topic("t", 3)
        live.append(b"a")
        fetcher = Fetcher(live)
        first = await fetcher.ask({T0: 0, T1: 0, T2: 0})
        assert first.session_id > 0
        assert fetched(first) == {T0: [b"a"], T1: [], T2: []}
        assert fetched(await fetcher.ask({T0: 1})) == {}

        live.append(b"b", index=2)
        second = await fetcher.ask()
        assert fetched(second) == {T2: [b"b"]}
        assert second.session_id == first.session_id

    play(story)


def test_without_a_session_all_are_named_every_time():
    async def story(live):
        await live.topic("t", 2)
        for _ in range(2):
            request = fetch({T0: 0, T1: 0}, session_epoch=-1, max_wait_ms=0)
            response = await live.peer().ask(request, BY_NAME)
            assert (response.session_id, fetched(response)) == (0, {T0: [], T1: []})
        assert len(sessions(live)) == 0
        assert live.partition().watches is None

    play(story)


def test_versions_before_sessions_have_none():
    async def story(live):
        await live.topic("t")
        live.append(b"a")
        for version in (4, 5, 6):
            assert fetched(await live.peer().ask(fetch({T0: 0}), version)) == {T0: [b"a"]}
        assert len(sessions(live)) == 0

    play(story)


def test_a_waiting_incremental_fetch_is_woken_by_what_it_did_not_name_again():
    async def story(live):
        await live.topic("t", 3)
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 0, T1: 0, T2: 0})
        answer = fetcher.send(max_wait_ms=NEVER_MS)
        assert not answer.done()
        live.append(b"a", index=1)

        assert fetched(await soon(answer)) == {T1: [b"a"]}

    play(story)


def test_what_did_not_fit_comes_next_without_being_named_again():
    async def story(live):
        await live.topic("t", 3)
        for index in range(3):
            live.append(b"x" * 1000, index=index)
        fetcher = Fetcher(live, max_bytes=500)
        first = await fetcher.ask({T0: 0, T1: 0, T2: 0})
        assert fetched(first) == {T0: [b"x" * 1000], T1: [], T2: []}

        assert fetched(await fetcher.ask({T0: 1})) == {T1: [b"x" * 1000]}
        assert fetched(await fetcher.ask({T1: 1})) == {T2: [b"x" * 1000]}
        assert fetched(await fetcher.ask({T2: 1})) == {}

    play(story)


def test_what_did_not_fit_stays_ready_without_further_changes():
    async def story(live):
        await live.topic("t", 3)
        for index in (1, 2):
            live.append(b"x" * 1000, index=index)
        fetcher = Fetcher(live, max_bytes=500)
        await fetcher.ask({T0: 0, T1: 0, T2: 0})
        again = fetched(await fetcher.ask({T0: 0, T1: 0, T2: 0}))
        assert again == {T1: [b"x" * 1000]}, "nothing in the first, no room for the last"
        removed = [ForgottenTopic(topic="t", partitions=[1])]

        assert fetched(await fetcher.ask(forgotten_topics_data=removed)) == {T2: [b"x" * 1000]}

    play(story)


def test_partitions_take_turns():
    async def story(live):
        count = 5
        await live.topic("t", count)
        for _ in range(4):
            for index in range(count):
                live.append(b"x" * 1000, index=index)
        fetcher = Fetcher(live, max_bytes=500)
        offsets = {("t", index): 0 for index in range(count)}
        served = []
        named = dict(offsets)
        for _ in range(3 * count):
            response = await fetcher.ask(named)
            (name,) = [name for name, found in fetched(response).items() if found]
            served.append(name[1])
            offsets[name] += 1
            named = {name: offsets[name]}

        assert served == list(range(count)) * 3

    play(story)


def test_a_consumer_that_does_not_advance_gets_the_same_again():
    async def story(live):
        await live.topic("t")
        live.append(b"a")
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 0})

        assert fetched(await fetcher.ask()) == {T0: [b"a"]}
        assert fetched(await fetcher.ask({T0: 1})) == {}

    play(story)


def test_a_partition_that_does_not_advance_does_not_hold_up_the_others():
    async def story(live):
        await live.topic("t", 3)
        for index in (1, 2):
            live.append(b"x" * 1000, index=index)
        fetcher = Fetcher(live, max_bytes=500)
        await fetcher.ask({T0: 0, T1: 0, T2: 0})
        served = [list(fetched(await fetcher.ask())) for _ in range(4)]

        assert served == [[T2], [T1], [T2], [T1]]

    play(story)


def test_removed_partitions_are_not_answered():
    async def story(live):
        await live.topic("t", 2)
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 0, T1: 0})
        removed = [ForgottenTopic(topic="t", partitions=[0])]
        assert fetched(await fetcher.ask(forgotten_topics_data=removed)) == {}
        live.append(b"a")
        live.append(b"b", index=1)

        assert fetched(await fetcher.ask()) == {T1: [b"b"]}
        assert live.partition().watches is None
        assert fetched(await fetcher.ask({T0: 0, T1: 1})) == {T0: [b"a"]}

    play(story)


def test_a_session_without_partitions_is_closed_and_does_not_wait():
    async def story(live):
        await live.topic("t")
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 0})
        removed = [ForgottenTopic(topic="t", partitions=[0])]
        answer = fetcher.send(forgotten_topics_data=removed, max_wait_ms=NEVER_MS)

        assert answer.done()
        assert (answer.result().session_id, fetched(answer.result())) == (0, {})
        assert len(sessions(live)) == 0

    play(story)


def test_a_session_of_nothing_is_not_begun():
    async def story(live):
        response = await live.peer().ask(fetch({}, session_epoch=0, max_wait_ms=NEVER_MS), 12)
        assert (response.session_id, fetched(response)) == (0, {})
        assert len(sessions(live)) == 0

    play(story)


def test_epochs_have_to_follow_each_other():
    async def story(live):
        await live.topic("t")
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 0})
        for epoch, error in (
            (2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (1, ErrorCode.NONE),
            (1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (2, ErrorCode.NONE),
        ):
            fetcher.session_epoch = epoch
            response = await fetcher.send()
            assert (response.error_code, response.responses) == (error, [])

    play(story)


def test_an_unknown_session():
    async def story(live):
        request = fetch({}, session_id=123_456, session_epoch=1)
        response = await live.peer().ask(request, BY_NAME)

        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert response.session_id == 0

    play(story)


def test_a_full_fetch_ends_the_session_it_names():
    async def story(live):
        await live.topic("t")
        for epoch, left in ((0, 1), (-1, 0)):
            fetcher = Fetcher(live)
            old = (await fetcher.ask({T0: 0})).session_id
            fetcher.session_epoch = epoch
            await fetcher.ask({T0: 0})
            assert len(sessions(live)) == left
            request = fetch({}, session_id=old, session_epoch=1)
            response = await live.peer().ask(request, BY_NAME)
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            for session in list(sessions(live)):
                sessions(live).close(session.id)

    play(story)


def test_by_id_and_by_name_do_not_mix_in_a_session():
    async def story(live):
        topic_id = (await live.topic("t")).topic_id
        fetcher = Fetcher(live, version=17)
        await fetcher.ask({(topic_id, 0): 0})
        fetcher.version = BY_NAME

        response = await fetcher.send()
        assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    play(story)


def test_a_consumer_does_not_go_on_with_a_followers_session():
    async def story(live):
        await live.order()
        live.append(b"uncommitted")
        follower = Fetcher(live, replica_id=2)
        await follower.ask({T0: 0})
        follower.always.pop("replica_id")

        response = await follower.send()
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    play(story)


# --------------------------------------------------------------------------------- errors


def test_errors_are_answered_repeatedly_until_they_are_over():
    async def story(live):
        await live.topic("t")
        await live.order("elsewhere", leader=2)
        name = ("elsewhere", 0)
        fetcher = Fetcher(live)
        first = await fetcher.ask({T0: 0, name: 0})
        assert fetched(first) == {T0: [], name: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        for _ in range(2):
            answer = fetcher.send(max_wait_ms=NEVER_MS)
            assert fetched(answer.result()) == {name: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await live.order("elsewhere", leader=0, replicas=(0,), leader_epoch=1)

        assert fetched(await fetcher.ask()) == {name: []}
        assert fetched(await fetcher.ask()) == {}

    play(story)


def test_a_topic_id_that_is_unknown_and_then_is_not():
    async def story(live):
        topic_id = b"later...........".ljust(16, b".")
        fetcher = Fetcher(live, version=17)
        first = await fetcher.ask({(topic_id, 0): 0})
        assert fetched(first) == {(topic_id, 0): ErrorCode.UNKNOWN_TOPIC_ID}
        await live.order("later", replicas=(0,), topic_id=topic_id)
        live.append(b"a", name="later")

        assert fetched(await fetcher.ask()) == {(topic_id, 0): [b"a"]}

    play(story)


async def make_anew(live):
    await live.peer().ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000))
    await live.topic("t")


def test_a_topic_that_was_created_again_is_another_one_by_id():
    async def story(live):
        topic_id = (await live.topic("t")).topic_id
        live.append(b"old")
        fetcher = Fetcher(live, version=17)
        await fetcher.ask({(topic_id, 0): 0})
        await make_anew(live)
        live.append(b"new")

        assert fetched(await fetcher.ask()) == {(topic_id, 0): ErrorCode.UNKNOWN_TOPIC_ID}
        other_id = live.partition().topic_id
        assert other_id != topic_id
        response = await fetcher.ask({(other_id, 0): 0})
        assert fetched(response)[other_id, 0] == [b"new"]

    play(story)


def test_a_topic_that_was_created_again_is_found_by_name():
    async def story(live):
        await live.topic("t")
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 0})
        await make_anew(live)
        live.append(b"new")

        assert fetched(await fetcher.ask()) == {T0: [b"new"]}
        answer = fetcher.send({T0: 1}, max_wait_ms=NEVER_MS)
        live.append(b"newer")
        assert fetched(await soon(answer)) == {T0: [b"newer"]}

    play(story)


# -------------------------------------------------------------------------------- changes


def test_a_log_start_that_moved_is_answered():
    async def story(live):
        await live.topic("t")
        for _ in range(3):
            live.append(b"a")
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 3})
        live.log().advance_log_start(2)
        response = await fetcher.ask({T0: 3})

        assert part_of(response).log_start_offset == 2
        assert fetched(await fetcher.ask({T0: 3})) == {}

    play(story)


def test_a_high_watermark_that_moved_is_answered_to_read_committed_consumers():
    async def story(live):
        await live.topic("t")
        fetcher = Fetcher(live, isolation_level=1)
        await fetcher.ask({T0: 0})
        live.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        part = part_of(await fetcher.ask())

        assert (part.high_watermark, part.last_stable_offset) == (1, 0)
        assert values(part.records) == []
        assert fetched(await fetcher.ask()) == {}

    play(story)


def test_a_change_that_was_not_sent_is_answered_later():
    async def story(live):
        await live.topic("t")
        fetcher = Fetcher(live, isolation_level=1)
        await fetcher.ask({T0: 0})
        answer = fetcher.send(max_wait_ms=100)
        live.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        await asyncio.sleep(0.05)
        assert not answer.done(), "a high watermark alone does not end a consumer's wait"

        assert part_of(await soon(answer)).high_watermark == 1

    play(story)


# -------------------------------------------------------------------------------- the cache


def test_with_no_room_left_there_is_no_session():
    async def story(live):
        await live.topic("t")
        old = Fetcher(live)
        await old.ask({T0: 0})
        new = Fetcher(live)
        assert (await new.ask({T0: 0})).session_id == 0
        assert len(sessions(live)) == 1

        await asyncio.sleep(121)
        assert (await Fetcher(live).ask({T0: 0})).session_id > 0, "the silent one had its time"
        assert len(sessions(live)) == 1
        response = await old.send()
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(live.partition().watches) == 1, "nothing is left of it"

    play(story, max_incremental_fetch_session_cache_slots=1)


def test_an_evicted_session_answers_its_waiting_fetch():
    async def story(live):
        await live.topic("t")
        old = Fetcher(live)
        await old.ask({T0: 0})
        answer = old.send(max_wait_ms=200_000)
        await asyncio.sleep(121)
        await Fetcher(live).ask({T0: 0})

        assert fetched(await answer) == {}

    play(story, max_incremental_fetch_session_cache_slots=1)


# ------------------------------------------------------------------------------- overlapping


def test_a_second_fetch_in_a_session_answers_the_first_with_what_there_was():
    async def story(live):
        await live.topic("t", 2)
        live.append(b"a")
        fetcher = Fetcher(live)
        await fetcher.ask({T0: 0, T1: 0})
        first = fetcher.send({T0: 1}, max_wait_ms=NEVER_MS)
        fetcher.peer = live.peer()  # it has given up on its connection
        second = fetcher.send({T0: 0}, max_wait_ms=NEVER_MS)

        assert fetched(first.result()) == {}
        assert fetched(second.result()) == {T0: [b"a"]}
        assert live.broker.purgatory.size == 0

    play(story)


def test_two_sessions_on_one_connection_wait_in_its_order():
    async def story(live):
        await live.topic("t", 2)
        peer = live.peer()
        first = peer.send(fetch({T0: 0}, session_epoch=0, max_wait_ms=NEVER_MS), BY_NAME)
        second = peer.send(fetch({T1: 0}, session_epoch=0, max_wait_ms=NEVER_MS), BY_NAME)
        live.append(b"b", index=1)
        await asyncio.sleep(0.01)
        assert not second.done(), "ready, and behind one that is not"
        live.append(b"a")

        assert fetched(await soon(first)) == {T0: [b"a"]}
        assert fetched(await soon(second)) == {T1: [b"b"]}

    play(story)


def test_a_session_of_many_idle_partitions_looks_at_none_of_them():
    async def story(live):
        await live.topic("t", 400)
        fetcher = Fetcher(live)
        await fetcher.ask({("t", index): 0 for index in range(400)})
        (session,) = sessions(live)
        assert not session.ready
        answer = fetcher.send(max_wait_ms=NEVER_MS)
        live.append(b"a", index=217)

        assert list(session.ready) == [("t", 217)]
        assert fetched(await soon(answer)) == {("t", 217): [b"a"]}

    play(story)


def test_a_session_that_continues_after_a_new_registration_keeps_its_partitions():
    """An idle partition is not named again, and its follower would never join the ISR."""

    async def story(live):
        await live.order(isr=(0, 3))
        follower = Fetcher(live, version=BY_ID)
        key = (live.partition().topic_id, 0)
        await follower.ask({key: 0}, replica_state=ReplicaState(replica_id=2, replica_epoch=7))
        progress = live.partition().leader.followers[2]
        assert (progress.leo, progress.broker_epoch) == (0, 7)
        await follower.ask(replica_state=ReplicaState(replica_id=2, replica_epoch=9))
        assert (progress.leo, progress.broker_epoch) == (0, 9)

    play(story)
