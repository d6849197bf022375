"""Requests of the Arrow client about topics, with retries.

A temporary error (a leader moves, a broker fails) is retried until no attempt has succeeded for
`default.api.timeout.ms`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from odradek.client.cluster import BootstrapError, Cluster, InvalidAddressError, UnresolvableError
from odradek.client.fetch.leaders import is_temporary
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.net.retry import Retries, retry

# How long a topic may take that brokers create automatically.
_CREATION_TIMEOUT_MS: Final = 10_000
_BACKOFF_MS: Final = 20
_BACKOFF_MS_MAX: Final = 500
# Error codes for topics that do not exist, or are not authorized to be described.
_MISSING: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}

T = TypeVar("T")


class UnknownTopicError(OdradekError):
    """A topic or partition does not exist."""


async def topic_names(cluster: Cluster) -> list[str]:
    """The names of all topics except internal ones."""
    answer = await retried(cluster, "the topics", lambda: cluster.refresh(None))
    return sorted(topic.name for topic in answer.topics if topic.name and not topic.is_internal)


async def partitions_by_topic(
    cluster: Cluster, topics: Collection[str], *, creating: bool = False, missing_ms: int = 0
) -> dict[str, list[int]]:
    """The partitions of topics.

    A missing topic is requested again for `missing_ms`: a broker that has just started has an
    empty metadata cache until the controller sends UpdateMetadata. `creating` lets brokers
    create missing topics automatically, and waits for them.

    Raises:
        UnknownTopicError: a topic does not exist.
    """
    attempts = retries(max(missing_ms, _CREATION_TIMEOUT_MS if creating else 0))
    while True:
        found = await existing(cluster, topics, creating=creating)
        missing = [topic for topic in topics if topic not in found]
        if not missing:
            return found
        if not await attempts.pause():
            raise UnknownTopicError(f"topic {missing[0]!r} does not exist")


async def existing(
    cluster: Cluster, topics: Collection[str], *, creating: bool = False
) -> dict[str, list[int]]:
    """The partitions of those topics that the broker's metadata contains."""

    async def ask() -> dict[str, list[int]]:
        answer = await cluster.refresh(topics, creating=creating)
        found = {}
        for topic in answer.topics:
            code = ErrorCode(topic.error_code)
            if code in _MISSING:
                continue
            if code is not ErrorCode.NONE:
                raise ApiError(code, f"topic {topic.name!r}")
            found[topic.name or ""] = sorted(p.partition_index for p in topic.partitions)
        return found

    if not topics:
        return {}
    return await retried(cluster, f"the partitions of {', '.join(sorted(topics))}", ask)


async def retried(cluster: Cluster, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry until success, as long as the error is temporary.

    Raises:
        ApiError: a permanent error, or no success within `default.api.timeout.ms`.
        ConnectionError, BootstrapError: no broker was reached within that time.
    """
    deadline_s = asyncio.get_running_loop().time() + cluster.settings.api_timeout_ms / 1000
    errors = (ApiError, ConnectionError, BootstrapError)
    try:
        return await retry(attempt, _pause_s, on=errors, failed=_permanent, deadline_s=deadline_s)
    except errors as error:
        raise _with_context(what, error) from None


def retries(timeout_ms: int) -> Retries:
    """Growing pauses, for `timeout_ms` from now on."""
    deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    return Retries(_pause_s, deadline_s=deadline_s)


def _pause_s(failures: int) -> float:
    return min(_BACKOFF_MS << min(failures - 1, 30), _BACKOFF_MS_MAX) / 1000


def _permanent(error: Exception) -> None:
    """Raise an error that is not temporary."""
    if not is_temporary(error) or isinstance(error, InvalidAddressError | UnresolvableError):
        raise error


def _with_context(what: str, error: Exception) -> Exception:
    if isinstance(error, ApiError):
        return ApiError(error.code, f"{what}: {error.message or error.code.name}")
    if isinstance(error, BootstrapError):
        return BootstrapError(f"{what}: {error}")
    return ConnectionError(f"{what}: {error}")
