"""One connection to one broker: sends typed requests, returns typed responses.

    async with await Connection.open("127.0.0.1", 9092) as connection:
        metadata = await connection.request(MetadataRequest(topics=None), MetadataResponse)

A new connection first sends ApiVersions, then authenticates if SASL is configured (`Security`).
Each request is sent in the highest version that both sides support, unless the caller asks for a
lower one. Requests may overlap: they are sent in the order of the calls, the broker answers in the
same order, and at most `in_flight_max` are in flight. A request that is not answered in time closes
the connection, because later responses could not be assigned any more.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar, cast

from odradek import __version__
from odradek.client.closing import Closing
from odradek.client.settings import Security
from odradek.model.errors import ApiError, ErrorCode, MalformedRequestError
from odradek.wire.api_keys import APIS, OWN_SOFTWARE, ApiKey, client_api
from odradek.wire.codec import decoder, encoder
from odradek.wire.frame import LENGTH_BYTES, FrameBuffer
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.schema import Buffer, Message, Versions

if TYPE_CHECKING:
    import ssl

SOFTWARE_NAME: Final = OWN_SOFTWARE
RESPONSE_BYTES_MAX: Final = 128 << 20
PLAINTEXT: Final = Security()
_CORRELATION_IDS: Final = 1 << 31
_CACHED_BYTES_MAX: Final = 4096  # of a response to ApiVersions; usual are 500
# A session with a limited lifetime is replaced when this share of the lifetime has passed.
_SESSION_SHARE: Final = 0.9

R = TypeVar("R", bound=Message)
# From version, correlation id and client id to a frame in pieces.
Encode = Callable[[int, int, str | None], Sequence[Buffer]]


class UnresolvedError(ConnectionError):
    """The host name could not be resolved."""


class _Awaited(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    body: asyncio.Future[memoryview]


class _Advertised(NamedTuple):
    """A broker's response to ApiVersions."""

    error_code: int
    versions: Mapping[int, Versions]
    features: Mapping[str, int]


@lru_cache(maxsize=16)  # the brokers of a cluster send the same bytes to each connection
def _advertised(body: bytes, version: int) -> _Advertised:
    response, _ = decoder(ApiVersionsResponse, version)(memoryview(body), 0)
    return _Advertised(
        response.error_code,
        {api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys},
        {feature.name: feature.max_version_level for feature in response.finalized_features},
    )


class Connection(Closing, asyncio.BufferedProtocol):
    """One connection. Opened by `open`, closed by `close` or by leaving its `async with`."""

    def __init__(self, name: str, *, client_id: str, timeout_ms: int, in_flight_max: int) -> None:
        self.name = name  # host:port, for messages
        self.versions: Mapping[int, Versions] = {}
        self.features: Mapping[str, int] = {}  # finalized features: name and level
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._in_flight = asyncio.Semaphore(in_flight_max)
        self._frames = FrameBuffer(frame_bytes_max=RESPONSE_BYTES_MAX)
        self._awaited: deque[_Awaited] = deque()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self.answered_id = 0  # the correlation id of the response that `request` returned last
        self._expires_s: float | None = None  # when the SASL session should be replaced
        self._ended = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(  # noqa: PLR0913 - options of a connection
        cls,
        host: str,
        port: int,
        *,
        client_id: str = SOFTWARE_NAME,
        timeout_ms: int = 30_000,
        setup_timeout_ms: int | None = None,
        in_flight_max: int = 5,
        security: Security = PLAINTEXT,
        tls: "ssl.SSLContext | None" = None,
    ) -> Self:
        """Connect, negotiate API versions and authenticate.

        `tls` is the result of `security.tls_context`, if the settings ask for TLS. `timeout_ms` is
        the time-out of each request; opening as a whole has `setup_timeout_ms` (default: the same).

        Raises:
            ConnectionError: refused, closed by the broker, or not finished in time.
            AuthenticationError: the broker refuses the credentials, or its certificate is not
                trusted.
        """
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        setup_timeout_ms = timeout_ms if setup_timeout_ms is None else setup_timeout_ms
        connection = cls(
            name, client_id=client_id, timeout_ms=timeout_ms, in_flight_max=in_flight_max
        )
        try:
            async with asyncio.timeout(setup_timeout_ms / 1000):
                await connection._connect(host, port, tls)
                await connection._negotiate()
                if security.uses_sasl:
                    await connection._authenticate(security, host)
        except TimeoutError:
            await connection.close()
            raise ConnectionError(f"{name}: no answer within {setup_timeout_ms} ms") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def certificate_expires_ms(self) -> int | None:
        """When the broker's TLS certificate expires (wall time); None without TLS."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert()
        if not certificate:
            return None
        import ssl  # noqa: PLC0415 - it is imported: the connection uses it

        return int(ssl.cert_time_to_seconds(certificate["notAfter"]) * 1000)

    async def request(
        self,
        message: Message,
        answer: type[R],
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request in the highest version that both sides support, and return the response.

        `timeout_ms` replaces the connection's time-out, for requests that the broker holds.

        Raises:
            ApiError: UNSUPPORTED_VERSION, no version is supported by both sides.
            ConnectionError: the connection is closed or was lost, or no response came in time.
        """
        api_key = message.SCHEMA.request_key
        version = self.version_of(api_key, version_max=version_max)
        async with self._in_flight:
            body = self._send(api_key, version, message)
            correlation_id = self._correlation_id
            answered = await self._answered(api_key, version, body, answer, timeout_ms)
            self.answered_id = correlation_id
            return answered

    async def exchange(
        self,
        api_key: int,
        encode: Encode,
        answer: type[R] | None,
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> R | None:
        """`request` for callers that encode the frame themselves; None if no response is expected.

        Raises:
            ApiError: UNSUPPORTED_VERSION, no version is supported by both sides.
            ConnectionError: the connection is closed or was lost, or no response came in time.
        """
        version = self.version_of(api_key, version_max=version_max)
        async with self._in_flight:
            pieces = encode(version, self._next_correlation_id(), self._client_id)
            if answer is None:
                self._write(pieces)
                return None
            body = self._await_answer(api_key, version, pieces)
            return await self._answered(api_key, version, body, answer, timeout_ms)

    def version_of(self, api_key: int, *, version_max: int | None = None) -> int:
        """The highest version of an API that both sides support, not above `version_max`.

        Raises:
            ApiError: UNSUPPORTED_VERSION, there is no such version.
        """
        api = client_api(api_key)
        ours, theirs = api.decodable, self.versions.get(api_key, Versions(0, -1))
        highest = min(ours.last, theirs.last, ours.last if version_max is None else version_max)
        if highest < max(ours.first, theirs.first):
            why = f"The node does not support {ApiKey(api_key).name}"
            if api_key in self.versions:
                why += (
                    f" with version in range [{ours.first},{ours.last}]. "
                    f"The supported range is [{theirs.first},{theirs.last}]."
                )
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, why)
        return highest

    async def close(self) -> None:
        """Close the socket and wait until it is closed."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._ended)

    @property
    def is_open(self) -> bool:
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and not self._ended.done()
        )

    @property
    def is_stale(self) -> bool:
        """Whether the SASL session expires soon (KIP-368)."""
        return self._expires_s is not None and asyncio.get_running_loop().time() >= self._expires_s

    @property
    def is_idle(self) -> bool:
        """Whether no response is outstanding."""
        return not self._awaited

    # ------------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not an assert: other event loops (the simulator's) have their own transport
        # classes.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  a hint
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Split the received bytes into responses and resolve the futures of their requests."""
        self._frames.wrote(nbytes)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._response(memoryview(bytes(frame)))  # the awaiting task runs later
        except MalformedRequestError as error:
            self._fail(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests that are in flight."""
        self._fail(str(exc) if exc else "the connection was closed")
        if not self._ended.done():
            self._ended.set_result(None)

    # ----------------------------------------------------------------------------- the parts

    async def _connect(self, host: str, port: int, tls: "ssl.SSLContext | None") -> None:
        loop = asyncio.get_running_loop()
        try:
            if tls is None:
                await loop.create_connection(lambda: self, host, port)
            else:
                await loop.create_connection(lambda: self, host, port, ssl=tls)
        except socket.gaierror as error:
            raise UnresolvedError(f"{self.name}: {error.strerror}") from None
        except OSError as error:
            if tls is not None:
                self._blame_tls(error)
            # asyncio's message is "Connect call failed" for every reason.
            why = os.strerror(error.errno) if error.errno else str(error)
            if tls is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
                why = (
                    "the broker closed the connection during the TLS handshake; the listener may "
                    "not use TLS (security.protocol)"
                )
            raise ConnectionError(f"{self.name}: {why or type(error).__name__}") from None
        except (ValueError, OverflowError) as error:  # no host can have this name, or no port
            raise UnresolvedError(f"{self.name}: {error}") from None

    def _blame_tls(self, error: OSError) -> None:
        """Raise AuthenticationError for TLS errors that no retry fixes (a bad certificate)."""
        import ssl  # noqa: PLC0415  needed for TLS only

        from odradek.client.security.protocol import AuthenticationError  # noqa: PLC0415

        if isinstance(error, ssl.SSLError):
            why = getattr(error, "verify_message", "") or error.reason or str(error)
            raise AuthenticationError(f"{self.name}: TLS: {why}") from None

    async def _authenticate(self, security: Security, host: str) -> None:
        from odradek.client.security.protocol import AuthenticationError, authenticate  # noqa: PLC0415
        from odradek.wire.messages.sasl_authenticate import (  # noqa: PLC0415
            SaslAuthenticateRequest,
            SaslAuthenticateResponse,
        )
        from odradek.wire.messages.sasl_handshake import (  # noqa: PLC0415
            SaslHandshakeRequest,
            SaslHandshakeResponse,
        )

        lifetime_ms = 0

        async def send(token: bytes) -> bytes:
            nonlocal lifetime_ms
            answer = await self.request(
                SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse
            )
            if answer.error_code:
                why = answer.error_message or _name_of(answer.error_code)
                raise AuthenticationError(f"{self.name}: {why}")
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        begun_s = asyncio.get_running_loop().time()
        shake = SaslHandshakeRequest(mechanism=security.mechanism)
        offered = await self.request(shake, SaslHandshakeResponse)
        if offered.error_code:
            raise AuthenticationError(
                f"{self.name}: {_name_of(offered.error_code)}: {security.mechanism}; "
                f"the broker has {', '.join(offered.mechanisms) or 'none'}"
            )
        await authenticate(security, send, host=host)
        if lifetime_ms:
            self._expires_s = begun_s + lifetime_ms / 1000 * _SESSION_SHARE

    async def _negotiate(self) -> None:
        """Send ApiVersions; repeat it in version 0 if the broker does not support our version."""
        version = APIS[ApiKey.API_VERSIONS].decodable.last
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        body = await self._send(ApiKey.API_VERSIONS, version, request)
        advertised = self._read_versions(body, version)
        if advertised.error_code == ErrorCode.UNSUPPORTED_VERSION:
            body = await self._send(ApiKey.API_VERSIONS, 0, request)
            advertised = self._read_versions(body, 0)
        if advertised.error_code:
            raise ConnectionError(f"{self.name}: ApiVersions: error {advertised.error_code}")
        self.versions, self.features = advertised.versions, advertised.features

    def _read_versions(self, body: memoryview, version: int) -> "_Advertised":
        error_code = int.from_bytes(body[:2], "big", signed=True)
        layout = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version
        read = _advertised if len(body) <= _CACHED_BYTES_MAX else _advertised.__wrapped__
        try:
            return read(bytes(body), layout)
        except MalformedRequestError as error:
            raise self._malformed(error) from None

    def _malformed(self, error: MalformedRequestError) -> ConnectionError:
        self._fail(str(error))
        return ConnectionError(f"{self.name}: {error}")

    async def _answered(
        self,
        api_key: int,
        version: int,
        body: asyncio.Future[memoryview],
        answer: type[R],
        timeout_ms: int | None,
    ) -> R:
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        # `asyncio.timeout` cancels the task, which takes four times as long for each request.
        timer = body.get_loop().call_later(timeout_ms / 1000, _time_out, body)
        if timeout_ms <= 0:  # a fast answer would come before the timer, at times
            _time_out(body)
        try:
            data = await body
        except TimeoutError:
            await self.close()
            raise ConnectionError(
                f"{self.name}: {client_api(api_key).name} was not answered within {timeout_ms} ms"
            ) from None
        finally:
            timer.cancel()
        return self._decode(answer, version, data)

    def _decode(self, answer: type[R], version: int, body: memoryview) -> R:
        try:
            decoded, _ = decoder(answer, version)(body, 0)
        except MalformedRequestError as error:
            raise self._malformed(error) from None
        return decoded

    def _send(self, api_key: int, version: int, message: Message) -> asyncio.Future[memoryview]:
        header = encode_request_header(
            api_key, version, self._next_correlation_id(), self._client_id
        )
        body = encoder(type(message), version)(message)
        length = (len(header) + len(body)).to_bytes(LENGTH_BYTES, "big")
        return self._await_answer(api_key, version, (length, header, body))

    def _await_answer(
        self, api_key: int, version: int, pieces: Sequence[Buffer]
    ) -> asyncio.Future[memoryview]:
        """Send a frame with the correlation id that was drawn last."""
        self._write(pieces)
        future = asyncio.get_running_loop().create_future()
        self._awaited.append(_Awaited(api_key, version, self._correlation_id, future))
        return future

    def _write(self, pieces: Sequence[Buffer]) -> None:
        if not self.is_open or self._transport is None:
            raise ConnectionError(f"{self.name}: the connection is closed")
        self._transport.write(b"".join(pieces))

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        return self._correlation_id

    def _response(self, frame: memoryview) -> None:
        if not self._awaited:
            raise MalformedRequestError("a response without a request")
        awaited = self._awaited[0]
        correlation_id, at = decode_response_header(frame, 0, awaited.api_key, awaited.api_version)
        if correlation_id != awaited.correlation_id:
            raise MalformedRequestError(
                f"a response to {correlation_id}; expected is {awaited.correlation_id}"
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


def _time_out(body: asyncio.Future[memoryview]) -> None:
    if not body.done():
        body.set_exception(TimeoutError())


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
