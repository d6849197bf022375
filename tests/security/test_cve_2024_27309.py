"""CVE-2024-27309: ACLs were lost while a cluster's metadata moved to another store."""

from odradek.coord.copying import copy_nodes
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.sim.world.loop import run

ACLS = {
    "/kafka-acl/Topic/t": b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny",'
    b'"operation":"All","host":"*"}]}',
    "/kafka-acl/Cluster/kafka-cluster": b'{"version":1,"acls":[]}',
    "/kafka-acl-extended/prefixed/Group/g": b'{"version":1,"acls":[{"principal":"User:b",'
    b'"permissionType":"Allow","operation":"Read","host":"10.0.0.1"}]}',
    "/config/users/alice": b'{"version":1,"config":{"SCRAM-SHA-512":"salt=eA==,iterations=4096"}}',
    "/tokenauth/tokens/id": b'{"version":1}',
}


def test_acls_users_and_tokens_are_the_same_after_a_copy():
    async def story():
        source, target = (MemoryStore(MemoryTree(wall_ms=lambda: 0)) for _ in range(2))
        for store in (source, target):
            await store.open()
        for path, data in ACLS.items():
            await source.create(path, data, make_parents=True)
        await copy_nodes(source, target)
        found = await target.get_many(list(ACLS))

        assert [node and node[0] for node in found] == list(ACLS.values())

    run(story())
