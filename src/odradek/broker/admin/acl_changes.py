"""Keeps the ACLs that a broker enforces equal to those in the store.

All ACLs are read before the broker serves requests. A change writes a notification, which names the
pattern, below one of two nodes: each broker watches both, and reads the ACLs on that pattern again.
After a new session everything is read again, because the watches ended with the old one.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from odradek.broker.admin.acls import stored_acls
from odradek.broker.cluster.store_update import NoticeFollower
from odradek.broker.serving.acl_authorizer import AclAuthorizer
from odradek.coord.layout_security import (
    ACL_CHANGE_PREFIX,
    ACL_CHANGES,
    ACL_PARENTS,
    EXTENDED_ACL_CHANGES,
    acl_path,
    decode_acl_change,
    decode_acls,
)
from odradek.coord.store import NodeExistsError, Store
from odradek.coord.znode import CorruptNodeError
from odradek.model.acl import AclEntry, ResourcePattern
from odradek.model.clock import Clock
from odradek.model.errors import StartupError

_PARENTS: Final = (ACL_CHANGES, EXTENDED_ACL_CHANGES)

log = logging.getLogger(__name__)


class AclChanges(NoticeFollower):
    """Follows the ACLs in the store, for one broker."""

    def __init__(self, store: Store, authorizer: AclAuthorizer, clock: Clock) -> None:
        super().__init__(store, clock, parents=_PARENTS, name_prefix=ACL_CHANGE_PREFIX)
        self.authorizer = authorizer
        self._is_loaded = False
        self._reading = asyncio.Lock()  # what is read first is applied first

    async def load(self) -> None:
        """Read all ACLs, and begin to watch for changes.

        The parents of all ACLs are created before, as by Apache Kafka: tools find them before the
        first ACL is written.

        Raises:
            StoreError: the store cannot be used.
            StartupError: a node cannot be decoded.
        """
        for path in ACL_PARENTS:
            if await self._store.exists(path) is None:
                with suppress(NodeExistsError):  # another broker created it
                    await self._store.create(path, make_parents=True)
        await super().load()

    async def refresh(self, pattern: ResourcePattern) -> None:
        """Read the ACLs on one pattern again.

        Raises:
            StoreError: the store cannot be read.
        """
        await self._read([pattern])

    # --------------------------------------------------------------------------- inside

    async def _read_all(self) -> None:
        """Raises:
        StartupError: at the first time: a node cannot be decoded.
        """
        async with self._reading:
            stored = await stored_acls(self._store)
            self.authorizer.replace_all(
                {pattern: self._decode(pattern, data) for pattern, data in stored.items()}
            )
        self._is_loaded = True

    async def _read_changed(self, notices: Mapping[str, bytes | None]) -> None:
        changed: dict[ResourcePattern, None] = {}
        for path, data in notices.items():
            try:
                changed[decode_acl_change(path, data)] = None
            except CorruptNodeError:
                log.exception("a notification does not name the ACLs that have changed")
        await self._read(changed)

    async def _read(self, patterns: Iterable[ResourcePattern]) -> None:
        wanted = list(patterns)
        async with self._reading:
            nodes = await self._store.get_many([acl_path(pattern) for pattern in wanted])
            for pattern, node in zip(wanted, nodes, strict=True):
                data = None if node is None else node[0]
                self.authorizer.put(pattern, self._decode(pattern, data))

    def _decode(self, pattern: ResourcePattern, data: bytes | None) -> frozenset[AclEntry]:
        try:
            return decode_acls(acl_path(pattern), data)
        except CorruptNodeError as error:
            if not self._is_loaded:
                raise StartupError(
                    f"ACLs cannot be enforced: {error}; correct the node, or delete it"
                ) from None
            log.exception("the ACLs that were read before stay in force")
            return self.authorizer.entries(pattern)
