"""Authenticates the connections of SASL listeners, in front of the server's request loop.

Each frame becomes an event of `ConnectionAuthentication`, and its effects are carried out here.
Only ApiVersions, SaslHandshake and SaslAuthenticate are decoded before authentication; frames are
bounded by `sasl.server.max.receive.size` until then, and all such connections together by limits of
memory and time (`net/unauthenticated.py`).
When a connection is authenticated and its session does not expire, it reports to the server
directly, as connections of other listeners always do.

Kafka answers another request in the place of a token with an error in the form of its API. Here its
connection is closed without an answer, after the same delay.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never, cast

from odradek.broker.serving.authentication_counts import CountsByListener
from odradek.broker.serving.session import Session
from odradek.broker.serving.worker import Worker
from odradek.model.clock import MonotonicMs, Now
from odradek.model.errors import MalformedRequestError
from odradek.net.connection import Connection, FrameHandler
from odradek.net.mute import Mute
from odradek.net.unauthenticated import Unauthenticated
from odradek.obs.log_limit import of
from odradek.security.sasl.exchange import (
    AnswerError,
    AnswerHandshake,
    AnswerToken,
    Close,
    Compute,
    Computed,
    ConnectionAuthentication,
    Effect,
    Event,
    HandshakeRequested,
    InvalidReceived,
    OtherRequested,
    Phase,
    Refuse,
    SaslRules,
    Serve,
    SetPrincipal,
    TokenReceived,
    VersionsRequested,
)
from odradek.security.sasl.step import Failed, Step
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.codec import CLIENT_ELEMENTS_MAX, decoder, encoder
from odradek.wire.frame import LENGTH_BYTES
from odradek.wire.header import RequestHeader, decode_request_header, encode_response_header
from odradek.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.wire.schema import Message

log = logging.getLogger(__name__)
_NO_HEADER: Final = RequestHeader(-1, 0, 0, None)
_FRAME_LIMIT: Final = "socket.request.max.bytes"
_SASL_FRAME_LIMIT: Final = "sasl.server.max.receive.size"


class Authentication:
    """The `FrameHandler` of the connections of SASL listeners, in front of the server's."""

    def __init__(  # noqa: PLR0913 - what it decides with, and what it reports to
        self,
        served: FrameHandler,
        *,
        unauthenticated: Unauthenticated,
        note_refusal: Callable[[Connection, str], None],
        worker: Worker,
        now: Callable[[], Now],
        call_later: Callable[[float, Callable[[], None]], object],
        counts: CountsByListener,
    ) -> None:
        """`note_refusal` records a refused client for `odradek why` and `odradek doctor`."""
        self._served = served
        self._unauthenticated = unauthenticated
        self._note_refusal = note_refusal
        self._worker = worker
        self._now = now
        self._call_later = call_later
        self._rules: dict[str, SaslRules] = {}
        self.counts = counts
        self._began_again_ms: dict[Connection, MonotonicMs] = {}  # re-authentications in progress
        # Not authenticated yet, or with a session that expires; and the frame limit of the rest.
        self._states: dict[Connection, tuple[ConnectionAuthentication, int]] = {}

    def set_rules(self, listener: str, rules: SaslRules) -> None:
        """Authenticate the connections that a listener accepts from now on."""
        self._rules[listener] = rules
        _ = self.counts[listener]  # from now on a metric, also without a client

    # ------------------------------------------------------------ a FrameHandler

    def connected(self, connection: Connection) -> None:
        self._served.connected(connection)
        if connection.closing or connection.session is None:
            return  # above a limit of connections
        state = ConnectionAuthentication(self._rules[connection.listener])
        self._states[connection] = state, connection.frame_bytes_max
        connection.session.authenticates = True
        self._limit(connection, state, connection.frame_bytes_max)
        self._unauthenticated.enter(connection)

    def disconnected(self, connection: Connection) -> None:
        """Drop the state of its authentication."""
        self._states.pop(connection, None)
        self._began_again_ms.pop(connection, None)
        self._served.disconnected(connection)

    def refused(self, connection: Connection, reason: str) -> None:
        """Report an invalid request; the connection is closed."""
        entry = self._states.get(connection)
        if entry is not None and entry[0].frame_bytes_max is not None:
            reason = reason.replace(_FRAME_LIMIT, _SASL_FRAME_LIMIT)
        self._served.refused(connection, reason)

    def broke_off(self, connection: Connection, reason: str) -> None:
        """Report why a client gets no complete response."""
        self._served.broke_off(connection, reason)

    def frame(self, connection: Connection, frame: memoryview) -> None:
        entry = self._states.get(connection)
        if entry is None:  # authenticated in the same read
            self._served.frame(connection, frame)
            return
        state = entry[0]
        if state.takes_raw_frames:
            header, event = _NO_HEADER, cast("Event", TokenReceived(bytes(frame)))
        else:
            header, event = _event(frame, state.phase)
            if state.principal is None:  # the client of a refusal
                session: Session = connection.session
                session.begin(header.api_key, header.client_id)
        self._handle(connection, event, header, frame)

    # ----------------------------------------------------------------------- inside

    def _handle(
        self,
        connection: Connection,
        event: Event | Computed,
        header: RequestHeader,
        frame: memoryview,
    ) -> None:
        state, frame_bytes_max = self._states[connection]
        is_again = state.principal is not None
        for effect in state.handle(event, self._now()):
            self._count(connection, effect, is_again=is_again, api_version=header.api_version)
            self._carry_out(connection, effect, header, frame)
        self._limit(connection, state, frame_bytes_max)
        if state.phase is Phase.AUTHENTICATED and state.expires_ms is None:
            del self._states[connection]
            connection.report_to(self._served)

    def _limit(
        self, connection: Connection, state: ConnectionAuthentication, frame_bytes_max: int
    ) -> None:
        limit = state.frame_bytes_max
        connection.frame_bytes_max = (
            frame_bytes_max if limit is None else min(limit, frame_bytes_max)
        )

    def _carry_out(
        self,
        connection: Connection,
        effect: Effect,
        header: RequestHeader,
        frame: memoryview,
    ) -> None:
        match effect:
            case Serve():
                self._served.frame(connection, frame)
            case SetPrincipal(principal, is_delegation_token):
                session: Session = connection.session
                session.principal = principal
                session.authenticates = False
                session.is_delegation_token = is_delegation_token
                self._unauthenticated.leave(connection)
            case AnswerHandshake() | AnswerToken():
                connection.respond([_encoded(effect, header)])
            case Compute(work):
                self._compute(connection, work, header)
            case Refuse():
                self._refuse(connection, effect, header)
            case Close(reason):
                self._log(connection, reason)
                connection.close()
            case _:
                assert_never(effect)

    def _compute(
        self, connection: Connection, work: Callable[[], Step], header: RequestHeader
    ) -> None:
        connection.hold()

        def computed(step: Step) -> None:
            if connection in self._states:  # else closed meanwhile
                self._handle(connection, Computed(step), header, memoryview(b""))
            connection.let_go()

        self._worker.run(partial(_step_of, work), computed)

    def _refuse(self, connection: Connection, effect: Refuse, header: RequestHeader) -> None:
        self._log(connection, f"authentication failed: {effect.reason}")
        connection.mute(Mute.REFUSED)

        def answer() -> None:
            if connection.closing:
                return
            if effect.answer is not None and not isinstance(effect.answer, AnswerError):
                connection.respond([_encoded(effect.answer, header)])
            connection.close()

        self._call_later(effect.delay_ms / 1000, answer)

    def _log(self, connection: Connection, reason: str) -> None:
        self._note_refusal(connection, reason)
        host, port = connection.peer_host, connection.peer_port
        # The reason names the user: guesses for one user do not hide those for another.
        log.warning("closed %s:%d: %s", host, port, reason, extra=of(host, reason))

    def _count(
        self, connection: Connection, effect: Effect, *, is_again: bool, api_version: int
    ) -> None:
        listener = connection.listener
        counts = self.counts[listener]
        match effect:
            case SetPrincipal() if is_again:
                self.counts.add(listener, "successful_reauthentication")
                self._record_latency(connection)
            case SetPrincipal():
                self.counts.add(listener, "successful_authentication")
                counts.successful_authentication_no_reauth_total += api_version < 1
            case Refuse() if is_again:
                self.counts.add(listener, "failed_reauthentication")
            case Close(has_expired=True):
                counts.expired_connections_killed_count += 1
            case Refuse() | Close() if not is_again:
                self.counts.add(listener, "failed_authentication")
            case AnswerHandshake() if is_again:
                self._began_again_ms[connection] = self._now().monotonic_ms
            case _:
                pass

    def _record_latency(self, connection: Connection) -> None:
        now_ms = self._now().monotonic_ms
        took_ms = now_ms - self._began_again_ms.pop(connection, now_ms)
        self.counts[connection.listener].latency.record(took_ms, now_ms)


def _step_of(work: Callable[[], Step]) -> Step:
    """The result of a computation in another thread, which must not raise."""
    try:
        return work()
    except Exception:
        log.exception("a message of an authentication could not be checked")
        return Failed("the message could not be checked")


def _event(frame: memoryview, phase: Phase) -> tuple[RequestHeader, Event]:
    """What a frame with a request header is to the state machine."""
    try:
        header, position = decode_request_header(frame)
        api = APIS.get(ApiKey(header.api_key))
        if api is None:
            return header, InvalidReceived(f"API key {header.api_key}")
        is_served = header.api_version in api.accepted
        if api.key == ApiKey.API_VERSIONS:
            return header, VersionsRequested(is_served)
        if not is_served:
            return header, InvalidReceived(f"{api.name} version {header.api_version}")
        return header, _decoded_event(frame, header, position, phase)
    except (MalformedRequestError, ValueError) as error:
        return _NO_HEADER, InvalidReceived(f"an invalid request: {error}")


def _decoded_event(frame: memoryview, header: RequestHeader, position: int, phase: Phase) -> Event:
    if header.api_key == ApiKey.SASL_HANDSHAKE:
        decode = decoder(SaslHandshakeRequest, header.api_version)
        handshake, _ = decode(frame, position, CLIENT_ELEMENTS_MAX)
        return HandshakeRequested(handshake.mechanism, header.api_version)
    if header.api_key == ApiKey.SASL_AUTHENTICATE and phase is Phase.TOKENS:
        decode_token = decoder(SaslAuthenticateRequest, header.api_version)
        request, _ = decode_token(frame, position, CLIENT_ELEMENTS_MAX)
        return TokenReceived(bytes(request.auth_bytes))
    return OtherRequested(ApiKey(header.api_key).name)


def _encoded(answer: AnswerHandshake | AnswerToken, header: RequestHeader) -> bytes:
    """The frame of a response, or of a token alone."""
    if isinstance(answer, AnswerToken) and answer.is_raw:
        return len(answer.token).to_bytes(LENGTH_BYTES, "big") + answer.token
    message: Message
    if isinstance(answer, AnswerHandshake):
        message = SaslHandshakeResponse(
            error_code=answer.error_code, mechanisms=list(answer.mechanisms)
        )
    else:
        message = SaslAuthenticateResponse(
            error_code=answer.error_code,
            error_message=answer.text,
            auth_bytes=answer.token,
            session_lifetime_ms=answer.session_lifetime_ms,
        )
    body = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    body += encoder(type(message), header.api_version)(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
