"""Requests, answers, errors and ACLs of ZooKeeper, converted to and from kazoo's classes.

Rules and values only; `odradek.coord.zookeeper` sends them. Paths here are complete, including
the chroot; errors contain the path as the store's user gave it.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, assert_never

from kazoo import exceptions as kazoo_errors  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    CheckVersion,
    GetData,
    MultiHeader,
    Transaction,
    int_struct,
    multiheader_struct,
    stat_struct,
)
from kazoo.protocol.serialization import Create as CreateNode
from kazoo.protocol.serialization import Delete as DeleteNode
from kazoo.protocol.serialization import SetData as SetNodeData
from kazoo.security import (  # type: ignore[import-untyped]
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
)

from odradek.coord.store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SetData,
    Stat,
    StoreError,
)
from odradek.coord.tree import parent_of

# The default of jute.maxbuffer: a server closes the connection on a longer request.
REQUEST_BYTES_MAX: Final = 0xFFFFF

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_OPEN_TO_ALL: Final = "/consumers"  # old consumers create their own nodes below it
_NOT_TO_BE_READ: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
# An upper bound of what an operation of a multi takes besides its path and data.
_OPERATION_BYTES: Final = 128
_ENVELOPE_BYTES: Final = 17

# Errors in a failed multi of the operations before and after the one that failed.
_NOT_THE_CAUSE: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
SESSION_OVER: Final = (
    kazoo_errors.SessionExpiredError,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.AuthFailedError,
)
CONNECTION_LOST: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.SessionMovedError,
)


class MultiRead(NamedTuple):
    """The data of many nodes in one request (ZooKeeper 3.6 and later; not in kazoo)."""

    paths: Sequence[str]
    type: int = 22

    def serialize(self) -> bytearray:
        """ZooKeeper's encoding: a header before each read, and one that ends them."""
        frame = bytearray()
        for path in self.paths:
            frame += MultiHeader(GetData.type, False, -1).serialize()
            frame += GetData(path, None).serialize()
        frame += multiheader_struct.pack(-1, True, -1)
        return frame

    @classmethod
    def deserialize(cls, frame: bytes, offset: int) -> list[Any]:
        """For each path the answer of GetData, or the exception that it raises."""
        answers: list[Any] = []
        while True:
            header, offset = MultiHeader.deserialize(frame, offset)
            if header.done:
                return answers
            if header.type == -1:
                (code,) = int_struct.unpack_from(frame, offset)
                offset += int_struct.size
                answers.append(kazoo_errors.EXCEPTIONS[code]())
            else:
                data, stat = GetData.deserialize(frame, offset)
                offset += int_struct.size + len(data or b"") + stat_struct.size
                answers.append((data, stat))


def acl_of(path: str, *, is_secured: bool) -> list[Any]:
    """The ACL of a new node, as Apache Kafka chooses it by `zookeeper.set.acl`."""
    if not is_secured or path == _OPEN_TO_ALL:
        return list(OPEN_ACL_UNSAFE)
    if path.startswith(_NOT_TO_BE_READ):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def message_of(operation: Operation, *, root: str, is_secured: bool) -> Any:
    """An operation as kazoo's request, alone or as a part of a multi."""
    path = root + operation.path
    match operation:
        case Create():
            flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
            acl = acl_of(operation.path, is_secured=is_secured)
            return CreateNode(path, operation.data, acl, flags)
        case SetData():
            return SetNodeData(path, operation.data, operation.version)
        case Delete():
            return DeleteNode(path, operation.version)
        case Check():
            return CheckVersion(path, operation.version)
        case _:
            assert_never(operation)


def multi_of(operations: Sequence[Operation], *, root: str, is_secured: bool) -> Any:
    """Operations as one transaction (kazoo's class)."""
    return Transaction(
        [message_of(operation, root=root, is_secured=is_secured) for operation in operations]
    )


def check_size(message: Any, operations: Sequence[Operation], *, bytes_max: int) -> None:
    """Refuse a request on which the server would close the connection.

    Raises:
        StoreError: the request is too long.
    """
    # Most are far below: an upper bound makes the exact count unnecessary.
    guess = _ENVELOPE_BYTES
    for operation in operations:
        guess += _OPERATION_BYTES + 4 * len(operation.path)
        if isinstance(operation, Create | SetData):
            guess += len(operation.data or b"")
    if guess <= bytes_max:
        return
    size = len(message.serialize()) + _ENVELOPE_BYTES
    if size > bytes_max:
        raise StoreError(
            f"{operations[0].path}: a request of {size} bytes for {len(operations)} operations; "
            f"ZooKeeper takes {bytes_max} (jute.maxbuffer)"
        )


def stat_of(stat: Any) -> Stat:
    return Stat(
        version=stat.version,
        created_id=stat.czxid,
        modified_id=stat.mzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        children_count=stat.numChildren,
        children_version=stat.cversion,
    )


def result_of(operation: Operation, answer: Any, *, root: str) -> Result:
    """The result of an operation that succeeded, as `Store` defines it."""
    match operation:
        case Create():
            path: str = answer
            return path[len(root) :]
        case SetData():
            return stat_of(answer)
        case Delete() | Check():
            return None
        case _:
            assert_never(operation)


def results_of(
    operations: Sequence[Operation], answers: Sequence[Any], *, root: str
) -> list[Result] | MultiError:
    """The results of a multi, or its MultiError."""
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception) and not isinstance(answer, _NOT_THE_CAUSE):
            return MultiError(index, error_of(answer, operations[index]))
    return [
        result_of(operation, answer, root=root)
        for operation, answer in zip(operations, answers, strict=True)
    ]


def error_of(error: Exception, subject: Operation | str) -> StoreError:
    """Kazoo's exception as a StoreError; `subject` is the operation, or the path read."""
    path = subject if isinstance(subject, str) else subject.path
    text = f"{path}: ZooKeeper answers {type(error).__name__}"
    result = StoreError(f"{text} {error}".rstrip())
    if isinstance(error, SESSION_OVER):
        result = SessionExpiredError(f"{path}: the session with ZooKeeper is over")
    elif isinstance(error, CONNECTION_LOST):
        result = ConnectionLostError(f"{path}: the connection to ZooKeeper was lost")
    elif isinstance(error, kazoo_errors.NoNodeError):
        result = NoNodeError(f"{path} does not exist")
        if isinstance(subject, Create):
            result = NoNodeError(f"{path}: its parent {parent_of(path)} does not exist")
    elif isinstance(error, kazoo_errors.NodeExistsError):
        result = NodeExistsError(f"{path} exists already")
    elif isinstance(error, kazoo_errors.NotEmptyError):
        result = NotEmptyError(f"{path} has children")
    elif isinstance(error, kazoo_errors.BadVersionError):
        version = subject.version if isinstance(subject, SetData | Delete | Check) else "asked for"
        result = BadVersionError(f"{path} has another version, not {version}")
    elif isinstance(error, kazoo_errors.NoChildrenForEphemeralsError):
        result = StoreError(f"{path}: its parent is ephemeral, and can have no children")
    elif isinstance(error, kazoo_errors.NoAuthError):
        result = StoreError(f"{path}: its ACL in ZooKeeper does not allow this to our credentials")
    return result


def node_of(answer: Any) -> tuple[bytes | None, Stat]:
    data, stat = answer
    return data, stat_of(stat)


def found_node(path: str, answer: Any) -> tuple[bytes | None, Stat] | None:
    if isinstance(answer, kazoo_errors.NoNodeError):
        return None
    if isinstance(answer, Exception):
        raise error_of(answer, path)
    return node_of(answer)


_PERMISSIONS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}


def letters(permissions: int) -> str:
    return "".join(letter for letter, bit in _PERMISSIONS.items() if permissions & bit)


def permission_bits(permissions: str) -> int:
    return sum(bit for letter, bit in _PERMISSIONS.items() if letter in permissions)
