"""Keeps the ACLs that a broker enforces equal to those in the store.

All ACLs are read before the broker serves requests. A change writes a notification, which names the
pattern, below one of two nodes: each broker watches both, and reads the ACLs on that pattern again.
After a new session everything is read again, because the watches ended with the old one.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from odradek.broker.admin.acls import stored_acls
from odradek.broker.cluster.store_update import NOTICE_AGE_MS_MAX, ChangeFollower, purge
from odradek.broker.serving.acl_authorizer import AclAuthorizer
from odradek.coord.layout import sequence_number
from odradek.coord.layout_security import (
    ACL_CHANGE_PREFIX,
    ACL_CHANGES,
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


class AclChanges(ChangeFollower):
    """Follows the ACLs in the store, for one broker."""

    def __init__(self, store: Store, authorizer: AclAuthorizer, clock: Clock) -> None:
        super().__init__()
        self._store = store
        self.authorizer = authorizer
        self._clock = clock
        self._seen = dict.fromkeys(_PARENTS, -1)  # the number of the last notification handled
        self._is_loaded = False
        self._reading = asyncio.Lock()  # what is read first is applied first

    async def load(self) -> None:
        """Read all ACLs, and begin to watch for changes.

        Raises:
            StoreError: the store cannot be read.
            StartupError: at the first time: a node cannot be decoded.
        """
        for parent in _PARENTS:
            if await self._store.exists(parent) is None:
                try:
                    await self._store.create(parent, make_parents=True)
                except NodeExistsError:
                    continue  # another broker created it
        # Notifications first: what changes while the ACLs are read is read once more.
        notices = await self._notices()
        async with self._reading:
            stored = await stored_acls(self._store)
            self.authorizer.replace_all(
                {pattern: self._decode(pattern, data) for pattern, data in stored.items()}
            )
        self._have_seen(notices)
        self._is_loaded = True

    async def refresh(self, pattern: ResourcePattern) -> None:
        """Read the ACLs on one pattern again.

        Raises:
            StoreError: the store cannot be read.
        """
        await self._read([pattern])

    # --------------------------------------------------------------------------- inside

    async def _notices(self) -> dict[str, tuple[str, int]]:
        """The notifications, by path: parent and number. A watch is set for further ones."""
        notices = {}
        for parent in _PARENTS:
            for name in await self._store.children(parent, self._watch):
                number = sequence_number(name, ACL_CHANGE_PREFIX)
                if number is not None:
                    notices[f"{parent}/{name}"] = (parent, number)
        return notices

    async def _handle(self) -> None:
        notices = await self._notices()
        nodes = dict(zip(notices, await self._store.get_many(list(notices)), strict=True))
        changed: dict[ResourcePattern, None] = {}
        for path, (parent, number) in notices.items():
            node = nodes[path]
            if number <= self._seen[parent] or node is None:
                continue
            try:
                changed[decode_acl_change(path, node[0])] = None
            except CorruptNodeError:
                log.exception("a notification does not name the ACLs that have changed")
        await self._read(changed)
        self._have_seen(notices)
        too_old_ms = self._clock.wall_ms() - NOTICE_AGE_MS_MAX
        await purge(self._store, nodes, created_before_ms=too_old_ms)

    def _have_seen(self, notices: dict[str, tuple[str, int]]) -> None:
        for parent, number in notices.values():
            self._seen[parent] = max(self._seen[parent], number)

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
