"""Requests that name many things, handled a part at a time.

    for part in pieces(request, parts):                 # the same request with fewer elements
        join(response, handle(part), parts.answered)    # the same response as for the whole request

For APIs whose elements are independent of each other: AddPartitionsToTxn of a client, CreateTopics
and AlterPartitionReassignments, for example, are not among them. A handler needs no code for a
large request, and the loop is free between two parts. Requests that fit into one part do not come
here.

Where a handler treats an element that is named twice in its own way (it refuses both, or answers
one), equal elements come into the same part: the answer does not depend on the request's size.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from odradek.wire.api_keys import ApiKey

# Elements of a part: a millisecond if each takes 20 us.
PART: Final = 50


class Parts(NamedTuple):
    """The path to the innermost elements in both messages: array, array of its elements, ...

    `together`: a part may wait (for replicas), so the next one begins before it is complete.
    """

    asked: tuple[str, ...]
    answered: tuple[str, ...]
    together: bool = False
    key: tuple[str, ...] = ()  # elements with the same values of these fields, or equal strings
    kept: int = 0  # so many equal elements are handled, and answered like all; 0: each of them


_TOPICS: Final = Parts(("topics", "partitions"), ("topics", "partitions"))
_WRITTEN: Final = _TOPICS._replace(together=True)
_RESOURCES: Final = Parts(("resources",), ("responses",), key=("resource_type", "resource_name"))
PARTS: Final[Mapping[ApiKey, Parts]] = {
    ApiKey.METADATA: Parts(("topics",), ("topics",), key=("name", "topic_id"), kept=1),
    ApiKey.OFFSET_COMMIT: _WRITTEN,
    ApiKey.TXN_OFFSET_COMMIT: _WRITTEN,
    ApiKey.OFFSET_DELETE: _TOPICS,
    ApiKey.OFFSET_FETCH: Parts(
        ("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _TOPICS,
    ApiKey.DELETE_RECORDS: _WRITTEN,
    ApiKey.FIND_COORDINATOR: Parts(("coordinator_keys",), ("coordinators",)),
    ApiKey.DESCRIBE_GROUPS: Parts(("groups",), ("groups",)),
    ApiKey.DELETE_GROUPS: Parts(("groups_names",), ("results",), key=("groups_names",), kept=1),
    ApiKey.DELETE_TOPICS: Parts(("topics",), ("responses",), together=True),
    ApiKey.ELECT_LEADERS: Parts(
        ("topic_partitions", "partitions"),
        ("replica_election_results", "partition_result"),
        together=True,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Parts(
        ("topics", "partition_indexes"), ("topics", "partitions")
    ),
    ApiKey.ALTER_CONFIGS: _RESOURCES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _RESOURCES,
    ApiKey.DESCRIBE_PRODUCERS: Parts(("topics", "partition_indexes"), ("topics", "partitions")),
    ApiKey.DESCRIBE_TRANSACTIONS: Parts(("transactional_ids",), ("transaction_states",)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Parts(("transactions",), ("results_by_transaction",)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Parts(
        ("dirs", "topics", "partitions"), ("results", "partitions")
    ),
    ApiKey.CREATE_ACLS: Parts(("creations",), ("results",)),
    ApiKey.DELETE_ACLS: Parts(("filters",), ("filter_results",)),
    ApiKey.ALTER_CLIENT_QUOTAS: Parts(("entries",), ("entries",)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Parts(("users",), ("results",), key=("name",), kept=2),
    ApiKey.UPDATE_FEATURES: Parts(("feature_updates",), ("results",), key=("feature",)),
}
# Up to this version, the arrays of these APIs are in other fields, or there are none.
_BEFORE: Final[Mapping[ApiKey, tuple[int, Parts | None]]] = {
    ApiKey.OFFSET_FETCH: (7, Parts(("topics", "partition_indexes"), ("topics", "partitions"))),
    ApiKey.FIND_COORDINATOR: (3, None),
    ApiKey.DELETE_TOPICS: (5, Parts(("topic_names",), ("responses",), together=True)),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3, None),  # all of the client's partitions, or none
}


def parts_of(api_key: int, api_version: int) -> Parts | None:
    """How a request of this API is split; None: it is handled whole."""
    key = ApiKey(api_key)
    last, before = _BEFORE.get(key, (-1, None))
    return before if api_version <= last else PARTS.get(key)


def pieces(request: Any, parts: Parts) -> Iterator[Any]:
    """Split a request into requests that together name the same elements; equal ones in one."""
    if not parts.key:
        yield from split(request, parts.asked)
        return
    name = parts.asked[0]
    groups: dict[Any, list[Any]] = {}
    for element in getattr(request, name):
        group = groups.setdefault(_key_of(element, parts.key), [])
        if not parts.kept or len(group) < parts.kept:
            group.append(element)
    for some in _packed(groups.values()):
        yield _with(request, name, some)


def _key_of(element: Any, fields: tuple[str, ...]) -> Any:
    if isinstance(element, str):
        return element
    return tuple(getattr(element, field) for field in fields)


def _packed(groups: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Lists of at most `PART` elements. No element of a group is without another one of it."""
    some: list[Any] = []
    for group in groups:
        if len(some) + len(group) > PART and some:
            yield some
            some = []
        begin = 0
        while (left := len(group) - begin) > PART:
            end = begin + (PART - 1 if left == PART + 1 else PART)
            yield group[begin:end]
            begin = end
        some += group[begin:]
    if some:
        yield some


def split(request: Any, way: tuple[str, ...]) -> Iterator[Any]:
    """Split a request into requests that together name the same elements, in the same order."""
    name, *rest = way
    some: list[Any] = []
    weight = 0
    for element in getattr(request, name) or ():
        its_weight = _weight(element, tuple(rest))
        if its_weight > PART:
            if some:
                yield _with(request, name, some)
                some, weight = [], 0
            for piece in split(element, tuple(rest)):
                yield _with(request, name, [piece])
            continue
        some.append(element)
        weight += its_weight
        if weight >= PART:
            yield _with(request, name, some)
            some, weight = [], 0
    if some or not getattr(request, name):
        yield _with(request, name, some) if some else request


def fail_alike(response: Any, part: Any) -> None:
    """Let the answer as a whole be a refusal if that to one of its parts is."""
    if getattr(part, "error_code", 0) and not response.error_code:
        response.error_code = part.error_code
        if hasattr(part, "error_message"):
            response.error_message = part.error_message


def join(response: Any, part: Any, way: tuple[str, ...]) -> None:
    """Append the answer to a part to the answer to the parts before it."""
    name, *rest = way
    there, more = getattr(response, name), getattr(part, name)
    if there and more and rest and _alike(there[-1], more[0], rest[0]):
        join(there[-1], more[0], tuple(rest))
        more = more[1:]
    there += more


def _weight(element: Any, way: tuple[str, ...]) -> int:
    """The number of innermost elements, at least 1."""
    if not way:
        return 1
    below = getattr(element, way[0]) or ()
    if len(way) == 1:
        return max(1, len(below))
    return max(1, sum(_weight(each, way[1:]) for each in below))


def _with(message: Any, name: str, elements: list[Any]) -> Any:
    made = copy.copy(message)
    setattr(made, name, elements)
    return made


def _alike(one: Any, other: Any, but: str) -> bool:
    """Whether two elements are of the same topic (or group): all other fields are equal."""
    return all(
        getattr(one, field.name) == getattr(other, field.name)
        for field in type(one).SCHEMA.fields
        if field.name != but
    )
