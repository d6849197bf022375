"""CVE-2024-27309: while metadata moved to another store, ACLs were lost or not enforced."""

import asyncio

import pytest

from odradek.broker.admin.acl_changes import AclChanges
from odradek.broker.admin.acls import AclAdmin, stored_acls
from odradek.broker.serving.acl_authorizer import AclAuthorizer
from odradek.coord import layout
from odradek.coord.copying import copy_nodes
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.sqlite import SqliteStore
from odradek.model.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls import Requester
from odradek.sim.world.loop import run

STORED = {
    "/kafka-acl/Topic/t": b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny",'
    b'"operation":"All","host":"*"}]}',
    "/kafka-acl/Cluster/kafka-cluster": b'{"version":1,"acls":[]}',
    "/kafka-acl-extended/prefixed/Group/g": b'{"version":1,"acls":[{"principal":"User:b",'
    b'"permissionType":"Allow","operation":"Read","host":"10.0.0.1"}]}',
    "/config/users/alice": b'{"version":1,"config":{"SCRAM-SHA-512":"salt=eA==,iterations=4096"}}',
    "/tokenauth/tokens/id": b'{"version":1}',
}


class Clock:
    def wall_ms(self):
        return 1_000_000

    def monotonic_ms(self):
        return 0


def in_memory(_):
    return MemoryStore(MemoryTree(Clock().wall_ms))


def embedded(path):
    return SqliteStore(
        str(path / "coordination.db"), clock=Clock(), session_timeout_ms=60_000, look_every_ms=10
    )


def bindings():
    """ACLs on patterns of each kind; some resources have several."""
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        for name, prefixed in (("a", False), ("a", True), ("*", False), ("ü ñ%", False)):
            for operation in (AclOperation.READ, AclOperation.WRITE):
                for allowed in (True, False):
                    entry = AclEntry("User:CN=ä, O=ü", "10.0.0.1", operation, allowed)
                    yield Binding(ResourcePattern(kind, name, prefixed), entry)
    for operation in OPERATIONS[ResourceType.CLUSTER]:
        entry = AclEntry("User:admin", "*", operation, True)
        yield Binding(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), entry)


async def opened(store):
    await store.open()
    for path in layout.TOP_LEVEL:
        if await store.exists(path) is None:
            await store.create(path, make_parents=True)
    return store


async def enforced(store):
    changes = AclChanges(store, AclAuthorizer(), Clock())
    await changes.load()
    return changes


@pytest.mark.parametrize(("made_from", "made_to"), [(embedded, in_memory), (in_memory, embedded)])
def test_the_acls_are_the_same_after_a_copy_to_another_store(made_from, made_to, tmp_path):
    async def story():
        source = await opened(made_from(tmp_path))
        await AclAdmin(source, is_configured=True).create(list(bindings()))
        target = made_to(tmp_path)
        await target.open()
        await copy_nodes(source, target)

        before, after = await stored_acls(source), await stored_acls(target)
        assert before == after
        authorizers = [(await enforced(store)).authorizer for store in (source, target)]
        patterns = {binding.pattern for binding in bindings()}
        held = [{p: each.entries(p) for p in patterns} for each in authorizers]
        assert held[0] == held[1]
        assert sum(map(len, held[0].values())) == len(set(bindings()))
        await source.close()
        await target.close()

    asyncio.run(story())


@pytest.mark.parametrize(("made_from", "made_to"), [(embedded, in_memory), (in_memory, embedded)])
def test_after_a_copy_a_change_is_enforced_by_the_brokers_that_did_not_make_it(
    made_from, made_to, tmp_path
):
    """Notifications are numbered by their parent, and the new store begins at zero again."""
    allow = Binding(
        ResourcePattern(ResourceType.TOPIC, "t"),
        AclEntry("User:alice", "*", AclOperation.READ, True),
    )
    alice = Requester("User:alice", "10.0.0.7")

    async def story():
        source = await opened(made_from(tmp_path))
        admin = AclAdmin(source, is_configured=True)
        await admin.create(list(bindings()))
        await admin.create([allow])
        # The first notifications are old, and a broker has deleted them.
        for parent in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
            for name in sorted(await source.children(parent))[:-1]:
                await source.delete(f"{parent}/{name}")
        target = made_to(tmp_path)
        await target.open()
        await copy_nodes(source, target)
        changes = await enforced(target)
        following = asyncio.get_running_loop().create_task(changes.run())
        await AclAdmin(target, is_configured=True).delete([allow])

        def is_allowed():
            asked = (alice, AclOperation.READ, ResourceType.TOPIC, "t")
            return changes.authorizer.decide(*asked).allowed

        for _ in range(1_000):
            if not is_allowed():
                break
            await asyncio.sleep(0.01)
        assert not is_allowed()
        following.cancel()
        await source.close()
        await target.close()

    asyncio.run(story())


def test_the_nodes_of_acls_users_and_tokens_are_the_same_after_a_copy():
    async def story():
        source, target = (MemoryStore(MemoryTree(wall_ms=lambda: 0)) for _ in range(2))
        for store in (source, target):
            await store.open()
        for path, data in STORED.items():
            await source.create(path, data, make_parents=True)
        await copy_nodes(source, target)
        found = await target.get_many(list(STORED))

        assert [node and node[0] for node in found] == list(STORED.values())

    run(story())
