"""Whatever is done in whatever order: the stores in memory and in SQLite answer alike."""

import asyncio
import pathlib
import tempfile
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.sqlite import SqliteStore
from odradek.coord.store import Check, Create, Delete, MultiError, SetData, StoreError

PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/deep", "/b/n_"])
DATA = st.sampled_from([None, b"", b"1", b"2"])
VERSIONS = st.integers(-1, 2)
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(SetData, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("multi_many"), st.lists(st.lists(OPERATIONS, max_size=3), max_size=4)),
        st.tuples(st.just("watch"), PATHS),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=12,
)


class Clock:
    def wall_ms(self):
        return 1

    def monotonic_ms(self):
        return 1


def plain(outcome):
    if isinstance(outcome, MultiError):
        return outcome.index, type(outcome.cause), str(outcome.cause)
    return outcome


async def play(steps, connect):
    """All that can be seen of a run; sessions by their owner, because their numbers differ."""
    store, bystander = connect(), connect()
    result = []
    await store.open()
    await bystander.open()
    for step, argument in steps:
        if step == "multi_many":
            result.append([plain(o) for o in await store.multi_many(argument)])
        elif step == "watch":
            for read in (store.get, store.exists, store.children):
                try:
                    answer = await read(
                        argument, watch=partial(result.append, (read.__name__, argument))
                    )
                except StoreError as error:
                    answer = type(error), str(error)
                result.append(without_owner(answer, store))
        else:
            await store.close()
            await store.open()
    tree = []
    await walk(bystander, "/", tree)
    result += [without_owner(seen, store) for seen in tree]
    await store.close()
    result.append(await bystander.children("/"))
    await bystander.close()
    return result


def without_owner(seen, store):
    return str(seen).replace(f"ephemeral_owner={store.session_id}", "ephemeral_owner=ours")


async def walk(store, path, tree):
    tree.append((path, *await store.get(path)))
    for name in await store.children(path):
        await walk(store, f"{path.rstrip('/')}/{name}", tree)


@settings(max_examples=60)
@given(STEPS)
def test_memory_and_sqlite_agree(steps):
    tree = MemoryTree(wall_ms=lambda: 1)
    with tempfile.TemporaryDirectory() as directory:
        path = str(pathlib.Path(directory) / "store.db")
        in_sqlite = asyncio.run(play(steps, lambda: SqliteStore(path, clock=Clock())))
    in_memory = asyncio.run(play(steps, lambda: MemoryStore(tree)))

    assert in_sqlite == in_memory
