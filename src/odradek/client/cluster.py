"""Connections to the brokers of a cluster, and its metadata.

    async with await Cluster.bootstrap("a:9092,b:9092") as cluster:
        connection = await cluster.leader(TopicPartition("orders", 0))

Metadata is fetched when a leader, a topic or a broker is missing in it, and again when the caller
calls `refresh`: error codes such as NOT_LEADER_OR_FOLLOWER show a client that its metadata is out
of date.

A broker answers the requests of one connection in order. A request that the broker holds (a fetch,
a JoinGroup) would delay those behind it, so each purpose has a connection of its own: a `lane`.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from odradek.client.closing import Closing
from odradek.client.connection import SOFTWARE_NAME, Connection, UnresolvedError
from odradek.client.metadata import ClusterMetadata, Node
from odradek.client.settings import ClientSettings
from odradek.model.backoff import Backoff
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.net.retry import retry
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    import ssl

_log: Final = logging.getLogger("odradek.client")
_log.addHandler(logging.NullHandler())  # a library does not configure logging
_RETRY_MS: Final = 20

# Lanes: connections to one broker for different purposes.
USUAL: Final = ""
FETCH: Final = "fetch"
GROUP: Final = "group"

# Key types of FindCoordinator.
GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1


class BootstrapError(OdradekError, ConnectionError):
    """No address of `bootstrap.servers` could be reached; the message has the reason for each."""

    def __init__(self, message: str, reasons: Collection[str] = ()) -> None:
        super().__init__(": ".join(filter(None, (message, "; ".join(reasons)))))
        self.reasons = tuple(reasons)


class InvalidAddressError(BootstrapError):
    """An entry of `bootstrap.servers` is not host:port, or the list is empty."""


class UnresolvableError(BootstrapError):
    """No host name of `bootstrap.servers` could be resolved."""


class Cluster(Closing):
    """Connections to the brokers of one cluster, its metadata and its coordinators."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.metadata = ClusterMetadata()
        self._metadata_id = 0  # the correlation id of the last Metadata response
        self.settings = settings
        self._retry = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, draw)
        self._reconnect = Backoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, draw
        )
        self._connections: dict[tuple[int, str], Connection] = {}
        self._seed: Connection | None = None
        self._failures: dict[int, tuple[int, float]] = {}  # failures in a row, not before (s)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._dialling: dict[tuple[int, str], asyncio.Lock] = {}
        self._tls: ssl.SSLContext | None = None
        self._retired: list[Connection] = []

    @classmethod
    async def bootstrap(
        cls,
        servers: str,
        *,
        client_id: str = SOFTWARE_NAME,
        timeout_ms: int = 30_000,
        draw: Callable[[], float] = random.random,
    ) -> Self:
        """Connect without TLS or SASL to the first broker of `host:port,...` that answers.

        Raises:
            BootstrapError: no broker answers.
        """
        settings = ClientSettings(
            bootstrap_servers=tuple(server.strip() for server in servers.split(",")),
            client_id=client_id,
            request_timeout_ms=timeout_ms,
            api_timeout_ms=timeout_ms,
            connection_setup_timeout_ms=timeout_ms,
        )
        return await cls.connect(settings, draw=draw)

    @classmethod
    async def connect(
        cls,
        settings: ClientSettings,
        *,
        wait_ms: int = 0,
        draw: Callable[[], float] = random.random,
    ) -> Self:
        """Connect to the first of `bootstrap_servers` that answers, retrying for `wait_ms`.

        Each attempt may take `socket.connection.setup.timeout.ms`, but no longer than its share of
        the remaining time.

        Raises:
            BootstrapError: no broker answers.
            AuthenticationError: the first broker that answers refuses the credentials.
            SettingsError: key stores, trust stores or passwords cannot be used.
        """
        cluster = cls(settings, draw=draw)
        deadline_s = asyncio.get_running_loop().time() + wait_ms / 1000

        def failed(error: BootstrapError) -> None:
            if isinstance(error, InvalidAddressError | UnresolvableError):
                raise error

        await retry(
            partial(cluster._find_seed, deadline_s if wait_ms else None),
            cluster.retry_pause_s,
            on=BootstrapError,
            failed=failed,
            deadline_s=deadline_s,
        )
        return cluster

    # ------------------------------------------------------------------------ metadata

    async def refresh(
        self,
        topics: Collection[str] | None = (),
        *,
        creating: bool = False,
        broker: int | None = None,
    ) -> MetadataResponse:
        """Send a Metadata request for some topics, all topics (None) or none.

        It goes to `broker`, or to any. `creating` lets the broker create missing topics, if
        `auto.create.topics.enable` is set.

        Raises:
            BootstrapError: no broker can be reached.
            ConnectionError: the connection was lost before the response.
        """
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=creating,
        )
        connection = await (self.any_broker() if broker is None else self.broker(broker))
        answer = await connection.request(request, MetadataResponse)
        self._metadata_id = connection.answered_id
        self.metadata.update(answer, all_topics=topics is None)
        return answer

    def log_errors(self, topics: Collection[str]) -> None:
        """Log the errors of the last Metadata response for these topics, as Kafka's clients do."""
        errors = {
            name: self.metadata.errors[name] for name in topics if name in self.metadata.errors
        }
        if not errors:
            return
        shown = ", ".join(f"{name}={ErrorCode(code).name}" for name, code in errors.items())
        _log.warning(
            "%s The metadata response from the cluster reported a recoverable issue with "
            "correlation id %d : {%s}", self.settings.log_name, self._metadata_id, shown,
        )  # fmt: skip
        wrong = [n for n, code in errors.items() if code == ErrorCode.INVALID_TOPIC_EXCEPTION]
        if wrong:
            _log.error(
                "%s Metadata response reported invalid topics [%s]",
                self.settings.log_name, ", ".join(wrong),
            )  # fmt: skip

    async def leader(self, partition: TopicPartition, lane: str = USUAL) -> Connection:
        """A connection to the leader of a partition; waits until there is a leader.

        Raises:
            ApiError: LEADER_NOT_AVAILABLE, no leader within `default.api.timeout.ms`.
            ConnectionError: the leader cannot be reached.
        """
        if not await self._refresh_until(
            lambda: self.metadata.leader(partition) != NO_LEADER, [partition.topic]
        ):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return await self.broker(self.metadata.leader(partition), lane)

    async def controller(self) -> Connection:
        """A connection to the controller; waits until metadata names one.

        Raises:
            ApiError: BROKER_NOT_AVAILABLE, no controller within `default.api.timeout.ms`.
            ConnectionError: the controller cannot be reached.
        """
        if not await self._refresh_until(lambda: self.metadata.controller in self.metadata.nodes):
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no controller")
        return await self.broker(self.metadata.controller)

    async def nodes(self) -> Mapping[int, Node]:
        """The registered brokers by id; waits until metadata names at least one.

        The metadata of an Apache Kafka broker that has just started is empty.

        Raises:
            ApiError: BROKER_NOT_AVAILABLE, none within `default.api.timeout.ms`.
        """
        if not await self._refresh_until(lambda: bool(self.metadata.nodes)):
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no brokers yet")
        return self.metadata.nodes

    async def _refresh_until(self, shown: Callable[[], bool], topics: Collection[str] = ()) -> bool:
        """Refresh metadata until `shown()` is true; False if it is not within the time-out."""
        loop = asyncio.get_running_loop()
        deadline_s = self.deadline_s()
        while not shown():
            if loop.time() >= deadline_s:
                return False
            await self.refresh(topics)
            if not shown():
                await asyncio.sleep(_RETRY_MS / 1000)
        return True

    async def coordinator(self, kind: int, key: str, lane: str = USUAL) -> Connection:
        """A connection to the coordinator of a group or a transactional id; retries.

        Raises:
            ApiError: the broker refuses, or no coordinator within `default.api.timeout.ms`.
            ConnectionError: the coordinator cannot be reached.
        """

        def failed(error: Exception) -> None:
            self.drop_coordinator(kind, key)
            if isinstance(error, ApiError) and error.code not in _COORDINATOR_LATER:
                raise error

        return await retry(
            partial(self._find_coordinator, kind, key, lane),
            self.retry_pause_s,
            on=(ApiError, ConnectionError),
            failed=failed,
            deadline_s=self.deadline_s(),
        )

    def drop_coordinator(self, kind: int, key: str) -> None:
        """Drop the cached coordinator; the next request looks it up again."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinator(self, kind: int, key: str, lane: str) -> Connection:
        broker_id = self._coordinators.get((kind, key))
        if broker_id is None:
            broker_id = await self._ask_coordinator(kind, key)
            self._coordinators[kind, key] = broker_id
        # One that could not be reached may have restarted at another address.
        if broker_id not in self.metadata.nodes or broker_id in self._failures:
            await self.refresh()
        return await self.broker(broker_id, lane)

    async def _ask_coordinator(self, kind: int, key: str) -> int:
        from odradek.wire.messages.find_coordinator import (  # noqa: PLC0415  few need it
            FindCoordinatorRequest,
            FindCoordinatorResponse,
        )

        connection = await self.any_broker()
        if connection.version_of(FindCoordinatorRequest.SCHEMA.api_key or 0) >= _MANY_KEYS_FROM:
            asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = await connection.request(asked, FindCoordinatorResponse)
            found = answer.coordinators[0]
            code, message, broker_id = found.error_code, found.error_message, found.node_id
        else:
            asked = FindCoordinatorRequest(key_type=kind, key=key)
            answer = await connection.request(asked, FindCoordinatorResponse)
            code, message, broker_id = answer.error_code, answer.error_message, answer.node_id
        if code:
            raise ApiError(ErrorCode(code), message)
        return broker_id

    # ------------------------------------------------------------------------ connections

    async def broker(self, broker_id: int, lane: str = USUAL) -> Connection:
        """A connection to one broker, opened if there is none yet.

        After a failed attempt, the next one waits for `reconnect.backoff.ms`, growing up to its
        maximum.

        Raises:
            ApiError: BROKER_NOT_AVAILABLE, metadata names no broker with this id.
            ConnectionError: the broker cannot be reached.
            AuthenticationError: the broker refuses the credentials.
        """
        lock = self._dialling.setdefault((broker_id, lane), asyncio.Lock())
        async with lock:
            connection = self._connections.get((broker_id, lane))
            if connection is not None and connection.is_open:
                if not connection.is_stale:
                    return connection
                self._retired.append(connection)
            await self._close_retired()
            node = self.metadata.nodes.get(broker_id)
            if node is None:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")
            failures, not_before_s = self._failures.get(broker_id, (0, 0.0))
            loop = asyncio.get_running_loop()
            if not_before_s > loop.time():
                await asyncio.sleep(not_before_s - loop.time())
            try:
                connection = await self._open(node.host, node.port)
            except ConnectionError:
                failures += 1
                pause_s = self._reconnect.pause_s(failures)
                self._failures[broker_id] = failures, loop.time() + pause_s
                raise
            self._failures.pop(broker_id, None)
            self._connections[broker_id, lane] = connection
            return connection

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic in the metadata; zero if there is none."""
        return self.metadata.topic_id(topic)

    def retry_pause_s(self, failures: int) -> float:
        """The pause before a retry of a request: `retry.backoff.ms`, growing with each failure."""
        return self._retry.pause_s(failures)

    def deadline_s(self) -> float:
        """The time of the event loop after `default.api.timeout.ms`."""
        return asyncio.get_running_loop().time() + self.settings.api_timeout_ms / 1000

    async def close(self) -> None:
        for connection in [*self._connections.values(), *self._retired]:
            await connection.close()
        if self._seed is not None:
            await self._seed.close()

    def unnamed(self) -> list[tuple[str, int]]:
        """The bootstrap addresses that are of no broker of the metadata."""
        named = {(node.host, node.port) for node in self.metadata.nodes.values()}
        servers = map(_address, filter(None, self.settings.bootstrap_servers))
        return [address for address in servers if address not in named]

    async def open(self, host: str, port: int) -> Connection:
        """A connection to an address, which the caller closes.

        Raises:
            ConnectionError: there is none.
        """
        return await self._open(host, port)

    async def _open(self, host: str, port: int, within_ms: int | None = None) -> Connection:
        settings = self.settings
        setup_ms = settings.connection_setup_timeout_ms
        if settings.security.uses_tls and self._tls is None:
            from odradek.client.security.protocol import tls_context  # noqa: PLC0415  TLS only

            self._tls = tls_context(settings.security)
        return await Connection.open(
            host,
            port,
            client_id=settings.client_id,
            timeout_ms=settings.request_timeout_ms,
            setup_timeout_ms=setup_ms if within_ms is None else min(setup_ms, within_ms),
            security=settings.security,
            tls=self._tls,
        )

    async def _close_retired(self) -> None:
        for connection in [c for c in self._retired if c.is_idle]:
            self._retired.remove(connection)
            await connection.close()

    async def _find_seed(self, deadline_s: float | None = None) -> Connection:
        """Connect to the first bootstrap address that answers; they share the remaining time."""
        servers = self.settings.bootstrap_servers
        # Java's client skips empty entries: "a:9092," is one address.
        addresses = [_address(server) for server in servers if server]
        if not addresses:
            what = "resolvable bootstrap" if servers else "bootstrap"
            raise InvalidAddressError(f"No {what} urls given in bootstrap.servers")
        reasons = []
        unresolved: list[str] = []
        for tried, (host, port) in enumerate(addresses):
            within_ms = None
            if deadline_s is not None:
                left_s = deadline_s - asyncio.get_running_loop().time()
                within_ms = max(1, int(left_s * 1000 / (len(addresses) - tried)))
            try:
                self._seed = await self._open(host, port, within_ms)
            except ConnectionError as error:
                reasons.append(str(error))
                if isinstance(error, UnresolvedError):
                    unresolved.append(str(error))
                    _log.warning(  # as Kafka's clients log it, and below
                        "Couldn't resolve server %s:%d from bootstrap.servers as DNS resolution "
                        "failed for %s", host, port, host,
                    )  # fmt: skip
                else:
                    _log.warning(
                        "%s Connection to node -%d (/%s:%d) could not be established. Node may not "
                        "be available. (%s)", self.settings.log_name, tried + 1, host, port, error,
                    )  # fmt: skip
            else:
                return self._seed
        if len(unresolved) == len(addresses):
            raise UnresolvableError(
                "No resolvable bootstrap urls given in bootstrap.servers", reasons
            )
        raise BootstrapError("no broker can be reached", reasons)

    async def any_broker(self) -> Connection:
        """A connection to any broker, preferably one that is already open."""
        if self._seed is not None and self._seed.is_open and not self._seed.is_stale:
            return self._seed
        for (_, lane), connection in self._connections.items():
            if lane == USUAL and connection.is_open and not connection.is_stale:
                return connection
        reasons = []
        for broker_id in self.metadata.nodes:
            try:
                return await self.broker(broker_id)
            except ConnectionError as error:
                reasons.append(str(error))
        # All brokers of the metadata may have been replaced: try the bootstrap list again
        # (KIP-899).
        try:
            return await self._find_seed()
        except BootstrapError as error:
            reasons += [reason for reason in error.reasons if reason not in reasons]
        raise BootstrapError("no broker can be reached", reasons)


_MANY_KEYS_FROM: Final = 4
_COORDINATOR_LATER: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.BROKER_NOT_AVAILABLE,
)


def _address(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise InvalidAddressError(f"Invalid url in bootstrap.servers: {server}")
    return host.strip("[]") or "localhost", int(port)  # as Java parses it
