"""One connection to one broker: typed requests out, typed responses in.

    async with await Connection.open("127.0.0.1", 9092) as connection:
        metadata = await connection.request(MetadataRequest(topics=None), MetadataResponse)

A new connection asks for the broker's versions first; every request then goes in the highest
version that both sides know, unless the caller asks for a lower one. Requests may overlap: they
are sent in the order of the calls, the broker answers in the same order, and at most
`in_flight_max` are under way. A request that is not answered in time ends the connection, for
nobody could tell whose answer comes next.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from odradek import __version__
from odradek.model.errors import ApiError, ErrorCode, MalformedRequestError
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.codec import decoder, encoder
from odradek.wire.frame import LENGTH_BYTES, FrameBuffer
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.schema import Message, Versions

SOFTWARE_NAME: Final = "odradek"
RESPONSE_BYTES_MAX: Final = 128 << 20
_CORRELATION_IDS: Final = 1 << 31

R = TypeVar("R", bound=Message)


class _Awaited(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    body: asyncio.Future[memoryview]


class Connection(asyncio.BufferedProtocol):
    """One connection. Made by `open`, ended by `close` or by leaving its `async with`."""

    def __init__(self, name: str, *, client_id: str, timeout_ms: int, in_flight_max: int) -> None:
        self.name = name  # host:port, for messages
        self.versions: dict[int, Versions] = {}
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._in_flight = asyncio.Semaphore(in_flight_max)
        self._frames = FrameBuffer(frame_bytes_max=RESPONSE_BYTES_MAX)
        self._awaited: deque[_Awaited] = deque()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._ended = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = SOFTWARE_NAME,
        timeout_ms: int = 30_000,
        in_flight_max: int = 5,
    ) -> Self:
        """Connect, and ask what the broker speaks.

        Raises:
            ConnectionError: nobody there, no answer in time, or the other side hung up.
        """
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection = cls(
            name, client_id=client_id, timeout_ms=timeout_ms, in_flight_max=in_flight_max
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await connection._connect(host, port)
                await connection._negotiate()
        except TimeoutError:
            await connection.close()
            raise ConnectionError(f"{name}: no answer within {timeout_ms} ms") from None
        except ConnectionError:
            await connection.close()
            raise
        return connection

    async def request(
        self, message: Message, answer: type[R], *, version_max: int | None = None
    ) -> R:
        """Send a request and wait for its response, in the highest version both sides know.

        Raises:
            ApiError: UNSUPPORTED_VERSION, there is no such version.
            ConnectionError: the connection is or was lost, or there was no answer in time.
        """
        api_key = message.SCHEMA.api_key
        assert api_key is not None, message
        version = self.version_of(api_key, version_max=version_max)
        async with self._in_flight:
            return await self._exchange(api_key, version, message, answer)

    def version_of(self, api_key: int, *, version_max: int | None = None) -> int:
        """The highest version of an API that both sides know, and the caller allows.

        Raises:
            ApiError: there is none.
        """
        ours, theirs = APIS[api_key].decodable, self.versions.get(api_key, Versions(0, -1))
        highest = min(ours.last, theirs.last, ours.last if version_max is None else version_max)
        if highest < max(ours.first, theirs.first):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{APIS[api_key].name}: {self.name} has versions {theirs.first}-{theirs.last}, "
                f"this client {ours.first}-{ours.last}",
            )
        return highest

    async def close(self) -> None:
        """Hang up, and wait until it is done."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._ended)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self._ended.done()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  a hint
        """Where the socket writes to."""
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came: hand each whole response to whoever awaits it."""
        self._frames.wrote(nbytes)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._response(memoryview(bytes(frame)))  # whoever awaits it runs later
        except MalformedRequestError as error:
            self._fail(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: nobody who waits will get an answer."""
        self._fail(str(exc) if exc else "the connection was closed")
        self._ended.set_result(None)

    # ----------------------------------------------------------------------------- the parts

    async def _connect(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except OSError as error:
            raise ConnectionError(f"{self.name}: {error.strerror or error}") from None

    async def _negotiate(self) -> None:
        """Learn the broker's versions. One that does not know ours says so in version 0."""
        version = APIS[ApiKey.API_VERSIONS].decodable.last
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        body = await self._send(ApiKey.API_VERSIONS, version, request)
        response = self._read_versions(body, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            body = await self._send(ApiKey.API_VERSIONS, 0, request)
            response = self._read_versions(body, 0)
        if response.error_code:
            raise ConnectionError(f"{self.name}: ApiVersions: error {response.error_code}")
        self.versions = {
            api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys
        }

    def _read_versions(self, body: memoryview, version: int) -> ApiVersionsResponse:
        error = int.from_bytes(body[:2], "big", signed=True)
        layout = 0 if error == ErrorCode.UNSUPPORTED_VERSION else version
        return self._decode(ApiVersionsResponse, layout, body)

    async def _exchange(self, api_key: int, version: int, message: Message, answer: type[R]) -> R:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                body = await self._send(api_key, version, message)
        except TimeoutError:
            await self.close()
            raise ConnectionError(
                f"{self.name}: {APIS[api_key].name} was not answered within {self._timeout_ms} ms"
            ) from None
        return self._decode(answer, version, body)

    def _decode(self, answer: type[R], version: int, body: memoryview) -> R:
        try:
            decoded, _ = decoder(answer, version)(body, 0)
        except MalformedRequestError as error:
            self._fail(str(error))
            raise ConnectionError(f"{self.name}: {error}") from None
        return decoded

    def _send(self, api_key: int, version: int, message: Message) -> asyncio.Future[memoryview]:
        if not self.is_open:
            raise ConnectionError(f"{self.name}: the connection is closed")
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        header = encode_request_header(api_key, version, self._correlation_id, self._client_id)
        body = encoder(type(message), version)(message)
        length = (len(header) + len(body)).to_bytes(LENGTH_BYTES, "big")
        future = asyncio.get_running_loop().create_future()
        self._awaited.append(_Awaited(api_key, version, self._correlation_id, future))
        self._transport.write(b"".join((length, header, body)))
        return future

    def _response(self, frame: memoryview) -> None:
        if not self._awaited:
            raise MalformedRequestError("a response that nobody asked for")
        awaited = self._awaited[0]
        correlation_id, at = decode_response_header(frame, 0, awaited.api_key, awaited.api_version)
        if correlation_id != awaited.correlation_id:
            raise MalformedRequestError(
                f"response {correlation_id}; {awaited.correlation_id} is next"
            )
        self._awaited.popleft()
        if not awaited.body.done():
            awaited.body.set_result(frame[at:])

    def _fail(self, reason: str) -> None:
        while self._awaited:
            body = self._awaited.popleft().body
            if not body.done():
                body.set_exception(ConnectionError(f"{self.name}: {reason}"))
        if self._transport is not None:
            self._transport.abort()
