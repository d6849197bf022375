"""Each broker enforces the ACLs that are in the store."""

import asyncio
import contextlib

import pytest
from tests.unit.broker.live import play, produce

from odradek.broker.admin.acl_changes import AclChanges
from odradek.broker.admin.acls import ACL_AUTHORIZER, AclAdmin
from odradek.broker.cluster.store_update import NOTICE_AGE_MS_MAX
from odradek.broker.serving.acl_authorizer import AclAuthorizer
from odradek.coord.layout_security import ACL_CHANGES, EXTENDED_ACL_CHANGES, acl_path
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.model.acl import (
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)
from odradek.model.errors import ErrorCode, StartupError
from odradek.security.acls import AclSettings, Requester
from odradek.sim.world.loop import run
from odradek.wire.messages import create_acls

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC = ResourceType.TOPIC
ALICE = Requester("User:alice", "10.0.0.7")


def binding(name="t", *, prefixed=False, operation=READ, allowed=True):
    return Binding(
        ResourcePattern(TOPIC, name, prefixed),
        AclEntry("User:alice", "*", operation, allowed),
    )


class Clock:
    ms = 1_000_000

    def wall_ms(self):
        return self.ms

    def monotonic_ms(self):
        return self.ms


class Node:
    """What follows the ACLs in one broker."""

    def __init__(self, tree, clock):
        self.tree = tree
        self.store = MemoryStore(tree)
        self.authorizer = AclAuthorizer()
        self.changes = AclChanges(self.store, self.authorizer, clock)
        self.admin = AclAdmin(self.store, is_configured=True, changed=self.changes.refresh)

    async def start(self):
        await self.store.open()
        await self.changes.load()
        self.task = asyncio.get_running_loop().create_task(self.changes.run())

    def allows(self, name="t", operation=READ):
        return self.authorizer.decide(ALICE, operation, TOPIC, name).allowed

    async def until_it_is(self, allowed, name="t"):
        for _ in range(1_000):
            if self.allows(name) is allowed:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"{name}: still {not allowed} after a second")


def play_nodes(story, *, prepare=None):
    async def main():
        clock = Clock()
        tree = MemoryTree(clock.wall_ms)
        if prepare is not None:
            store = MemoryStore(tree)
            await store.open()
            await prepare(store)
        nodes = [Node(tree, clock), Node(tree, clock)]
        for node in nodes:
            await node.start()
        try:
            await story(*nodes, clock)
        finally:
            for node in nodes:
                node.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await node.task

    run(main())


@pytest.mark.parametrize("prefixed", [False, True])
def test_a_change_is_enforced_where_it_was_made_at_once_and_elsewhere_soon(prefixed):
    async def story(one, other, _):
        await one.admin.create([binding(prefixed=prefixed)])
        assert one.allows()
        await other.until_it_is(True)
        await other.admin.create([binding(allowed=False)])
        assert not other.allows()
        await one.until_it_is(False)
        await one.admin.delete([binding(allowed=False)])
        assert one.allows()
        await other.until_it_is(True)
        await one.admin.delete([binding(prefixed=prefixed)])
        await other.until_it_is(False)

    play_nodes(story)


def test_what_is_stored_before_the_start_is_enforced_from_the_start():
    async def prepare(store):
        await AclAdmin(store, is_configured=True).create([binding(), binding("p", prefixed=True)])

    async def story(one, *_):
        assert one.allows("t")
        assert one.allows("papers")
        assert not one.allows("q")

    play_nodes(story, prepare=prepare)


def test_the_parents_of_acls_exist_before_the_first_acl_as_with_apache_kafka():
    async def story(one, *_):
        found = ["/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended"]
        found.append("/kafka-acl-extended-changes")
        kinds = ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"]
        for root in ("/kafka-acl", "/kafka-acl-extended/prefixed"):
            assert sorted(await one.store.children(root)) == kinds
        top = [f"/{name}" for name in await one.store.children("/")]
        assert sorted(path for path in top if "acl" in path) == found

    play_nodes(story)


def test_after_a_lost_session_everything_is_read_again():
    async def story(one, other, _):
        await one.admin.create([binding("kept")])
        await other.until_it_is(True, "kept")
        other.tree.expire(other.store.session_id)
        await one.admin.create([binding("new")])
        await one.admin.delete([binding("kept")])
        await other.store.open()
        other.changes.session_opened()
        await other.until_it_is(True, "new")
        assert not other.allows("kept")
        await one.admin.create([binding("later")])
        await other.until_it_is(True, "later")

    play_nodes(story)


def test_a_node_that_cannot_be_decoded_prevents_the_start():
    async def prepare(store):
        await store.create(acl_path(binding().pattern), b"{", make_parents=True)

    async def story(*_):
        raise AssertionError("it has started")

    with pytest.raises(StartupError, match=r"/kafka-acl/Topic/t"):
        play_nodes(story, prepare=prepare)


def test_a_node_that_can_no_longer_be_decoded_leaves_its_acls_in_force(caplog):
    async def story(one, other, _):
        await one.admin.create([binding()])
        await other.until_it_is(True)
        await one.store.set_data(acl_path(binding().pattern), b"{")
        await other.changes.refresh(binding().pattern)
        assert other.allows()

    play_nodes(story)
    assert "stay in force" in caplog.text


def test_a_notification_that_cannot_be_decoded_stops_no_other(caplog):
    async def story(one, other, _):
        await one.store.create(f"{ACL_CHANGES}/acl_changes_", b"?", sequential=True)
        await one.admin.create([binding()])
        await other.until_it_is(True)

    play_nodes(story)
    assert "does not name the ACLs" in caplog.text


@pytest.mark.parametrize(
    ("parent", "prefixed"), [(ACL_CHANGES, False), (EXTENDED_ACL_CHANGES, True)]
)
def test_old_notifications_are_deleted(parent, prefixed):
    async def story(one, other, clock):
        await one.admin.create([binding("old", prefixed=prefixed)])
        await other.until_it_is(True, "old")
        clock.ms += NOTICE_AGE_MS_MAX + 1
        await one.admin.create([binding("new", prefixed=prefixed)])
        await other.until_it_is(True, "new")
        await asyncio.sleep(0.1)
        assert await one.store.children(parent) == ["acl_changes_0000000001"]

    play_nodes(story)


def test_acls_of_a_running_broker_decide_about_its_next_request():
    async def story(live):
        await live.topic("t")
        live.broker.acl_changes.authorizer.configure(AclSettings(frozenset({"User:root"})))
        peer, root = live.peer(), live.peer()
        root.connection.session.principal = "User:root"
        request = produce(live.batch(b"a"))
        refused = await peer.ask(request)
        creation = create_acls.AclCreation(
            resource_type=TOPIC,
            resource_name="t",
            resource_pattern_type=3,
            principal="User:ANONYMOUS",
            host="*",
            operation=WRITE,
            permission_type=3,
        )
        created = await root.ask(create_acls.CreateAclsRequest(creations=[creation]))
        served = await peer.ask(request)

        assert error_of(refused) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert created.results[0].error_code == ErrorCode.NONE
        assert error_of(served) == ErrorCode.NONE

    play(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:ANONYMOUS")


def error_of(response):
    return response.responses[0].partition_responses[0].error_code
