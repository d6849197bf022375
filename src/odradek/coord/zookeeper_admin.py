"""What only ZooKeeper has and only its shell asks for: ACLs, who a session is, the ensemble."""

from collections.abc import Sequence
from typing import Any

from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    GetData,
    SetACL,
    Sync,
    int_struct,
    read_string,
)
from kazoo.security import ACL, Id  # type: ignore[import-untyped]

from odradek.coord.store import ANY_VERSION, Access, Stat
from odradek.coord.zookeeper import ZooKeeperStore
from odradek.coord.zookeeper_messages import node_of, permission_bits, stat_of


class WhoAmI:
    """The request `whoAmI` of ZooKeeper 3.7 and later, which kazoo does not have."""

    type = 107

    def serialize(self) -> bytes:
        """The body, which is empty."""
        return b""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> list[tuple[str, str]]:
        """Scheme and user of each identity of the session."""
        (count,) = int_struct.unpack_from(buffer, offset)
        offset += int_struct.size
        found = []
        for _ in range(count):
            scheme, offset = read_string(buffer, offset)
            user, offset = read_string(buffer, offset)
            found.append((scheme, user))
        return found


class ZooKeeperAdmin:
    """Requests of an administrator, in a session of a store."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store

    async def set_access(
        self, path: str, entries: Sequence[Access], version: int = ANY_VERSION
    ) -> Stat:
        """Replace a node's ACL if the ACL has this version.

        After a lost connection it is sent again: a version may then be refused that was right.

        Raises:
            NoNodeError: the node does not exist; BadVersionError: the ACL has another version.
        """
        acls = [
            ACL(permission_bits(entry.permissions), Id(entry.scheme, entry.id)) for entry in entries
        ]
        return await self._store.ask(
            path, lambda whole, _: SetACL(whole, acls, version), None, stat_of
        )

    async def identities(self) -> list[tuple[str, str]]:
        """Scheme and user of each identity of this session."""
        return await self._store.ask("/", lambda *_: WhoAmI(), None, list)

    async def sync(self, path: str) -> None:
        """Let the server that this session uses catch up with the leader."""
        await self._store.ask(path, lambda whole, _: Sync(whole), None, _nothing)

    async def ensemble(self) -> tuple[bytes | None, Stat]:
        """The servers, in the node that ZooKeeper keeps outside of every chroot."""
        return await self._store.ask(
            "/zookeeper/config", lambda *_: GetData("/zookeeper/config", None), None, node_of
        )


def _nothing(_answer: Any) -> None:
    """The answer repeats the path."""
