"""Requests to other brokers, and the versions that brokers use among each other.

Brokers do not negotiate versions. The version of an API follows from
`inter.broker.protocol.version`, which is 3.9 here; Apache Kafka brokers in the same cluster have to
be set to the same.

A `Peer` sends one request at a time over one connection, which is made when it is needed. After a
request without response (connection lost, or timed out) the sender cannot know whether the request
was carried out, and sends it again.
"""

import asyncio
from typing import Final, TypeVar

from odradek.model.clock import Clock
from odradek.model.errors import MalformedRequestError
from odradek.net.channel import Channel, Connector
from odradek.wire.api_keys import ApiKey
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.fetch import FOLLOWER_VERSION
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.schema import Message

VERSIONS: Final = {
    ApiKey.FETCH: FOLLOWER_VERSION,
    ApiKey.LIST_OFFSETS: 9,
    ApiKey.LEADER_AND_ISR: 7,
    ApiKey.STOP_REPLICA: 4,
    ApiKey.UPDATE_METADATA: 8,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
    ApiKey.ALTER_PARTITION: 3,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
}

R = TypeVar("R", bound=Message)
ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse


class PeerError(OSError):
    """A broker did not answer: the request may have been carried out, or not."""


class Peer:
    """One other broker, for requests that are answered soon."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connector: Connector,
        clock: Clock,
        client_id: str,
        timeout_ms: int,
    ) -> None:
        self._host = host
        self._port = port
        self._connector = connector
        self._clock = clock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._channel: Channel | None = None
        self._turn = asyncio.Lock()

    async def send(self, request: ControlRequest) -> ControlResponse:
        """Send a request of the controller (`BrokerPort`).

        Raises:
            PeerError: no answer.
        """
        match request:
            case LeaderAndIsrRequest():
                return await self.ask(request, LeaderAndIsrResponse)
            case UpdateMetadataRequest():
                return await self.ask(request, UpdateMetadataResponse)
            case StopReplicaRequest():
                return await self.ask(request, StopReplicaResponse)

    async def ask(self, request: Message, kind: type[R]) -> R:
        """Send a request, and wait for the response, which is decoded as a `kind`.

        Raises:
            PeerError: no connection, the connection was lost, or no response in time.
        """
        try:
            async with self._turn, asyncio.timeout(self._timeout_ms / 1000):
                return await exchange(
                    await self._connected(),
                    request,
                    kind,
                    client_id=self._client_id,
                    name=f"{self._host}:{self._port}",
                )
        except TimeoutError:
            self.close()
            raise PeerError(
                f"{self._host}:{self._port} did not answer within {self._timeout_ms} ms"
            ) from None

    def close(self) -> None:
        """Close the connection; the next request connects again."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    async def _connected(self) -> Channel:
        if self._channel is not None and self._channel.is_stale:
            self.close()
        if self._channel is None:
            channel = Channel(monotonic_ms=self._clock.monotonic_ms, ended=self._ended)
            try:
                await self._connector.connect(lambda: channel, self._host, self._port)
            except OSError as error:
                raise PeerError(f"{self._host}:{self._port}: {error}") from error
            self._channel = channel
        return self._channel

    def _ended(self) -> None:
        self._channel = None


async def exchange(
    channel: Channel, request: Message, kind: type[R], *, client_id: str, name: str
) -> R:
    """Send a request on a channel, and wait for the response, which is decoded as a `kind`.

    Raises:
        PeerError: the connection was lost. The text has the broker's `name`.
    """
    key = request.SCHEMA.request_key
    version = VERSIONS[ApiKey(key)]
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def answered(frame: memoryview | None, position: int) -> None:
        if future.done():
            return
        if frame is None:
            future.set_exception(PeerError(f"{name} closed the connection"))
        else:
            own = memoryview(bytes(frame))  # it is decoded into views, which stay
            try:
                future.set_result(decoder(kind, version)(own, position)[0])
            except MalformedRequestError as error:
                future.set_exception(PeerError(f"{name}: an invalid response: {error}"))
                raise

    channel.send(
        framed(request, version, channel.next_correlation_id, client_id),
        api_key=key,
        api_version=version,
        answered=answered,
    )
    return await future


def framed(
    request: Message, version: int, correlation_id: int, client_id: str
) -> tuple[bytes, bytes]:
    """A request as a frame, in two pieces."""
    key = request.SCHEMA.request_key
    head = encode_request_header(key, version, correlation_id, client_id)
    body = encoder(type(request), version)(request)
    return (len(head) + len(body)).to_bytes(4, "big") + head, body
