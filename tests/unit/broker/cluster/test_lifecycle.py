"""A broker and its sessions with the store: registered, lost, registered again, fenced."""

import asyncio

import pytest
from tests.unit.broker.live import fetch, fetched, play, produce, produced

from odradek.coord import layout, layout_odradek
from odradek.coord.layout_config import encode_config, topic_entity
from odradek.coord.memory import MemoryStore, RequestFate, RequestLoss
from odradek.coord.store import ANY_VERSION
from odradek.model.cluster import Broker, EndPoint
from odradek.model.errors import ErrorCode, StartupError
from odradek.sim.world.disk import Crash, DiskFault

T0 = ("t", 0)
PATH = layout.broker_path(0)


def registered(live):
    return live.tree.find(PATH)


async def stranger(live, *, broker_id=0):
    """Another broker's session, with a registration under an id."""
    store = MemoryStore(live.tree)
    await store.open()
    point = EndPoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="x", port=1)
    data = layout.encode_broker(Broker(id=broker_id, end_points=(point,)), timestamp_ms=1)
    await store.create(layout.broker_path(broker_id), data, ephemeral=True)
    return store


def test_a_broker_is_registered_as_kafka_does_it():
    async def story(live):
        node = registered(live)

        assert node.version == 1, "created, then set"
        assert node.owner == live.store.session_id
        assert live.broker.broker_epoch == node.created_id
        broker = layout.decode_broker(0, node.data, broker_epoch=node.created_id)
        assert [(p.listener, p.host, p.port) for p in broker.end_points] == [
            ("PLAINTEXT", "b0", 9092)
        ]
        assert broker.rack == "r1"

    play(story, broker_rack="r1")


def logs_of(live):
    node = live.tree.find(layout_odradek.broker_logs_path(0))
    return layout_odradek.decode_broker(0, node.data, modified_id=node.modified_id)


def test_the_registration_without_a_log_is_recorded_and_kept():
    async def story(live):
        first = live.broker.broker_epoch
        assert logs_of(live).empty_since == first
        await live.topic("t")
        live.tree.expire(live.store.session_id)
        await live.until(lambda: live.broker.broker_epoch > first)
        assert logs_of(live).empty_since == first, "its logs are there since then"

        await live.restart()
        assert logs_of(live).empty_since == first

    play(story)


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_registration_with_an_older_copy_of_the_logs_is_recorded_and_kept(is_killed, caplog):
    async def story(live):
        await live.topic("t")
        await live.broker.stop()
        backup = live.disk.copy()
        live.broker = live.make()
        await live.start()
        assert logs_of(live).put_back_since == -1
        await live.broker.stop()
        live.disk.put_back(backup)
        caplog.clear()
        if is_killed:  # before it registers: it finds the same again
            reached = asyncio.Event()

            async def register(*_, **__):
                reached.set()
                await asyncio.Future()

            killed = live.make()
            killed.lifecycle.register = register
            starting = asyncio.ensure_future(killed.start())
            await reached.wait()
            starting.cancel()
            killed.server.stop_listening()
            live.disk.crash(Crash.PROCESS)
            live.tree.expire(live.store.session_id)
        live.broker = live.make()
        await live.start()
        first = live.broker.broker_epoch
        assert logs_of(live).put_back_since == first
        assert live.broker.store_comparison.age.is_put_back
        await live.until(lambda: live.broker.store_comparison._kept is not None)
        (text, *_) = [r.message for r in caplog.records if "put back to an earlier" in r.message]
        assert text.startswith("log directories of broker 0 are older than the coordination store")

        await live.restart()
        assert logs_of(live).put_back_since == first
        assert not live.broker.store_comparison.age.older_directories

    play(story)


def test_directories_that_failed_while_they_counted_are_not_taken_for_an_older_copy():
    async def story(live):
        await live.topic("t")
        live.disk.faults.append(DiskFault("create", "odradek-store-counter", times=9))
        await live.broker.stop()
        assert not live.broker.logs.online_directories
        live.disk.faults.clear()
        live.broker = live.make()
        await live.start()
        assert logs_of(live).put_back_since == -1

    play(story)


def test_a_broker_whose_directories_come_back_new_warns_of_it(caplog):
    async def story(live):
        await live.topic("t")
        await live.broker.stop()
        live.disk.replace_with_empty()
        caplog.clear()
        live.broker = live.make()
        await live.start()
        assert logs_of(live).empty_since == live.broker.broker_epoch
        (text,) = [r.message for r in caplog.records if "meta.properties" in r.message]
        assert text.startswith("broker 0 was registered before")

    play(story)


def test_a_lost_session_is_followed_by_another_with_a_newer_broker_epoch():
    async def story(live):
        await live.topic("t")
        before, term = live.broker.broker_epoch, live.broker.controller.term
        assert term is not None
        live.tree.expire(live.store.session_id)
        assert registered(live) is None
        await live.until(lambda: live.broker.controller.term not in (None, term))

        node = registered(live)
        assert node.owner == live.store.session_id
        assert live.broker.broker_epoch == node.created_id > before
        await live.until(lambda: not isinstance(live.broker.replicas.find_led("t", 0), ErrorCode))
        peer = live.peer()
        assert produced(await peer.ask(produce(live.batch(b"a"), acks=-1))) == {T0: 0}
        await live.topic("u")
        assert live.broker.config_admin is not None
        assert not live.fatal

    play(story)


def test_connected_clients_stay_connected_when_the_store_session_is_lost():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        waiting = peer.send(fetch({T0: 0}, max_wait_ms=60_000), 12)
        for _ in range(3):
            session = live.store.session_id
            live.tree.expire(session)
            await live.until(lambda session=session: live.store.session_id not in (0, session))
            await asyncio.sleep(1)
        await live.until(lambda: live.broker.controller.term is not None)
        await live.peer().ask(produce(live.batch(b"a")))

        assert fetched(await waiting) == {T0: [b"a"]}
        assert not peer.closed

    play(story)


def test_options_that_changed_while_there_was_no_session_are_learnt():
    async def story(live):
        await live.topic("t")
        other = await stranger(live, broker_id=9)
        live.store.cut()
        path = topic_entity("t").path
        await other.set_data(path, encode_config({"retention.ms": "4321"}), ANY_VERSION)
        live.tree.expire(live.store.session_id)
        live.store.restore()
        await live.until(lambda: live.broker.controller.term is not None)
        await asyncio.sleep(1)

        assert live.log().config.retention_ms == 4321

    play(story)


def test_a_session_that_cannot_be_opened_again_yet_is_opened_later(monkeypatch):
    async def story(live):
        before, opening, refusals = (
            live.broker.broker_epoch,
            live.store.open,
            iter(range(5)),
        )

        async def refusing():
            if next(refusals, None) is not None:
                raise StartupError("not ready within 18000 ms")
            await opening()

        monkeypatch.setattr(live.store, "open", refusing)
        live.tree.expire(live.store.session_id)
        await live.until(lambda: live.broker.broker_epoch > before)

        assert next(refusals, None) is None
        assert not live.fatal

    play(story)


def test_the_store_that_answers_no_more_is_asked_until_it_does():
    async def story(live):
        before = live.broker.broker_epoch
        live.store.cut()
        await asyncio.sleep(60)
        assert registered(live) is None
        live.store.restore()
        await live.until(lambda: registered(live) is not None)
        await live.until(lambda: live.broker.broker_epoch > before)

        assert not live.fatal

    play(story)


# --------------------------------------------------------------------- earlier registrations


def test_an_id_that_a_living_broker_has_is_refused():
    async def story(live):
        other = live.make(listeners="PLAINTEXT://b0:9099", log_dirs="/data/c")
        live.disk.mkdir("/data/c")
        started = live.loop.time()
        with pytest.raises(StartupError, match=r"broker\.id=0 is registered by another broker"):
            await other.start()
        assert live.loop.time() - started > 18, "it may be over soon"
        await other.stop()

        assert registered(live) is not None
        assert 9099 not in live.network.listening

    play(story)


def test_an_earlier_session_that_has_not_ended_is_waited_for():
    async def story(live):
        live.store.cut()  # killed: its session does not end
        old_session = registered(live).owner
        again = live.make(listeners="PLAINTEXT://b0:9099", log_dirs="/data/c")
        live.disk.mkdir("/data/c")
        await again.start()

        assert registered(live).owner not in (0, old_session)
        await again.stop()

    play(story)


def test_an_id_that_was_taken_while_the_session_was_lost_ends_the_broker():
    async def story(live):
        live.store.cut()
        session = live.store.session_id
        live.tree.expire(session)
        await stranger(live)
        live.store.restore()
        await asyncio.sleep(40)
        assert "registered by another broker" in live.fatal[0]
        live.failures.clear()

    play(story)


@pytest.mark.parametrize("loss", [RequestLoss.BEFORE, RequestLoss.AFTER])
def test_a_registration_whose_answer_was_lost(loss):
    async def story(live):
        await live.broker.stop()
        live.broker = live.make()
        lost = iter([loss])
        live.store.fate = lambda operation: (
            RequestFate(loss=next(lost, RequestLoss.NONE))
            if operation.startswith("multi")
            else RequestFate()
        )
        await live.start()

        assert registered(live).owner == live.store.session_id
        assert live.broker.broker_epoch == registered(live).created_id

    play(story)


@pytest.mark.parametrize("misfortune", ["cut", "expire"])
def test_a_store_that_is_away_for_a_while_at_any_request_of_the_start(misfortune):
    async def start_with_misfortune_at(live, number):
        """Whether there were at least so many requests."""
        store = live.store
        left = iter(range(number, -1, -1))

        def fate(operation):
            if operation in ("watch", "expiry", "open") or next(left, -1) != 0:
                return RequestFate()
            if misfortune == "cut":
                store.cut()
                live.loop.call_later(3, store.restore)
                return RequestFate(loss=RequestLoss.BEFORE)
            live.tree.expire(store.session_id)
            return RequestFate()

        store.fate = fate
        await live.start()
        store.fate = lambda _operation: RequestFate()
        store.restore()
        return next(left, -1) == -1

    async def story(live):
        number = 0
        while True:
            await live.broker.stop()
            live.broker = live.make()
            has_met = await start_with_misfortune_at(live, number)
            await live.until(
                lambda: registered(live) is not None and live.broker.controller.term is not None
            )
            assert registered(live).owner == live.store.session_id
            assert live.broker.broker_epoch == registered(live).created_id
            assert not live.fatal
            if not has_met:
                break
            number += 1
        assert number > len(layout.TOP_LEVEL)

    play(story)


def test_a_store_that_stays_away_during_the_start_is_named():
    async def story(live):
        await live.broker.stop()
        live.broker = live.make()
        live.store.fate = lambda operation: RequestFate(
            loss=RequestLoss.BEFORE if operation.startswith("create") else RequestLoss.NONE
        )
        with pytest.raises(StartupError, match="coordination store: create"):
            await live.broker.start()

    play(story)


# ------------------------------------------------------------------------------ the cluster


def test_a_cluster_id_that_cannot_be_read_is_not_guessed():
    async def story(live):
        await live.broker.stop()
        store = MemoryStore(live.tree)
        await store.open()
        await store.set_data(layout.CLUSTER_ID, b"{broken", ANY_VERSION)
        live.broker = live.make()
        with pytest.raises(StartupError, match="it names the cluster"):
            await live.broker.start()
        assert "/brokers/ids/0" not in [path for path, _ in live.tree._nodes.items()]

    play(story)


def test_a_store_that_cannot_be_reached_at_the_start():
    async def story(live):
        await live.broker.stop()
        live.broker = live.make()
        live.store.cut()
        with pytest.raises(StartupError, match="coordination store"):
            await live.broker.start()
        live.store.restore()

    play(story)


@pytest.mark.parametrize("loss", [RequestLoss.BEFORE, RequestLoss.AFTER])
def test_the_notice_of_a_lost_directory_is_given_whatever_the_connection_does(loss):
    async def story(live):
        # Without a reader, because a reader would drop it before the test looks at it.
        await live.broker.controller.stop()
        lost = []

        def once(operation):
            if operation == "create" and not lost:
                lost.append(operation)
                return RequestFate(loss=loss)
            return RequestFate()

        live.store.fate = once
        await live.broker.lifecycle.tell_log_dir_failed(0)
        assert lost
        names = await live.store.children(layout.LOG_DIR_EVENTS)
        path = f"{layout.LOG_DIR_EVENTS}/{names[-1]}"
        data, _ = await live.store.get(path)
        assert data == b'{"version":1,"broker":0,"event":1}'

    play(story)


def test_a_session_that_is_over_gives_no_notice_for_the_next_one_is_asked_anyway():
    async def story(live):
        live.tree.expire(live.store.session_id)
        await live.broker.lifecycle.tell_log_dir_failed(0)

    play(story)
