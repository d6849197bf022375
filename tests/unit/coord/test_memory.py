"""The store in memory with the simulator's faults: delays, losses, cuts, expiries, crashes."""

import asyncio
from random import Random

import pytest

from odradek.coord.memory import MemoryStore, MemoryTree, RequestFate, RequestLoss
from odradek.coord.store import ConnectionLostError, NodeExistsError, SessionExpiredError
from odradek.sim.world.loop import run


class Fates:
    """The fates of the next requests, by the name of the operation."""

    def __init__(self) -> None:
        self.ordered = {}

    def __call__(self, operation):
        return self.ordered.get(operation, RequestFate())


async def connect(tree, fates=None, session_timeout_ms=10_000):
    store = MemoryStore(tree, session_timeout_ms=session_timeout_ms, fate=fates or Fates())
    await store.open()
    return store


def now_ms():
    return round(asyncio.get_running_loop().time() * 1000)


def test_requests_and_answers_have_their_delays():
    async def scenario():
        fates = Fates()
        store = await connect(MemoryTree(), fates)
        fates.ordered["create"] = RequestFate(request_delay_ms=30, answer_delay_ms=50)
        await store.create("/a")
        assert now_ms() == 80

    run(scenario())


def test_a_write_is_done_before_its_answer_arrives():
    async def scenario():
        tree, fates = MemoryTree(), Fates()
        slow, quick = await connect(tree, fates), await connect(tree)
        fates.ordered["create"] = RequestFate(request_delay_ms=10, answer_delay_ms=1_000)
        writing = asyncio.create_task(slow.create("/a"))
        await asyncio.sleep(0.02)
        assert await quick.exists("/a") is not None
        assert not writing.done()
        await writing

    run(scenario())


@pytest.mark.parametrize(
    ("loss", "is_there"), [(RequestLoss.BEFORE, False), (RequestLoss.AFTER, True)]
)
def test_a_lost_request_may_or_may_not_have_happened(loss, is_there):
    async def scenario():
        fates = Fates()
        store = await connect(MemoryTree(), fates)
        fates.ordered["create"] = RequestFate(loss=loss)
        with pytest.raises(ConnectionLostError):
            await store.create("/a")
        assert (await store.exists("/a") is not None) == is_there

    run(scenario())


def test_no_answer_overtakes_an_event():
    async def scenario():
        tree, fates = MemoryTree(), Fates()
        reader, writer = await connect(tree, fates), await connect(tree)
        await writer.create("/a", b"0")
        order = []
        await reader.get("/a", watch=lambda: order.append("event"))
        fates.ordered["watch"] = RequestFate(answer_delay_ms=500)
        await writer.set_data("/a", b"1")
        data, _ = await reader.get("/a")
        order.append(data)
        assert order == ["event", b"1"]
        assert now_ms() == 500

    run(scenario())


def test_a_cut_connection_loses_its_session_after_the_time_out_and_is_notified_when_restored():
    async def scenario():
        tree = MemoryTree()
        store, other = await connect(tree), await connect(tree)
        await store.create("/e", ephemeral=True)
        removed, lost = asyncio.Event(), asyncio.Event()
        store.on_session_lost = lost.set
        await other.exists("/e", watch=removed.set)
        store.cut()
        with pytest.raises(ConnectionLostError):
            await store.get("/e")
        await removed.wait()
        assert now_ms() == 10_000
        assert not lost.is_set()
        store.restore()
        await lost.wait()
        with pytest.raises(SessionExpiredError):
            await store.get("/")

    run(scenario())


def test_a_connection_restored_in_time_keeps_the_session_and_gets_the_missed_events():
    async def scenario():
        tree = MemoryTree()
        store, other = await connect(tree), await connect(tree)
        await store.create("/e", ephemeral=True)
        changed = asyncio.Event()
        await store.exists("/a", watch=changed.set)
        store.cut()
        await asyncio.sleep(9)
        await other.create("/a")
        assert not changed.is_set()
        store.restore()
        await changed.wait()
        await asyncio.sleep(9)  # longer than the time-out since the first cut
        assert await other.exists("/e") is not None

    run(scenario())


def test_an_answer_on_its_way_is_lost_when_the_connection_is_cut():
    async def scenario():
        fates = Fates()
        store = await connect(MemoryTree(), fates)
        fates.ordered["create"] = RequestFate(answer_delay_ms=1_000)
        writing = asyncio.create_task(store.create("/a"))
        await asyncio.sleep(0.5)
        store.cut()
        with pytest.raises(ConnectionLostError):
            await writing
        store.restore()
        with pytest.raises(NodeExistsError):
            await store.create("/a")

    run(scenario())


@pytest.mark.parametrize(("noticed_after_ms", "after_ms"), [(None, 10_000), (50, 50)])
def test_the_session_of_a_crashed_process_expires_and_it_gets_nothing(noticed_after_ms, after_ms):
    async def scenario():
        tree = MemoryTree()
        store, other = await connect(tree), await connect(tree)
        await store.create("/e", ephemeral=True)
        received = []
        store.on_session_lost = lambda: received.append("lost")
        await store.exists("/a", watch=lambda: received.append("event"))
        removed = asyncio.Event()
        await other.exists("/e", watch=removed.set)
        store.crash(noticed_after_ms)
        await other.create("/a")
        await removed.wait()
        assert now_ms() == after_ms
        await asyncio.sleep(60)
        assert received == []

    run(scenario())


def test_a_restarted_process_finds_its_former_sessions_nodes_until_they_expire():
    async def scenario():
        tree = MemoryTree()
        first = await connect(tree)
        await first.create("/ids/1", ephemeral=True, make_parents=True)
        first.crash()
        second = await connect(tree)
        removed = asyncio.Event()
        with pytest.raises(NodeExistsError):
            await second.create("/ids/1", ephemeral=True)
        await second.exists("/ids/1", watch=removed.set)
        await removed.wait()
        await second.create("/ids/1", ephemeral=True)

    run(scenario())


@pytest.mark.parametrize(("pause_s", "survives"), [(9, True), (11, False)])
def test_a_paused_process_gets_every_event_when_it_continues(pause_s, survives):
    async def scenario():
        tree = MemoryTree()
        store, other = await connect(tree), await connect(tree)
        received = []
        store.on_session_lost = lambda: received.append("lost")
        await store.exists("/a", watch=lambda: received.append("event"))
        store.pause()
        await other.create("/a")
        await asyncio.sleep(pause_s)
        assert received == []
        store.resume()
        await asyncio.sleep(60)
        assert received == (["event"] if survives else ["event", "lost"])

    run(scenario())


def test_the_end_of_a_pause_does_not_end_a_cut():
    async def scenario():
        tree = MemoryTree()
        store = await connect(tree)
        lost = asyncio.Event()
        store.on_session_lost = lost.set
        store.cut()
        store.pause()
        store.resume()
        with pytest.raises(ConnectionLostError):
            await store.create("/a")
        await asyncio.sleep(20)
        store.restore()
        await lost.wait()

    run(scenario())


def test_a_process_killed_after_its_session_expired_ends_no_other_session():
    async def scenario():
        tree = MemoryTree()
        store, other = await connect(tree), await connect(tree)
        store.cut()
        await store.close()
        store.crash(0)
        await other.create("/a")
        await asyncio.sleep(60)
        assert not tree.is_open(1)
        assert tree.is_open(2)

    run(scenario())


def test_a_request_under_way_when_the_session_expires_is_refused():
    async def scenario():
        tree, fates = MemoryTree(), Fates()
        store, other = await connect(tree, fates), await connect(tree)
        fates.ordered["create"] = RequestFate(request_delay_ms=100)
        writing = asyncio.create_task(store.create("/late"))
        await asyncio.sleep(0.05)
        tree.expire(store.session_id)
        with pytest.raises(SessionExpiredError):
            await writing
        assert await other.exists("/late") is None

    run(scenario())


def test_equal_runs_are_equal():
    async def scenario():
        tree = MemoryTree()
        random = Random(7)

        def fate(_):
            return RequestFate(
                request_delay_ms=random.randrange(50), answer_delay_ms=random.randrange(50)
            )

        stores = [await connect(tree, fate) for _ in range(4)]
        reported = []
        for number, store in enumerate(stores):
            await store.children(
                "/", watch=lambda number=number: reported.append((number, now_ms()))
            )
        await asyncio.gather(*(store.create(f"/{n}") for n, store in enumerate(stores)))
        await asyncio.sleep(1)
        made = [(await stores[0].exists(f"/{n}")).created_id for n in range(4)]
        assert (len(reported), sorted(made)) == (4, [1, 2, 3, 4])
        return reported, made

    assert run(scenario()) == run(scenario())
