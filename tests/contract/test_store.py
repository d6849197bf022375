"""One suite for every coordination store: the contract of `odradek.coord.store`."""

import asyncio
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.sqlite import SqliteStore
from odradek.coord.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SetData,
    StoreError,
)
from odradek.model.errors import StoreConflictError
from odradek.sim.world.loop import run as run_in_simulated_time


class StoppedClock:
    def wall_ms(self) -> int:
        return 1_000_000

    def monotonic_ms(self) -> int:
        return 0


class MemoryWorld:
    def __init__(self, directory: pathlib.Path) -> None:
        self.tree = MemoryTree(wall_ms=StoppedClock().wall_ms)

    def run(self, main):
        run_in_simulated_time(main)

    async def connect(self):
        store = MemoryStore(self.tree)
        await store.open()
        return store

    async def expire(self, store):
        self.tree.expire(store.session_id)


class SqliteWorld:
    def __init__(self, directory: pathlib.Path) -> None:
        self.path = str(directory / "made" / "coordination.db")
        self.stores = []

    def run(self, main):
        asyncio.run(self._run_and_close(main))

    async def _run_and_close(self, main):
        try:
            await main
        finally:
            for store in self.stores:
                await store.close()

    async def connect(self):
        store = SqliteStore(
            self.path,
            clock=StoppedClock(),
            # So long that only the bytes between the sessions can wake a watcher.
            session_timeout_ms=3_600_000,
            look_every_ms=3_600_000,
        )
        self.stores.append(store)
        await store.open()
        return store

    async def expire(self, store):
        bystander = await self.connect()
        bystander.end_dead_session(store.session_id)


WORLDS = [MemoryWorld, SqliteWorld]


def contract(test: Callable[[Any], Awaitable[None]]) -> Callable[..., None]:
    """Run a coroutine against every implementation."""

    @pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
    def on_each(world, tmp_path):
        there = world(tmp_path)
        there.run(test(there))

    on_each.__name__ = test.__name__
    on_each.promise = test  # for ZooKeeper, which not every machine has: tests/clients
    return on_each


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 10)


class Calls:
    """A watcher that counts its calls."""

    def __init__(self) -> None:
        self.count = 0
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self.event.set()


# ------------------------------------------------------------------------ nodes and versions


@contract
async def test_a_node_is_read_as_it_was_written(world):
    store = await world.connect()
    assert await store.create("/a", b"one") == "/a"

    data, stat = await store.get("/a")

    assert data == b"one"
    assert (stat.version, stat.data_length, stat.children_count) == (0, 3, 0)
    assert stat.created_id == stat.modified_id > 0
    assert stat.created_ms == stat.modified_ms > 0
    assert stat.ephemeral_owner == 0
    assert await store.exists("/a") == stat


@contract
async def test_no_data_is_not_empty_data(world):
    store = await world.connect()
    await store.create("/none")
    await store.create("/empty", b"")

    assert (await store.get("/none"))[0] is None
    assert (await store.get("/empty"))[0] == b""
    await store.set_data("/empty", None)
    assert (await store.get("/empty"))[0] is None


@contract
async def test_every_write_counts_the_version_and_keeps_the_creation_id(world):
    store = await world.connect()
    await store.create("/a", b"one")
    created = await store.exists("/a")
    first = await store.set_data("/a", b"two", version=0)
    second = await store.set_data("/a", b"three")

    assert (first.version, second.version) == (1, 2)
    assert first.created_id == second.created_id == created.created_id
    assert created.modified_id < first.modified_id < second.modified_id


@contract
async def test_what_a_multi_creates_and_writes_has_one_transaction_id_in_the_results(world):
    store = await world.connect()
    await store.create("/made", b"before")

    results = await store.multi(
        [Create("/made/node", ephemeral=True), SetData("/made/node", b"x", 0), Check("/made", 0)]
    )

    stat = await store.exists("/made/node")
    assert results == ["/made/node", stat, None]
    assert stat.created_id == stat.modified_id > 0
    assert stat.ephemeral_owner == store.session_id


@contract
async def test_a_write_derived_from_another_version_is_refused(world):
    store = await world.connect()
    await store.create("/a", b"one")
    await store.set_data("/a", b"two", version=0)

    with pytest.raises(
        BadVersionError, match="/a has (version 1|another version), not 0"
    ) as refusal:
        await store.set_data("/a", b"three", version=0)
    assert isinstance(refusal.value, StoreConflictError)
    with pytest.raises(BadVersionError):
        await store.delete("/a", version=0)
    assert (await store.get("/a"))[0] == b"two"


@contract
async def test_a_missing_node_is_named(world):
    store = await world.connect()
    for attempt in (
        store.get("/a"),
        store.children("/a"),
        store.set_data("/a", b""),
        store.delete("/a"),
        store.create("/a/b"),
    ):
        with pytest.raises(NoNodeError, match="/a"):
            await attempt
    assert await store.exists("/a") is None


@contract
async def test_a_node_is_created_once(world):
    store = await world.connect()
    await store.create("/a")

    with pytest.raises(NodeExistsError, match="/a"):
        await store.create("/a")


@contract
async def test_parents_are_made_on_demand(world):
    store = await world.connect()
    await store.create("/a/b/c", b"deep", make_parents=True)
    await store.create("/a/b/d", make_parents=True)

    assert await store.children("/a/b") == ["c", "d"]
    assert (await store.get("/a"))[0] is None
    with pytest.raises(NodeExistsError):
        await store.create("/a/b/c", make_parents=True)


@contract
async def test_children_are_listed_sorted_and_only_the_direct_ones(world):
    store = await world.connect()
    await store.create("/a")
    for name in ("c", "a", "b-1", "b"):
        await store.create(f"/a/{name}")
    await store.create("/a/c/deeper")
    await store.create("/ab")

    assert await store.children("/a") == ["a", "b", "b-1", "c"]
    assert await store.children("/") == ["a", "ab"]
    assert (await store.exists("/a")).children_count == 4


@contract
async def test_a_parent_is_removed_after_its_children(world):
    store = await world.connect()
    await store.create("/a/b", make_parents=True)

    with pytest.raises(NotEmptyError, match="/a has .*child"):
        await store.delete("/a")
    await store.delete("/a/b")
    await store.delete("/a")
    assert await store.children("/") == []


@contract
async def test_children_count_in_their_parents_child_version(world):
    store = await world.connect()
    await store.create("/a")
    for name in "xyz":
        await store.create(f"/a/{name}")
    await store.delete("/a/y")
    stat = await store.exists("/a")

    assert (stat.version, stat.children_count, stat.children_version) == (0, 2, 4)


@contract
async def test_sequential_nodes_are_numbered_and_no_number_is_used_twice(world):
    store = await world.connect()
    await store.create("/q")
    first = await store.create("/q/n_", sequential=True)
    second = await store.create("/q/n_", b"x", sequential=True)
    await store.delete(second)
    third = await store.create("/q/n_", sequential=True)

    assert [first, second, third] == ["/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002"]


@contract
async def test_creation_ids_ascend_over_the_whole_tree(world):
    one, two = await world.connect(), await world.connect()
    ids = []
    for number, store in enumerate((one, two, one, two)):
        await store.create(f"/{number}")
        ids.append((await store.exists(f"/{number}")).created_id)

    assert ids == sorted(set(ids))


@contract
async def test_many_nodes_are_read_in_the_requested_order(world):
    store = await world.connect()
    await store.create("/t")
    await store.multi([Create(f"/t/{n}", str(n).encode()) for n in range(0, 3000, 2)])
    paths = [f"/t/{number}" for number in reversed(range(3000))]

    found = await store.get_many(paths)

    answers = [None if node is None else (node[0], node[1].version) for node in found]
    assert answers == [None if int(p[3:]) % 2 else (p[3:].encode(), 0) for p in paths]
    assert await store.get_many([]) == []
    assert await store.get_many(["/t/2", "/t/2"]) == [await store.get("/t/2")] * 2


@contract
async def test_a_node_without_an_acl_is_open_to_every_client(world):
    store = await world.connect()
    await store.create("/a")

    assert await store.access("/a") == [("world", "anyone", "cdrwa")]
    with pytest.raises(NoNodeError, match="/b"):
        await store.access("/b")


@contract
async def test_a_malformed_path_is_refused(world):
    store = await world.connect()
    for path in ("", "a", "/a/", "//a", "/a/../b", "/."):
        with pytest.raises(StoreError, match="must be absolute"):
            await store.create(path)


# ----------------------------------------------------------------------------------- multi


@contract
async def test_a_multi_is_applied_as_a_whole(world):
    store = await world.connect()
    await store.create("/epoch", b"1")
    await store.create("/old")

    results = await store.multi(
        [
            Check("/epoch", 0),
            SetData("/epoch", b"2", 0),
            Create("/new", b"x"),
            Create("/new/n_", sequential=True),
            Delete("/old", 0),
        ]
    )

    assert results[0] is None
    assert results[1].version == 1
    assert results[2:] == ["/new", "/new/n_0000000000", None]
    assert await store.children("/") == ["epoch", "new"]
    # One transaction has one id.
    assert (await store.exists("/new")).created_id == results[1].modified_id


@contract
async def test_a_refused_multi_changes_nothing(world):
    store = await world.connect()
    await store.create("/epoch", b"1")
    await store.set_data("/epoch", b"2")

    with pytest.raises(MultiError, match="operation 2 of a multi: /epoch has .*version") as refusal:
        await store.multi([Create("/a"), Create("/a/b"), Check("/epoch", 0), Create("/c")])

    assert refusal.value.index == 2
    assert isinstance(refusal.value.cause, BadVersionError)
    assert await store.children("/") == ["epoch"]


@contract
async def test_each_of_many_multis_succeeds_or_fails_on_its_own(world):
    store = await world.connect()
    await store.create("/epoch", b"1")
    for number in range(5):
        await store.create(f"/{number}")
    await store.set_data("/3", b"other")

    outcomes = await store.multi_many(
        [[Check("/epoch", 0), SetData(f"/{number}", b"new", 0)] for number in range(5)]
    )

    assert [type(outcome) for outcome in outcomes] == [list, list, list, MultiError, list]
    assert outcomes[3].index == 1
    assert isinstance(outcomes[3].cause, BadVersionError)
    assert [outcome[1].version for outcome in outcomes if outcome is not outcomes[3]] == [1] * 4
    modified = [outcome[1].modified_id for outcome in outcomes if outcome is not outcomes[3]]
    assert modified == sorted(set(modified))
    assert (await store.get("/3"))[0] == b"other"


@contract
async def test_a_later_multi_of_many_sees_the_earlier(world):
    store = await world.connect()

    outcomes = await store.multi_many(
        [[Create("/a")], [Create("/a")], [Create("/a/b"), Delete("/a")], [Create("/a/c")]]
    )

    assert isinstance(outcomes[1].cause, NodeExistsError)
    assert isinstance(outcomes[2].cause, NotEmptyError)
    assert await store.children("/a") == ["c"]


@contract
async def test_many_multis_at_once_lose_nothing(world):
    store, other = await world.connect(), await world.connect()
    await store.create("/t")
    calls = [Calls() for _ in range(5000)]
    for number in range(5000):
        await other.exists(f"/t/{number}/x", watch=calls[number])

    outcomes = await store.multi_many(
        [[Create(f"/t/{n}"), Create(f"/t/{n}/x", b"%d" % n)] for n in range(5000)]
    )

    assert outcomes == [[f"/t/{n}", f"/t/{n}/x"] for n in range(5000)]
    found = await other.get_many([f"/t/{n}/x" for n in range(5000)])
    assert [node[0] for node in found] == [b"%d" % n for n in range(5000)]
    assert len(await other.children("/t")) == 5000
    assert {call.count for call in calls} == {1}


@contract
async def test_an_empty_multi_does_nothing(world):
    store = await world.connect()

    assert await store.multi([]) == []
    assert await store.multi_many([]) == []


@contract
async def test_of_two_writers_with_one_version_one_wins(world):
    one, two = await world.connect(), await world.connect()
    await one.create("/a", b"0")
    for version in range(10):
        outcomes = await asyncio.gather(
            one.set_data("/a", b"one", version),
            two.set_data("/a", b"two", version),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, BadVersionError) for outcome in outcomes) == 1
    assert (await one.exists("/a")).version == 10


@contract
async def test_concurrent_increments_lose_none(world):
    stores = [await world.connect() for _ in range(3)]
    await stores[0].create("/n", b"0")

    async def increment(store):
        for _ in range(10):
            while True:
                data, stat = await store.get("/n")
                try:
                    await store.set_data("/n", str(int(data) + 1).encode(), stat.version)
                    break
                except BadVersionError:
                    continue

    await asyncio.gather(*(increment(store) for store in stores for _ in range(2)))

    assert (await stores[0].get("/n"))[0] == b"60"


# ---------------------------------------------------------------------------------- watches


@contract
async def test_a_data_watch_fires_once_for_the_next_change(world):
    reader, writer = await world.connect(), await world.connect()
    await writer.create("/a", b"one")
    calls = Calls()
    await reader.get("/a", watch=calls)
    await writer.set_data("/a", b"two")
    await soon(calls.event)
    await writer.set_data("/a", b"three")
    await writer.delete("/a")

    assert await reader.exists("/a") is None
    assert calls.count == 1


@contract
async def test_a_watch_is_delivered_before_the_change_can_be_read(world):
    reader, writer = await world.connect(), await world.connect()
    await writer.create("/a", b"0")
    for number in range(1, 20):
        calls = Calls()
        await reader.get("/a", watch=calls)
        await writer.set_data("/a", str(number).encode())

        sees_change = (await reader.get("/a"))[0] == str(number).encode()
        assert calls.count == 1 or not sees_change
        await soon(calls.event)


@contract
async def test_a_writers_own_watch_fires_before_its_write_returns(world):
    store = await world.connect()
    await store.create("/a", b"one")
    calls = Calls()
    await store.get("/a", watch=calls)
    await store.set_data("/a", b"two")

    assert calls.count == 1


@contract
async def test_a_data_watch_fires_when_the_node_is_removed_and_not_for_children(world):
    store = await world.connect()
    await store.create("/a")
    calls = Calls()
    await store.get("/a", watch=calls)
    await store.create("/a/b")
    await store.delete("/a/b")
    assert calls.count == 0

    await store.delete("/a")
    assert calls.count == 1


@contract
async def test_an_exists_watch_fires_when_the_node_is_created(world):
    reader, writer = await world.connect(), await world.connect()
    calls = Calls()
    assert await reader.exists("/a", watch=calls) is None
    await writer.create("/b")
    await writer.create("/a")
    await soon(calls.event)

    assert await reader.exists("/a") is not None


@contract
async def test_a_child_watch_fires_for_children_created_and_removed_and_not_for_data(world):
    store = await world.connect()
    await store.create("/a/b", make_parents=True)
    calls = Calls()
    await store.children("/a", watch=calls)
    await store.set_data("/a/b", b"x")
    await store.set_data("/a", b"x")
    await store.create("/a/b/c")
    assert calls.count == 0

    await store.create("/a/d")
    assert calls.count == 1
    await store.children("/a", watch=calls)
    await store.delete("/a/d")
    assert calls.count == 2


@contract
async def test_a_child_watch_fires_when_the_node_itself_is_removed(world):
    store = await world.connect()
    await store.create("/a")
    calls = Calls()
    await store.children("/a", watch=calls)
    await store.delete("/a")

    assert calls.count == 1


@contract
async def test_a_failed_read_sets_no_watch(world):
    store = await world.connect()
    calls = Calls()
    for read in (store.get, store.children):
        with pytest.raises(NoNodeError):
            await read("/a", watch=calls)
    await store.create("/a")
    await store.create("/a/b")
    await store.set_data("/a", b"x")

    assert calls.count == 0


@contract
async def test_a_watcher_set_twice_is_called_once(world):
    store = await world.connect()
    await store.create("/a")
    calls = Calls()
    await store.get("/a", watch=calls)
    await store.get("/a", watch=calls)
    await store.set_data("/a", b"x")

    assert calls.count == 1


@contract
async def test_a_refused_multi_fires_no_watch(world):
    store = await world.connect()
    await store.create("/a")
    calls = Calls()
    await store.children("/a", watch=calls)
    with pytest.raises(MultiError):
        await store.multi([Create("/a/b"), Delete("/nothing")])
    await store.create("/other")

    assert calls.count == 0


# --------------------------------------------------------------------------------- sessions


@contract
async def test_ephemeral_nodes_carry_their_session(world):
    one, two = await world.connect(), await world.connect()
    await one.create("/e", ephemeral=True)

    assert one.session_id != two.session_id
    assert (await two.exists("/e")).ephemeral_owner == one.session_id


@contract
async def test_an_ephemeral_node_has_no_children(world):
    store = await world.connect()
    await store.create("/e", ephemeral=True)

    with pytest.raises(StoreError, match="ephemeral"):
        await store.create("/e/child")


@contract
async def test_a_closed_session_has_its_ephemeral_nodes_removed(world):
    one, two = await world.connect(), await world.connect()
    await one.create("/ids/1", ephemeral=True, make_parents=True)
    await one.multi([Create("/ids/2", ephemeral=True), Create("/stays")])
    await two.create("/ids/3", ephemeral=True)
    calls = Calls()
    await two.children("/ids", watch=calls)
    await one.close()
    await soon(calls.event)

    assert one.session_id == 0
    assert await two.children("/ids") == ["3"]
    assert await two.exists("/stays") is not None
    with pytest.raises(SessionExpiredError):
        await one.get("/ids")


@contract
async def test_an_expired_session_is_notified_and_its_ephemeral_nodes_are_removed(world):
    one, two = await world.connect(), await world.connect()
    await one.create("/e", ephemeral=True)
    lost, removed = Calls(), Calls()
    one.on_session_lost = lost
    await two.exists("/e", watch=removed)
    await world.expire(one)
    await soon(lost.event)
    await soon(removed.event)

    assert one.session_id == 0
    assert await two.exists("/e") is None
    for attempt in (one.get("/"), one.create("/x"), one.multi([]), one.multi_many([])):
        with pytest.raises(SessionExpiredError):
            await attempt


@contract
async def test_after_an_expiry_a_new_session_begins_without_the_old_watches(world):
    one, two = await world.connect(), await world.connect()
    before = one.session_id
    await one.create("/a")
    old, lost = Calls(), Calls()
    one.on_session_lost = lost
    await one.get("/a", watch=old)
    await world.expire(one)
    await soon(lost.event)
    await one.open()
    new = Calls()
    await one.get("/a", watch=new)
    await two.set_data("/a", b"x")
    await soon(new.event)

    assert one.session_id not in (0, before)
    assert old.count == 0
    await one.create("/e", ephemeral=True)
    assert (await two.exists("/e")).ephemeral_owner == one.session_id


@contract
async def test_one_wins_the_race_for_an_ephemeral_node_and_it_is_free_when_the_winner_ends(
    world,
):
    stores = [await world.connect() for _ in range(3)]
    outcomes = await asyncio.gather(
        *(store.create("/controller", ephemeral=True) for store in stores), return_exceptions=True
    )
    winners = [store for store, o in zip(stores, outcomes, strict=True) if o == "/controller"]
    assert len(winners) == 1
    losers = [store for store in stores if store not in winners]
    removed = Calls()
    await losers[0].exists("/controller", watch=removed)
    await winners[0].close()
    await soon(removed.event)

    await losers[0].create("/controller", ephemeral=True)
    with pytest.raises(NodeExistsError):
        await losers[1].create("/controller", ephemeral=True)
