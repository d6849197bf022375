"""A cluster's nodes are copied from one store to another, all or none."""

import pytest

from odradek.coord import layout
from odradek.coord.copying import CopyError, copy_nodes
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.sim.world.loop import run


async def opened():
    store = MemoryStore(MemoryTree(wall_ms=lambda: 0))
    await store.open()
    return store


async def a_cluster():
    store = await opened()
    for path in layout.TOP_LEVEL:
        await store.create(path, make_parents=True)
    await store.create("/cluster/id", b"{}", make_parents=True)
    await store.create("/brokers/topics/t", b"topic")
    await store.create("/brokers/topics/t/partitions/0/state", b"s", make_parents=True)
    await store.create("/controller", b"1", ephemeral=True)
    return store


async def dump(store, path=""):
    found = {}
    for name in await store.children(path or "/"):
        data, _ = await store.get(f"{path}/{name}")
        found[f"{path}/{name}"] = data
        found |= await dump(store, f"{path}/{name}")
    return found


def test_persistent_nodes_are_copied_and_ephemeral_ones_are_not():
    async def story():
        source, target = await a_cluster(), await opened()
        count = await copy_nodes(source, target)
        lasting = await dump(source)
        assert lasting.pop("/controller") == b"1"
        assert {p: d or b"" for p, d in (await dump(target)).items()} == {
            p: d or b"" for p, d in lasting.items()
        }
        assert count == len(lasting)

    run(story())


def test_a_copy_that_was_interrupted_is_started_again():
    async def story():
        source, target = await a_cluster(), await opened()
        await target.create("/brokers/topics/t", b"topic", make_parents=True)
        await copy_nodes(source, target)
        again = await copy_nodes(source, target)
        assert len(await dump(target)) == again

    run(story())


def test_two_clusters_are_not_mixed():
    async def story():
        source, target = await a_cluster(), await opened()
        await target.create("/cluster/id", b"another", make_parents=True)
        before = await dump(target)
        with pytest.raises(CopyError, match="/cluster/id exists in the target already"):
            await copy_nodes(source, target)
        assert await dump(target) == before

    run(story())


@pytest.mark.parametrize("which", ["source", "target"])
def test_nothing_is_copied_while_a_broker_is_registered(which):
    async def story():
        source, target = await a_cluster(), await opened()
        store = source if which == "source" else target
        await store.create(layout.broker_path(7), b"", ephemeral=True, make_parents=True)
        with pytest.raises(CopyError, match=f"broker 7 is registered in the {which}"):
            await copy_nodes(source, target)

    run(story())


def test_an_id_that_was_drawn_is_not_drawn_again():
    async def story():
        source, target = await a_cluster(), await opened()
        for _ in range(3):
            await source.set_data(layout.BROKER_SEQUENCE_ID, b"")
        await copy_nodes(source, target)
        await copy_nodes(source, target)
        assert (await target.exists(layout.BROKER_SEQUENCE_ID)).version == 3

    run(story())
