"""Authenticates the connections of SASL listeners, in front of the request loop.

Each frame becomes an event of `ConnectionAuthentication`, and its effects are carried out here.
Only ApiVersions, SaslHandshake and SaslAuthenticate are decoded before authentication; frames are
bounded by `sasl.server.max.receive.size` until then. Connections of other listeners, and those
whose session does not expire once they are authenticated, go to the request loop directly.

Kafka answers another request in the place of a token with an error in the form of its API. Here its
connection is closed without an answer, after the same delay.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, assert_never, cast

from odradek.broker.serving.session import Session
from odradek.model.clock import Now
from odradek.model.errors import MalformedRequestError
from odradek.net.connection import Connection, FrameHandler
from odradek.security.sasl.exchange import (
    AnswerError,
    AnswerHandshake,
    AnswerToken,
    Close,
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


class Served(FrameHandler, Protocol):
    """What handles the requests of authenticated clients: the request loop."""

    def note_refusal(self, connection: Connection, what: str) -> None:
        """Record that a client was refused, for `odradek why` and `odradek doctor`."""


class Authentication:
    """The `FrameHandler` of a broker with SASL listeners."""

    def __init__(
        self,
        served: Served,
        rules: Mapping[str, SaslRules],
        *,
        now: Callable[[], Now],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`rules` by listener; the connections of a listener without rules are anonymous."""
        self._served = served
        self._rules = rules
        self._now = now
        self._call_later = call_later
        # Not authenticated yet, or with a session that expires; and the frame limit of the rest.
        self._states: dict[Connection, tuple[ConnectionAuthentication, int]] = {}

    # ------------------------------------------------------------ a FrameHandler

    def connected(self, connection: Connection) -> None:
        self._served.connected(connection)
        rules = self._rules.get(connection.listener)
        if rules is not None:
            state = ConnectionAuthentication(rules)
            self._states[connection] = state, connection.frame_bytes_max
            self._limit(connection, state, connection.frame_bytes_max)

    def disconnected(self, connection: Connection) -> None:
        """Drop the state of its authentication."""
        self._states.pop(connection, None)
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
        if entry is None:
            self._served.frame(connection, frame)
            return
        state, frame_bytes_max = entry
        if state.takes_raw_frames:
            header, event = _NO_HEADER, cast("Event", TokenReceived(bytes(frame)))
        else:
            header, event = _event(frame, state.phase)
        for effect in state.handle(event, self._now()):
            self._carry_out(connection, effect, header, frame)
        self._limit(connection, state, frame_bytes_max)
        if state.phase is Phase.AUTHENTICATED and state.expires_ms is None:
            del self._states[connection]

    # ----------------------------------------------------------------------- inside

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
                session.is_delegation_token = is_delegation_token
            case AnswerHandshake() | AnswerToken():
                connection.respond([_encoded(effect, header)])
            case Refuse():
                self._refuse(connection, effect, header)
            case Close(reason):
                self._log(connection, reason)
                connection.close()
            case _:
                assert_never(effect)

    def _refuse(self, connection: Connection, effect: Refuse, header: RequestHeader) -> None:
        self._log(connection, f"authentication failed: {effect.reason}")
        connection.mute()

        def answer() -> None:
            if connection.closing:
                return
            if effect.answer is not None and not isinstance(effect.answer, AnswerError):
                connection.respond([_encoded(effect.answer, header)])
            connection.close()

        self._call_later(effect.delay_ms / 1000, answer)

    def _log(self, connection: Connection, reason: str) -> None:
        self._served.note_refusal(connection, reason)
        log.warning("closed %s:%d: %s", connection.peer_host, connection.peer_port, reason)


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
