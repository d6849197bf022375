"""The cluster's requests of the Arrow client: partitions, leaders, offsets, coordinators.

Wraps `odradek.client.cluster.Cluster` with retries: a temporary error (a leader moves, a broker
fails) is retried until no attempt has succeeded for `api_timeout_ms`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Self, TypeVar

from odradek.client.closing import Closing
from odradek.client.cluster import (
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    BootstrapError,
    Cluster,
    InvalidAddressError,
    UnresolvableError,
)
from odradek.client.connection import Connection
from odradek.client.consumer.list_offsets import EARLIEST, LATEST, list_offsets
from odradek.client.errors import ClientTimeoutError
from odradek.client.settings import ClientSettings
from odradek.model.errors import RETRIABLE, ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.wire.messages.metadata import MetadataResponse
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)

__all__ = ["EARLIEST", "LATEST", "ArrowCluster", "Patience", "UnknownTopicError", "may_pass"]

_ONE_GROUP_VERSION: Final = 7  # of OffsetFetch
# How long a topic may take that brokers create automatically.
_CREATION_TIMEOUT_MS: Final = 10_000
_BACKOFF_MS: Final = 20
_BACKOFF_MS_MAX: Final = 500
# Error codes for topics that do not exist, or are not authorized to be described.
_MISSING: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}

T = TypeVar("T")


class UnknownTopicError(OdradekError):
    """A topic or partition does not exist."""


class ArrowCluster(Closing):
    """A cluster whose requests are retried."""

    def __init__(self, cluster: Cluster) -> None:
        self.settings = cluster.settings
        self.cluster = cluster
        self._topics_by_id: dict[bytes, str] = {}

    @classmethod
    async def connect(cls, settings: ClientSettings) -> Self:
        """Connect to the cluster.

        Raises:
            BootstrapError: no broker of `bootstrap_servers` can be reached.
            AuthenticationError: the broker refuses the credentials.
        """
        return cls(await Cluster.connect(settings))

    async def close(self) -> None:
        await self.cluster.close()

    # ------------------------------------------------------------------------- metadata

    async def topics(self) -> list[str]:
        """The names of all topics except internal ones."""
        answer = await self.retried("the topics", lambda: self.refresh(None))
        return sorted(topic.name for topic in answer.topics if topic.name and not topic.is_internal)

    async def partitions(
        self, topics: Collection[str], *, creating: bool = False, missing_ms: int = 0
    ) -> dict[str, list[int]]:
        """The partitions of topics.

        A missing topic is requested again for `missing_ms`: a broker that has just started has an
        empty metadata cache until the controller sends UpdateMetadata. `creating` lets brokers
        create missing topics automatically, and waits for them.

        Raises:
            UnknownTopicError: a topic does not exist.
        """
        patience = Patience(max(missing_ms, _CREATION_TIMEOUT_MS if creating else 0))
        while True:
            found = await self.present(topics, creating=creating)
            missing = [topic for topic in topics if topic not in found]
            if not missing:
                return found
            if not await patience.once_more():
                raise UnknownTopicError(f"topic {missing[0]!r} does not exist")

    async def present(
        self, topics: Collection[str], *, creating: bool = False
    ) -> dict[str, list[int]]:
        """The partitions of those topics that the broker's metadata contains."""

        async def ask() -> dict[str, list[int]]:
            answer = await self.refresh(topics, creating=creating)
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
        return await self.retried(f"the partitions of {', '.join(sorted(topics))}", ask)

    async def refresh(
        self, topics: Collection[str] | None, *, creating: bool = False
    ) -> MetadataResponse:
        """Send a Metadata request; None: for all topics."""
        answer = await self.cluster.refresh(topics, creating=creating)
        self._topics_by_id.update(
            (topic.topic_id, topic.name) for topic in answer.topics if topic.name is not None
        )
        return answer

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic in the metadata; zero if brokers have no topic ids."""
        return self.cluster.topic_id(topic)

    def topic_name(self, topic_id: bytes) -> str:
        """The name of a topic id in the metadata; empty if it is unknown."""
        return self._topics_by_id.get(topic_id, "")

    def leader_of(self, partition: TopicPartition) -> int:
        """The leader of a partition in the metadata, or NO_LEADER."""
        return self.cluster.metadata.leader(partition)

    async def broker(self, broker_id: int) -> Connection:
        return await self.cluster.broker(broker_id)

    # -------------------------------------------------------------------------- offsets

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The first offset at or after each timestamp (-1: none), or that of EARLIEST or LATEST.

        `committed` returns the last stable offset instead of the high watermark.

        Raises:
            ApiError: a broker refuses permanently, or the time-out has passed.
        """
        try:
            found = await list_offsets(self.cluster, wanted, reads_committed=committed)
        except ClientTimeoutError as error:
            servers = ",".join(self.settings.bootstrap_servers)
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{servers}: {error}") from None
        return {partition: each.offset for partition, each in found.items()}

    # --------------------------------------------------------------------- coordinators

    async def coordinator(self, kind: int, key: str) -> Connection:
        """A connection to the coordinator of a group or a transactional id."""
        return await self.cluster.coordinator(kind, key)

    def drop_coordinator(self, kind: int, key: str) -> None:
        """Drop the cached coordinator; the next request looks it up again."""
        self.cluster.drop_coordinator(kind, key)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group without being a member, for tools that show lag.

        Raises:
            ApiError: refused, as always if the group has members.
        """
        import odradek.client.admin.groups as admin_groups  # noqa: PLC0415  few need it

        outcomes = await admin_groups.commit_offsets(self.cluster, group, offsets)
        for partition, failure in outcomes.items():
            if failure is not None:
                raise ApiError(failure.code, f"{partition}: {failure.message or failure.code.name}")

    async def committed_offsets(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """All committed offsets of a group, with metadata. Waits for pending transactions.

        Raises:
            ApiError: the coordinator refuses.
        """
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)
        found: dict[TopicPartition, tuple[int, str]] = {}

        async def fetch(connection: Connection) -> None:
            answer = await connection.request(
                request, OffsetFetchResponse, version_max=_ONE_GROUP_VERSION
            )
            if answer.error_code:
                raise ApiError(ErrorCode(answer.error_code), f"offsets of group {group}")
            for result in answer.topics:
                for each in result.partitions:
                    name = TopicPartition(result.name, each.partition_index)
                    if each.error_code:
                        raise ApiError(ErrorCode(each.error_code), f"offset of {name} in {group}")
                    if each.committed_offset >= 0:
                        found[name] = each.committed_offset, each.metadata or ""

        await self.coordinated(GROUP_COORDINATOR, group, fetch)
        return found

    async def knows_transactional_id(self, name: str) -> bool:
        """Whether the coordinator has a transactional id, which expires when it is not used.

        False for brokers before 3.0, which cannot be asked.

        Raises:
            ApiError: the coordinator refuses.
        """
        request = DescribeTransactionsRequest(transactional_ids=[name])

        async def ask(connection: Connection) -> bool:
            if ApiKey.DESCRIBE_TRANSACTIONS not in connection.versions:
                return False
            answer = await connection.request(request, DescribeTransactionsResponse)
            code = ErrorCode(answer.transaction_states[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                return code is ErrorCode.NONE
            raise ApiError(code, f"transactional id {name}")

        return await self.coordinated(TRANSACTION_COORDINATOR, name, ask)

    async def coordinated(
        self, kind: int, key: str, ask: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Send a request to a coordinator; looks it up again when it has moved.

        Raises:
            ApiError, ConnectionError: as `retried`.
        """

        async def attempt() -> T:
            try:
                return await ask(await self.coordinator(kind, key))
            except (ApiError, ConnectionError):
                self.drop_coordinator(kind, key)
                raise

        return await self.retried(f"coordinator of {key}", attempt)

    # -------------------------------------------------------------------------- retries

    async def retried(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry until success, as long as the error is temporary.

        Raises:
            ApiError: a permanent error, or no success within `api_timeout_ms`.
            ConnectionError, BootstrapError: no broker was reached within that time.
        """
        pause = Patience(self.settings.api_timeout_ms)
        while True:
            try:
                return await attempt()
            except (ApiError, ConnectionError, BootstrapError) as error:
                if not may_pass(error) or not await pause.once_more():
                    raise _said_while(what, error) from None


class Patience:
    """A retry budget: growing pauses, until nothing has succeeded for `timeout_ms`."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self.reward()

    def reward(self) -> None:
        """Reset time-out and pauses after a success."""
        self._deadline_s = self._loop.time() + self._timeout_s
        self._pause_ms = _BACKOFF_MS

    @property
    def is_over(self) -> bool:
        """Whether the time-out has passed."""
        return self._loop.time() >= self._deadline_s

    async def once_more(self) -> bool:
        """Pause before the next attempt; False if the time-out has passed."""
        if self.is_over:
            return False
        await asyncio.sleep(self._pause_ms / 1000)
        self._pause_ms = min(self._pause_ms * 2, _BACKOFF_MS_MAX)
        return True


def may_pass(error: BaseException) -> bool:
    """Whether an error is temporary."""
    if isinstance(error, ApiError):
        return error.code in RETRIABLE or error.code is ErrorCode.BROKER_NOT_AVAILABLE
    final = (InvalidAddressError, UnresolvableError)
    return isinstance(error, ConnectionError | BootstrapError) and not isinstance(error, final)


def _said_while(what: str, error: Exception) -> Exception:
    if isinstance(error, ApiError):
        return ApiError(error.code, f"{what}: {error.message or error.code.name}")
    if isinstance(error, BootstrapError):
        return BootstrapError(f"{what}: {error}")
    return ConnectionError(f"{what}: {error}")
