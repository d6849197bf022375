"""Copies a cluster's metadata from one coordination store to another.

From the embedded store to ZooKeeper, when a cluster outgrows its machine or is to be run by Apache
Kafka, and back. Sessions and ephemeral nodes are not copied, nor are notifications of changes:

1. The ACLs change 13 times; brokers delete old notifications, and `acl_changes_0000000012` is left.
2. It is copied. The new store numbers by the children that the parent has had there: the next
notification is 1. 3. A broker has started with 12 as the last one that it has handled, so it
ignores the next 12 changes: an ACL that is deleted there stays in force.
"""

from typing import Final

from odradek.coord import layout
from odradek.coord.layout_config import CONFIG_CHANGES
from odradek.coord.layout_security import ACL_CHANGES, EXTENDED_ACL_CHANGES, TOKEN_CHANGES
from odradek.coord.store import Create, MultiError, NodeExistsError, SetData, Store
from odradek.model.errors import OdradekError

_AT_ONCE = 200
_ZOOKEEPERS_OWN = "/zookeeper"
# What is below them was for brokers that ran: a broker that starts reads everything.
_NOTIFICATIONS: Final = frozenset(
    {
        ACL_CHANGES,
        EXTENDED_ACL_CHANGES,
        TOKEN_CHANGES,
        CONFIG_CHANGES,
        layout.ISR_CHANGES,
        layout.LOG_DIR_EVENTS,
    }
)


class CopyError(OdradekError):
    """The copy was refused, or failed before its end."""


async def copy_nodes(source: Store, target: Store) -> int:
    """Copy every persistent node that is no notification. Returns the number of them.

    A node that exists in the target already must have the same data: so an interrupted copy can be
    started again, and two clusters cannot be mixed.

    Raises:
        CopyError: a broker is registered in one of them, or the target has other data.
    """
    for store, which in ((source, "source"), (target, "target")):
        await _require_no_brokers(store, which)
    nodes = await _persistent(source)
    there = dict(zip(nodes, await target.get_many(list(nodes)), strict=True))
    for path, data in nodes.items():
        found = there[path]
        if found is not None and (found[0] or b"") != (data or b""):
            raise CopyError(
                f"{path} exists in the target already, with other data: it belongs to another "
                "cluster; nothing was copied. Choose an empty chroot or directory"
            )
    missing = [path for path in nodes if there[path] is None]
    # Parents first: a level is complete before the next one begins.
    for depth in sorted({path.count("/") for path in missing}):
        level = [path for path in missing if path.count("/") == depth]
        for begin in range(0, len(level), _AT_ONCE):
            await _create(target, {path: nodes[path] for path in level[begin : begin + _AT_ONCE]})
    await _keep_count(source, target)
    return len(nodes)


async def _require_no_brokers(store: Store, which: str) -> None:
    if await store.exists(layout.BROKER_IDS) is None:
        return
    registered = await store.children(layout.BROKER_IDS)
    if registered:
        raise CopyError(
            f"broker {', '.join(registered)} is registered in the {which}: stop all brokers "
            "first, and wait for their sessions to end"
        )


async def _persistent(source: Store) -> dict[str, bytes | None]:
    """Every node that is neither ephemeral nor a notification, parents before children."""
    nodes: dict[str, bytes | None] = {}
    level = ["/"]
    while level:
        below: list[str] = []
        for parent in level:
            names = await source.children(parent)
            below += [f"{parent.rstrip('/')}/{name}" for name in names]
        level = []
        for path, found in zip(below, await source.get_many(below), strict=True):
            if found is not None and not found[1].ephemeral_owner and path != _ZOOKEEPERS_OWN:
                nodes[path] = found[0]
                if path not in _NOTIFICATIONS:
                    level.append(path)
    return nodes


async def _create(target: Store, nodes: dict[str, bytes | None]) -> None:
    outcomes = await target.multi_many([[Create(path, data)] for path, data in nodes.items()])
    for path, outcome in zip(nodes, outcomes, strict=True):
        if isinstance(outcome, MultiError) and not isinstance(outcome.cause, NodeExistsError):
            raise CopyError(f"{path} could not be created: {outcome.cause}; start the copy again")


async def _keep_count(source: Store, target: Store) -> None:
    """Broker ids are drawn from a node's version: raise it, so that no id is drawn twice."""
    drawn = await source.exists(layout.BROKER_SEQUENCE_ID)
    kept = await target.exists(layout.BROKER_SEQUENCE_ID)
    if drawn is None or kept is None:
        return
    data, _ = await source.get(layout.BROKER_SEQUENCE_ID)
    for _ in range(drawn.version - kept.version):
        await target.multi([SetData(layout.BROKER_SEQUENCE_ID, data)])
