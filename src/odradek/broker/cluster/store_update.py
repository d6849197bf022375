"""One node of the store changed by what stands in it, with a notice to all brokers.

What ACLs, quotas and credentials have in common: read, change, write if nobody wrote meanwhile -
else the change is judged again on what stands then.
"""

from collections.abc import Callable
from typing import Final

from odradek.coord.store import (
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Store,
)
from odradek.model.errors import ApiError, ErrorCode

_ATTEMPTS: Final = 5

# From a node's data (None: there is none) to what it shall be (None: the node goes).
Change = Callable[[bytes | None], bytes | None]


async def read(store: Store, path: str) -> bytes | None:
    """A node's data; None if it is not there."""
    (node,) = await store.get_many([path])
    return None if node is None else node[0]


async def children(store: Store, path: str) -> list[str]:
    """The names below a node; none if it is not there."""
    try:
        return await store.children(path)
    except NoNodeError:
        return []


async def update(store: Store, path: str, change: Change, notice: Create) -> None:
    """Change a node, and tell all brokers, in one transaction. Nothing happens if nothing changes.

    Raises:
        ApiError: what `change` raises; or the node was written again and again meanwhile.
        StoreError: the store failed.
    """
    for _ in range(_ATTEMPTS):
        (node,) = await store.get_many([path])
        before = None if node is None else node[0]
        after = change(before)
        if after == before:
            return
        if node is None:
            assert after is not None
            await _make_parents(store, path)
            write: Operation = Create(path, after)
        elif after is None:
            write = Delete(path, node[1].version)
        else:
            write = SetData(path, after, node[1].version)
        await _make_parents(store, notice.path)
        try:
            await store.multi([write, notice])
        except MultiError:
            continue  # somebody wrote meanwhile
        return
    raise ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} was written {_ATTEMPTS} times meanwhile"
    )


async def _make_parents(store: Store, path: str) -> None:
    parent = path.rpartition("/")[0]
    if parent and await store.exists(parent) is None:
        try:
            await store.create(parent, make_parents=True)
        except NodeExistsError:
            return  # another broker was faster
