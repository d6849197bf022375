"""A cluster: found through any of its brokers, with connections to each that is needed.

    async with await Cluster.bootstrap("a:9092,b:9092") as cluster:
        connection = await cluster.leader(TopicPartition("orders", 0))

Metadata is asked for when something is not known, and again when the caller says that it is out
of date (`refresh`): a client learns that its picture is old from the errors it gets.

A broker answers a connection in order, so requests that it holds on purpose would hold up others.
A `lane` is a connection of its own to the same broker: fetches have one, groups have one.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, Self

from odradek.client.backoff import backoff_ms
from odradek.client.closing import Closing
from odradek.client.connection import SOFTWARE_NAME, Connection, UnresolvedError
from odradek.client.metadata import Node, Picture
from odradek.client.settings import ClientSettings
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    import ssl

_log: Final = logging.getLogger("odradek.client")
_log.addHandler(logging.NullHandler())  # who uses a library says where its log goes
_RETRY_MS: Final = 20

# Lanes of connections to one broker.
USUAL: Final = ""
FETCH: Final = "fetch"
GROUP: Final = "group"

# Kinds of coordinators.
GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1


class BootstrapError(OdradekError, ConnectionError):
    """No broker of the list answered; the message has each with its reason."""

    def __init__(self, message: str, reasons: Collection[str] = ()) -> None:
        super().__init__(": ".join(filter(None, (message, "; ".join(reasons)))))
        self.reasons = tuple(reasons)


class InvalidAddressError(BootstrapError):
    """What stands in `bootstrap.servers` is no address."""


class UnresolvableError(BootstrapError):
    """No host of `bootstrap.servers` has an address."""


class Cluster(Closing):
    """The brokers, and which of them leads what, as far as it was asked."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.picture = Picture()
        self._metadata_id = 0  # the correlation id of its last answer
        self.settings = settings
        self._draw = draw
        self._connections: dict[tuple[int, str], Connection] = {}
        self._seed: Connection | None = None
        self._failures: dict[int, tuple[int, float]] = {}  # how many in a row, not before (s)
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
        """Connect to the first broker of `host:port,...` that answers, without encryption.

        Raises:
            BootstrapError: none does.
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
        """Connect to the first of `bootstrap_servers` that answers, trying again for `wait_ms`.

        Each attempt may take as long as `socket.connection.setup.timeout.ms` says, and no longer
        than its share of what is left of the time.

        Raises:
            BootstrapError: none does.
            AuthenticationError: the first that answers does not take who we are.
            SettingsError: keys or passwords that cannot be used.
        """
        cluster = cls(settings, draw=draw)
        deadline_s = asyncio.get_running_loop().time() + wait_ms / 1000
        failures = 0
        while True:
            try:
                await cluster._find_seed(deadline_s if wait_ms else None)
            except BootstrapError as error:
                failures += 1
                pause_s = cluster.retry_pause_s(failures)
                final = isinstance(error, InvalidAddressError | UnresolvableError)
                if final or asyncio.get_running_loop().time() + pause_s > deadline_s:
                    raise
                await asyncio.sleep(pause_s)
            else:
                return cluster

    # ------------------------------------------------------------------------ the picture

    async def refresh(
        self, topics: Collection[str] | None = (), *, creating: bool = False
    ) -> MetadataResponse:
        """Ask any broker how things stand: with some topics, all of them (None) or none.

        `creating` allows the broker to make topics that are not there, if it is so configured.

        Raises:
            BootstrapError: no broker can be reached.
            ConnectionError: the one that could be was lost.
        """
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=creating,
        )
        connection = await self.any_broker()
        answer = await connection.request(request, MetadataResponse)
        self._metadata_id = connection.answered_id
        self.picture.update(answer, all_topics=topics is None)
        return answer

    def log_errors(self, topics: Collection[str]) -> None:
        """Log what is the matter with topics that were asked for, as Kafka's clients do.

        A topic may well come into being later.
        """
        errors = {name: self.picture.errors[name] for name in topics if name in self.picture.errors}
        if not errors:
            return
        told = ", ".join(f"{name}={ErrorCode(code).name}" for name, code in errors.items())
        _log.warning(
            "%s The metadata response from the cluster reported a recoverable issue with "
            "correlation id %d : {%s}", self.settings.log_name, self._metadata_id, told,
        )  # fmt: skip
        wrong = [n for n, code in errors.items() if code == ErrorCode.INVALID_TOPIC_EXCEPTION]
        if wrong:
            _log.error(
                "%s Metadata response reported invalid topics [%s]",
                self.settings.log_name, ", ".join(wrong),
            )  # fmt: skip

    async def leader(self, partition: TopicPartition, lane: str = USUAL) -> Connection:
        """A connection to the broker that leads a partition; waits while there is none.

        Raises:
            ApiError: there was none within the time-out.
            ConnectionError: it cannot be reached.
        """
        if not await self._refresh_until(
            lambda: self.picture.leader(partition) != NO_LEADER, [partition.topic]
        ):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"nobody leads {partition}")
        return await self.broker(self.picture.leader(partition), lane)

    async def controller(self) -> Connection:
        """A connection to the controller; waits while none is known.

        Raises:
            ApiError: there was none within the time-out.
            ConnectionError: it cannot be reached.
        """
        if not await self._refresh_until(lambda: self.picture.controller in self.picture.nodes):
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no controller")
        return await self.broker(self.picture.controller)

    async def nodes(self) -> Mapping[int, Node]:
        """The live brokers by id; waits while none is known.

        Brokers of Apache Kafka that have just started know of none, not even of themselves.

        Raises:
            ApiError: there was none within the time-out.
        """
        if not await self._refresh_until(lambda: bool(self.picture.nodes)):
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no brokers yet")
        return self.picture.nodes

    async def _refresh_until(self, shown: Callable[[], bool], topics: Collection[str] = ()) -> bool:
        """Refresh until the picture shows something; False if it did not within the time-out."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.settings.api_timeout_ms / 1000
        while not shown():
            if loop.time() >= deadline_s:
                return False
            await self.refresh(topics)
            if not shown():
                await asyncio.sleep(_RETRY_MS / 1000)
        return True

    async def coordinator(self, kind: int, key: str, lane: str = USUAL) -> Connection:
        """A connection to the coordinator of a group or a transactional id; waits for one.

        Raises:
            ApiError: the broker refuses, or there was none within the time-out.
            ConnectionError: it cannot be reached.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.settings.api_timeout_ms / 1000
        failures = 0
        while True:
            try:
                return await self._find_coordinator(kind, key, lane)
            except (ApiError, ConnectionError) as error:
                self.forget_coordinator(kind, key)
                failures += 1
                pause_s = self.retry_pause_s(failures)
                if isinstance(error, ApiError) and error.code not in _COORDINATOR_LATER:
                    raise
                if loop.time() + pause_s >= deadline_s:
                    raise
                await asyncio.sleep(pause_s)

    def forget_coordinator(self, kind: int, key: str) -> None:
        """It is another one, or gone: find it anew at the next need."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinator(self, kind: int, key: str, lane: str) -> Connection:
        broker_id = self._coordinators.get((kind, key))
        if broker_id is None:
            broker_id = await self._ask_coordinator(kind, key)
            self._coordinators[kind, key] = broker_id
        if broker_id not in self.picture.nodes:
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
            told = answer.coordinators[0]
            code, message, broker_id = told.error_code, told.error_message, told.node_id
        else:
            asked = FindCoordinatorRequest(key_type=kind, key=key)
            answer = await connection.request(asked, FindCoordinatorResponse)
            code, message, broker_id = answer.error_code, answer.error_message, answer.node_id
        if code:
            raise ApiError(ErrorCode(code), message)
        return broker_id

    # ------------------------------------------------------------------------ connections

    async def broker(self, broker_id: int, lane: str = USUAL) -> Connection:
        """A connection to one broker, kept for the next one who needs it.

        After a failure the next attempt waits for as long as `reconnect.backoff.ms` and its
        maximum say.

        Raises:
            ApiError: no live broker has this id.
            ConnectionError: it cannot be reached.
            AuthenticationError: it does not take who we are.
        """
        lock = self._dialling.setdefault((broker_id, lane), asyncio.Lock())
        async with lock:
            connection = self._connections.get((broker_id, lane))
            if connection is not None and connection.is_open:
                if not connection.is_stale:
                    return connection
                self._retired.append(connection)
            await self._close_retired()
            node = self.picture.nodes.get(broker_id)
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
                pause_ms = backoff_ms(
                    failures,
                    first_ms=self.settings.reconnect_backoff_ms,
                    max_ms=self.settings.reconnect_backoff_max_ms,
                    drawn=self._draw(),
                )
                self._failures[broker_id] = failures, loop.time() + pause_ms / 1000
                raise
            self._failures.pop(broker_id, None)
            self._connections[broker_id, lane] = connection
            return connection

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic that metadata was asked for."""
        return self.picture.topic_id(topic)

    def retry_pause_s(self, failures: int) -> float:
        """How long to wait before a request is sent again: `retry.backoff.ms`, growing."""
        pause_ms = backoff_ms(
            failures,
            first_ms=self.settings.retry_backoff_ms,
            max_ms=self.settings.retry_backoff_max_ms,
            drawn=self._draw(),
        )
        return pause_ms / 1000

    async def close(self) -> None:
        """Hang up everywhere."""
        for connection in [*self._connections.values(), *self._retired]:
            await connection.close()
        if self._seed is not None:
            await self._seed.close()

    async def _open(self, host: str, port: int, within_ms: int | None = None) -> Connection:
        settings = self.settings
        setup_ms = settings.connection_setup_timeout_ms
        if settings.security.uses_tls and self._tls is None:
            from odradek.client.security.protocol import tls_context  # noqa: PLC0415  only who encrypts

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
        """Connect to the first address of the settings that answers; those left share the time."""
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
        """A connection to whichever broker; one that is there rather than a new one."""
        if self._seed is not None and self._seed.is_open and not self._seed.is_stale:
            return self._seed
        for (_, lane), connection in self._connections.items():
            if lane == USUAL and connection.is_open and not connection.is_stale:
                return connection
        reasons = []
        for broker_id in self.picture.nodes:
            try:
                return await self.broker(broker_id)
            except ConnectionError as error:
                reasons.append(str(error))
        # The brokers that were told may all be gone, and others stand where we began (KIP-899).
        try:
            return await self._find_seed()
        except BootstrapError as error:
            reasons += [reason for reason in error.reasons if reason not in reasons]
        raise BootstrapError("no broker can be reached any longer", reasons)


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
    return host.strip("[]") or "localhost", int(port)  # as Java takes it
