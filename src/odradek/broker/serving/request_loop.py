"""From a frame to its handler, and from the handler to the response.

There are two kinds of routes. Produce and Fetch take the frame as it is (`RawRoute`): their record
data stays where the socket put it, and their responses are chunks. All other requests are decoded,
handled and encoded here; a handler is a plain function, or a coroutine where it has to wait for the
store or the controller. Responses keep the order of the requests (`net/connection`).
A large request takes turns with other work (`net/turns`): it is decoded and its answer encoded in
slices, and if its elements are independent of each other it is handled in parts (`parts`). The next
request of its connection is not handled before it has acted.

Every request passes the same checks: the API is served on this listener, in this version; the
client has a session; its throttle time mutes the connection. A request that cannot be decoded
closes the connection, with one log line and a counter.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, NamedTuple, cast

from odradek.broker.incidents import Incidents
from odradek.broker.serving.answered_errors import errors_in
from odradek.broker.serving.answers import Encoded, unsupported_api_versions
from odradek.broker.serving.parts import Parts, fail_alike, join, parts_of, pieces
from odradek.broker.serving.quotas import Quotas
from odradek.broker.serving.session import Authorizer, Session
from odradek.broker.serving.tasks import Tasks
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ApiError, ErrorCode, MalformedRequestError
from odradek.net.connection import Connection, ResponseSlot
from odradek.net.mute import Mute
from odradek.net.turns import Turns
from odradek.obs.log_limit import of
from odradek.obs.metrics import RequestMetrics
from odradek.wire.api_keys import APIS, ApiKey, request_class, response_class
from odradek.wire.codec import (
    CLIENT_ELEMENTS_MAX,
    ELEMENTS_MAX,
    decoder,
    encoder,
    sliced_decoder,
    sliced_encoder,
)
from odradek.wire.header import RequestHeader, decode_request_header, encode_response_header
from odradek.wire.messages.api_versions import ApiVersionsResponse
from odradek.wire.schema import Message

log = logging.getLogger(__name__)
LENGTH_BYTES = 4
# These wait for others (a group's members, new leaders): their duration is not reported as slow.
WAITING = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONTROLLED_SHUTDOWN})
# The quota for changes to topics has set the throttle time of their answers.
MUTATIONS = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
# A request above this size is decoded and handled in slices.
LARGE_BYTES = 16 << 10
KEPT_BYTES = 1 << 20  # above this the frame's memory is kept rather than copied


class Request(NamedTuple):
    """A decoded request and its session."""

    header: RequestHeader
    session: Session
    body: Any
    part: int | None = None  # the index of a part; None for a request that is handled whole


class Route(NamedTuple):
    """An API whose requests are decoded and whose responses are encoded here."""

    handle: Callable[[Request], Message | Encoded | Awaitable[Message | Encoded]]


# Handles a usual request from the frame alone; False: it is not one, and nothing was done.
HandleUsual = Callable[[Connection, memoryview], bool]


class RawRoute(NamedTuple):
    """An API that takes the frame: connection, header, where its body begins, the frame.

    The handler returns what is left to do of a large request: a coroutine that takes turns with
    other work. The connection is held, and the frame stays, until it has ended.
    """

    handle: Callable[[Connection, RequestHeader, int, memoryview], Coroutine[Any, Any, None] | None]
    handle_usual: HandleUsual | None = None


class _Times(NamedTuple):
    """When a request was received, began to be handled, and began to wait for others."""

    received_ms: MonotonicMs
    begun_ms: MonotonicMs
    waits_since_ms: MonotonicMs | None = None


class RequestLoop:
    """The `FrameHandler` of all listeners of one broker."""

    def __init__(  # noqa: PLR0913 - what every request needs
        self,
        routes: Mapping[ApiKey, Route | RawRoute],
        *,
        authorizer: Authorizer,
        quotas: Quotas,
        metrics: RequestMetrics,
        tasks: Tasks,
        turns: Turns,
        security_protocols: Mapping[str, str],
        inter_broker_listener: str,
        monotonic_ms: Callable[[], MonotonicMs],
        call_later: Callable[[float, Callable[[], None]], object],
        slow_ms: int,
        incidents: Incidents | None = None,
    ) -> None:
        self._routes = {int(k): route for k, route in routes.items() if isinstance(route, Route)}
        # Produce and Fetch, in plain numbers and functions.
        self._raw = {int(k): r.handle for k, r in routes.items() if isinstance(r, RawRoute)}
        self.usual = {
            int(key): route.handle_usual
            for key, route in routes.items()
            if isinstance(route, RawRoute) and route.handle_usual is not None
        }
        self._served = {key: tuple(APIS[key].accepted) for key in self._raw}
        self._authorizer = authorizer
        self._quotas = quotas
        self._metrics = metrics
        self._tasks = tasks
        self._turns = turns
        self._security_protocols = security_protocols
        self._inter_broker_listener = inter_broker_listener
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._slow_ms = slow_ms
        self._incidents = incidents

    # ------------------------------------------------------------ a FrameHandler

    def connected(self, connection: Connection) -> None:
        connection.session = Session(
            authorizer=self._authorizer,
            client_host=connection.peer_host,
            listener=connection.listener,
            security_protocol=self._security_protocols.get(connection.listener, "PLAINTEXT"),
            incidents=self._incidents,
        )
        connection.sent_late = self._sent_late

    def _sent_late(self, connection: Connection, took_ms: int) -> None:
        """The client has read what waited for it: responses of the API that it last used."""
        self._metrics.sent(connection.session.api_key, took_ms)

    def disconnected(self, connection: Connection) -> None:
        """Do nothing: all state of a client is in its session."""

    def refused(self, connection: Connection, reason: str) -> None:
        """Log and count a malformed request; the connection is closed."""
        self._metrics.malformed += 1
        self.note_refusal(connection, reason)
        host = connection.peer_host
        log.warning("closed %s:%d: %s", host, connection.peer_port, reason, extra=of(host))

    def broke_off(self, connection: Connection, reason: str) -> None:
        """Log why a client gets no complete response."""
        host = connection.peer_host
        log.warning("closed %s:%d: %s", host, connection.peer_port, reason, extra=of(host))

    def frame(self, connection: Connection, frame: memoryview) -> None:
        # The first two bytes are the API key.
        usual = self.usual.get(frame[1]) if len(frame) > 1 and not frame[0] else None
        if usual is None:  # only Produce and Fetch have a straight path
            self._unusual(connection, frame)
            return
        try:
            is_handled = usual(connection, frame)
        except Exception as error:  # one request must not end the broker
            self._count_failure(decode_request_header(frame)[0], error)
            connection.close()
            return
        if not is_handled:
            self._unusual(connection, frame)

    def _unusual(self, connection: Connection, frame: memoryview) -> None:
        header, position = decode_request_header(frame)
        handler = self._raw.get(header.api_key)
        if handler is not None:
            first, last = self._served[header.api_key]
            if not first <= header.api_version <= last:
                self._unsupported_version(connection, header)
                return
            connection.session.begin(header.api_key, header.client_id)
            try:
                rest = handler(connection, header, position, frame)
            except MalformedRequestError:
                raise
            except Exception as error:  # one request must not end the broker
                self._count_failure(header, error)
                connection.close()
                return
            if rest is not None:
                self._begin_rest(connection, header, rest)
            return
        route = self._routes.get(header.api_key)
        if route is None:
            raise MalformedRequestError(f"API key {header.api_key} is not served")
        known = APIS[header.api_key]
        if header.api_version not in known.accepted:
            self._unsupported_version(connection, header)
            return
        if known.inter_broker and connection.listener != self._inter_broker_listener:
            self._refuse_inter_broker(connection, header)
            return
        connection.session.begin(header.api_key, header.client_id)
        self._decoded(connection, route, header, position, frame)

    def note_refusal(self, connection: Connection, what: str) -> None:
        """Record that a client's request was refused, for `odradek why` and `odradek doctor`."""
        session: Session = connection.session
        session.note_refusal(what)

    # ----------------------------------------------------------------------- inside

    def _unsupported_version(self, connection: Connection, header: RequestHeader) -> None:
        known = APIS[header.api_key]
        if header.api_key != ApiKey.API_VERSIONS:
            connection.session.client_id = header.client_id
            raise MalformedRequestError(
                f"{known.name} version {header.api_version}; served are {known.accepted}"
            )
        body = encoder(ApiVersionsResponse, 0)(unsupported_api_versions(*known.served))
        connection.respond([_framed(encode_response_header(18, 0, header.correlation_id), body)])

    def _refuse_inter_broker(self, connection: Connection, header: RequestHeader) -> None:
        name = APIS[header.api_key].name
        connection.session.client_id = header.client_id
        self.note_refusal(
            connection, f"{name} is served on listener {self._inter_broker_listener} only"
        )
        refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        request = Request(header, connection.session, None)
        self._failed(connection, connection.later(), request, refusal)

    def _decoded(
        self,
        connection: Connection,
        route: Route,
        header: RequestHeader,
        position: int,
        frame: memoryview,
    ) -> None:
        if len(frame) > LARGE_BYTES:
            self._begin_large(connection, header, position, frame)
            return
        # A copy: a request that waits must not point into the connection's buffer.
        own = memoryview(bytes(frame))
        message_class = request_class(header.api_key)
        decode = decoder(message_class, header.api_version)
        body, _ = decode(own, position, _elements_max(header.api_key))
        request = Request(header, connection.session, body)
        times = _Times(connection.active_ms, connection.begun_ms)
        connection.hurry()
        try:
            answer = route.handle(request)
            if not inspect.isawaitable(answer):
                self._count_errors(request, answer)
                connection.respond([self._encoded(connection, request, answer, times)])
                return
        except Exception as error:  # one request must not end the broker
            self._failed(connection, connection.later(), request, error)
            return
        slot = connection.later()
        task = self._tasks.start(
            self._finish(
                connection,
                slot,
                request,
                answer,
                times._replace(waits_since_ms=self._monotonic_ms()),
            ),
            APIS[header.api_key].name,
        )
        if inspect.iscoroutine(answer):
            # A task that is cancelled before its first step awaits nothing.
            task.add_done_callback(lambda _: answer.close())

    async def _finish(
        self,
        connection: Connection,
        slot: ResponseSlot,
        request: Request,
        answer: Awaitable[Message | Encoded],
        times: _Times,
    ) -> None:
        try:
            message = await answer
            self._count_errors(request, message)
            chunk = self._encoded(connection, request, message, times)
        except Exception as error:  # one request must not end the broker
            self._failed(connection, slot, request, error)
            return
        slot.fill([chunk])

    # ---------------------------------------------------------------- large requests

    def _begin_rest(
        self, connection: Connection, header: RequestHeader, rest: Coroutine[Any, Any, None]
    ) -> None:
        connection.hold()
        task = self._tasks.start(self._rest(connection, header, rest), APIS[header.api_key].name)
        # A task that is cancelled before its first step awaits nothing.
        task.add_done_callback(lambda _: rest.close())

    async def _rest(
        self, connection: Connection, header: RequestHeader, rest: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await rest
        except MalformedRequestError as error:
            connection.refuse(str(error))
        except Exception as error:  # one request must not end the broker
            self._count_failure(header, error)
            connection.close()
        finally:
            connection.let_go()

    def _begin_large(
        self, connection: Connection, header: RequestHeader, position: int, frame: memoryview
    ) -> None:
        """Handle it in slices; the connection's next request waits until it has acted."""
        slot, times = connection.later(), _Times(connection.active_ms, connection.begun_ms)
        connection.hold()
        if len(frame) > KEPT_BYTES:
            connection.keep_frame()
            own = frame.toreadonly()
        else:
            own = memoryview(bytes(frame))
        self._tasks.start(
            self._large(connection, slot, header, position, own, times),
            APIS[header.api_key].name,
        )

    async def _large(
        self,
        connection: Connection,
        slot: ResponseSlot,
        header: RequestHeader,
        position: int,
        own: memoryview,
        times: _Times,
    ) -> None:
        route = self._routes[header.api_key]
        request = Request(header, connection.session, None)
        held = True
        try:
            decode = sliced_decoder(request_class(header.api_key), header.api_version)
            body: Any
            body, _ = await self._turns.run(decode(own, position, _elements_max(header.api_key)))
            request = request._replace(body=body)
            parts = parts_of(header.api_key, header.api_version)
            if parts is not None and getattr(body, parts.asked[0]):
                message: Message | Encoded | None = await self._in_parts(
                    connection, route, request, parts
                )
            else:
                answer = route.handle(request)
                held = False
                connection.let_go()
                message = await answer if inspect.isawaitable(answer) else answer
            if message is None:  # the client has disconnected
                return
            self._count_errors(request, message)
            # What was made of the request is freed in a turn of its own: it may be much.
            del body
            request = request._replace(body=None)
            await self._turns.next()
            message = self._counted(connection, request, message, times)
            encoded = await self._turns.run(_encoding(message, header.api_version))
        except MalformedRequestError as error:
            connection.refuse(str(error))
            return
        except Exception as error:  # one request must not end the broker
            self._failed(connection, slot, request, error)
            return
        finally:
            if held:
                connection.let_go()
        slot.fill([_frame_of(header, encoded)])

    async def _in_parts(
        self, connection: Connection, route: Route, request: Request, parts: Parts
    ) -> Message | None:
        """The answer to all parts; None if the peer has closed the connection."""
        answers: list[Message | Encoded | asyncio.Task[Message | Encoded]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for index, part in enumerate(pieces(request.body, parts)):
                    await self._turns.next()
                    if connection.closing:
                        break
                    found = route.handle(request._replace(body=part, part=index))
                    if not inspect.isawaitable(found):
                        answers.append(found)
                    elif parts.together:
                        answers.append(group.create_task(_awaited(found)))
                    else:
                        answers.append(await found)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        whole: Message | None = None
        for each in answers:
            answer = each.result() if isinstance(each, asyncio.Task) else each
            assert not isinstance(answer, Encoded), "a part is joined before it is encoded"
            if whole is None:
                whole = answer
            else:
                if request.header.api_key in MUTATIONS:
                    _keep_longer(cast("Any", whole), cast("Any", answer))
                fail_alike(whole, answer)
                join(whole, answer, parts.answered)
        return None if connection.closing else whole

    # ------------------------------------------------------------------------ answers

    def _encoded(
        self, connection: Connection, request: Request, message: Message | Encoded, times: _Times
    ) -> bytes:
        header = request.header
        message = self._counted(connection, request, message, times)
        body = (
            message.body
            if isinstance(message, Encoded)
            else encoder(type(message), header.api_version)(message)
        )
        return _frame_of(header, body)

    def _counted(
        self, connection: Connection, request: Request, message: Message | Encoded, times: _Times
    ) -> Message | Encoded:
        """Count an answer, and put the client's throttle time into it."""
        header = request.header
        throttle_ms = self._quotas.requested(request.session, header.api_key)
        if header.api_key in MUTATIONS:
            throttle_ms = max(throttle_ms, cast("Any", message).throttle_time_ms)
        if throttle_ms:
            self.throttle(connection, throttle_ms)
            message = _throttled(message, throttle_ms)
        now_ms = self._monotonic_ms()
        took_ms = now_ms - times.received_ms
        self._metrics.answered(
            header.api_key,
            header.api_version,
            took_ms,
            queue_ms=times.begun_ms - times.received_ms,
            remote_ms=0 if times.waits_since_ms is None else now_ms - times.waits_since_ms,
            throttle_ms=throttle_ms,
        )
        error = getattr(message, "error_code", 0)
        if error:
            self._metrics.errors[header.api_key, error] += 1
        if took_ms >= self._slow_ms and header.api_key not in WAITING:
            self._log_slow(connection, header, took_ms)
        return message

    def _count_errors(self, request: Request, message: Message | Encoded) -> None:
        """Count the errors of an answer for `odradek why` and `odradek doctor`."""
        api_key = request.header.api_key
        if not isinstance(message, Encoded) and not APIS[api_key].inter_broker:
            for error, subject in errors_in(api_key, request.body, message):
                request.session.count_error(api_key, error, subject)

    def throttle(self, connection: Connection, throttle_ms: int) -> None:
        """Mute a client that has exceeded a quota (KIP-219: the response is sent at once)."""
        until_ms = self._monotonic_ms() + throttle_ms
        session: Session = connection.session
        if self._incidents is not None:
            for limit in self._quotas.limits(session, session.api_key):
                self._incidents.counts.throttled(session, throttle_ms, *limit)
        if until_ms <= session.muted_until_ms:
            return
        session.muted_until_ms = until_ms
        connection.mute(Mute.QUOTA)

        def unmute() -> None:
            if session.muted_until_ms == until_ms:  # not prolonged meanwhile
                connection.unmute(Mute.QUOTA)

        self._call_later(throttle_ms / 1000, unmute)

    def _failed(
        self, connection: Connection, slot: ResponseSlot, request: Request, error: Exception
    ) -> None:
        """Answer an exception of a handler, where the API has an error field."""
        header = request.header
        code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if not isinstance(error, ApiError):
            self._count_failure(header, error)
        message: Any = response_class(header.api_key)()
        if not _has_error_field(message, header.api_version):
            # The response has no error for the whole request. Close the connection, as Kafka does
            # where it cannot answer; the client retries.
            slot.fill([])
            connection.close()
            return
        message.error_code = code
        self._metrics.errors[header.api_key, code] += 1
        self._count_errors(request, message)
        if hasattr(message, "error_message"):
            message.error_message = error.message if isinstance(error, ApiError) else None
        body = encoder(type(message), header.api_version)(message)
        slot.fill(
            [
                _framed(
                    encode_response_header(
                        header.api_key, header.api_version, header.correlation_id
                    ),
                    body,
                )
            ]
        )

    def _count_failure(self, header: RequestHeader, error: Exception) -> None:
        self._metrics.failed += 1
        name = APIS[header.api_key].name
        log.error("%s version %d failed", name, header.api_version, exc_info=error)

    @staticmethod
    def _log_slow(connection: Connection, header: RequestHeader, took_ms: int) -> None:
        log.warning(
            "slow request: %s version %d from %s:%d client %r took %d ms",
            APIS[header.api_key].name,
            header.api_version,
            connection.peer_host,
            connection.peer_port,
            header.client_id,
            took_ms,
        )


def _has_error_field(message: Message, api_version: int) -> bool:
    fields = message.SCHEMA.fields
    return any(field.name == "error_code" and api_version in field.versions for field in fields)


async def _awaited(found: Awaitable[Message | Encoded]) -> Message | Encoded:
    return await found


def _elements_max(api_key: int) -> int:
    return ELEMENTS_MAX if APIS[api_key].inter_broker else CLIENT_ELEMENTS_MAX


def _encoding(message: Message | Encoded, api_version: int) -> Generator[None, None, bytes]:
    if isinstance(message, Encoded):
        return message.body
    return (yield from sliced_encoder(type(message), api_version)(message))


def _frame_of(header: RequestHeader, body: bytes) -> bytes:
    response = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return _framed(response, body)


def _framed(header: bytes, body: bytes) -> bytes:
    return b"".join(((len(header) + len(body)).to_bytes(LENGTH_BYTES, "big"), header, body))


def _keep_longer(whole: Any, part: Any) -> None:
    whole.throttle_time_ms = max(whole.throttle_time_ms, part.throttle_time_ms)


def _throttled(message: Message | Encoded, throttle_ms: int) -> Message | Encoded:
    """The same response, with a throttle time."""
    if isinstance(message, Encoded):
        return Encoded(throttle_ms.to_bytes(4, "big") + message.body[4:])
    if hasattr(message, "throttle_time_ms"):
        cast("Any", message).throttle_time_ms = throttle_ms
    return message
