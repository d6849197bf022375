"""The authentication of one connection of a SASL listener (Kafka: `SaslServerAuthenticator`).

    CONNECTED     ApiVersions (once) or SaslHandshake
    HANDSHAKE     SaslHandshake
    TOKENS        the messages of the mechanism: in SaslAuthenticate requests after SaslHandshake
                  v1, as frames without a header after v0
    COMPUTING     nothing; an answer of the mechanism is being computed
    AUTHENTICATED all requests; SaslHandshake begins a re-authentication (KIP-368)
    CLOSED        nothing

`handle` takes an event and returns what to do. Before authentication, every other request closes
the connection without an answer. A client that fails to authenticate is answered, and its
connection closed, after `failure_delay_ms`, so that guessing passwords is slow.

If sessions expire (`max_reauth_ms`, or a credential with an end), the client authenticates again
on the same connection, with the same mechanism and as the same principal. The first other request
after the expiry closes the connection.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.model.clock import MonotonicMs, Now
from odradek.model.errors import ErrorCode
from odradek.security.sasl.step import (
    Challenge,
    Computation,
    Done,
    Failed,
    SaslServer,
    Step,
    quoted,
)

# Kafka begins at most one re-authentication a second.
REAUTHENTICATION_INTERVAL_MS: Final = 1000


# ---------------------------------------------------------------------------------------- events


class VersionsRequested(NamedTuple):
    """ApiVersions. Not valid: an unknown version or an invalid client name, answered as such."""

    is_valid: bool


class HandshakeRequested(NamedTuple):
    """SaslHandshake in this version."""

    mechanism: str
    api_version: int


class TokenReceived(NamedTuple):
    """A message of the mechanism: by SaslAuthenticate, or a frame if `takes_raw_frames`."""

    token: bytes


class OtherRequested(NamedTuple):
    """A request of any other API."""

    api: str


class InvalidReceived(NamedTuple):
    """What is not a request that Kafka knows, or a frame above `frame_bytes_max`."""

    what: str


class Computed(NamedTuple):
    """The outcome of a `Compute`."""

    step: Step


Event = VersionsRequested | HandshakeRequested | TokenReceived | OtherRequested | InvalidReceived


# --------------------------------------------------------------------------------------- effects


class Serve(NamedTuple):
    """Handle the request as on a listener without SASL."""


class AnswerHandshake(NamedTuple):
    """SaslHandshake's response, with the enabled mechanisms."""

    error_code: ErrorCode
    mechanisms: tuple[str, ...]


class AnswerToken(NamedTuple):
    """SaslAuthenticate's response; if `is_raw`, only the token, as a frame."""

    token: bytes
    error_code: ErrorCode = ErrorCode.NONE
    text: str | None = None
    session_lifetime_ms: int = 0
    is_raw: bool = False


class AnswerError(NamedTuple):
    """The response of the requested API with this error and no content."""

    error_code: ErrorCode
    text: str


class SetPrincipal(NamedTuple):
    """The connection acts for this principal from now on."""

    principal: str
    is_delegation_token: bool
    extensions: Mapping[str, str]


class Refuse(NamedTuple):
    """Read nothing more; after the delay send the answer, if there is one, and close.

    `reason` is for the log and contains no secret.
    """

    reason: str
    delay_ms: int
    answer: AnswerHandshake | AnswerToken | AnswerError | None = None


class Close(NamedTuple):
    """Close the connection now; `reason` is for the log."""

    reason: str
    has_expired: bool = False  # the session, because the client did not authenticate again


class Compute(NamedTuple):
    """Handle no other frame, call `work` in another thread, and return its result as `Computed`."""

    work: Callable[[], Step]


Effect = Serve | AnswerHandshake | AnswerToken | SetPrincipal | Refuse | Close | Compute


class SaslRules(NamedTuple):
    """What the options of a listener say. `servers` begins an exchange for each mechanism."""

    servers: Mapping[str, Callable[[], SaslServer]]
    max_reauth_ms: Mapping[str, int]  # connections.max.reauth.ms by mechanism; 0: not limited
    failure_delay_ms: int = 100  # connection.failed.authentication.delay.ms
    receive_bytes_max: int = 524_288  # sasl.server.max.receive.size


class Phase(enum.Enum):
    """Where the connection is; see the module's docstring."""

    CONNECTED = enum.auto()
    HANDSHAKE = enum.auto()
    TOKENS = enum.auto()
    COMPUTING = enum.auto()
    AUTHENTICATED = enum.auto()
    CLOSED = enum.auto()


class ConnectionAuthentication:
    """The authentication of one connection."""

    def __init__(self, rules: SaslRules) -> None:
        self.phase = Phase.CONNECTED
        self.principal: str | None = None  # None: not authenticated yet
        self.expires_ms: MonotonicMs | None = None  # when the session expires; None: it does not
        self._rules = rules
        self._mechanism = ""
        self._server: SaslServer | None = None  # None: its mechanism differs from the former one
        self._has_headers = False
        self._reauthenticated_ms: MonotonicMs | None = None  # when the last one began

    @property
    def takes_raw_frames(self) -> bool:
        """Whether the next frame is a message of the mechanism without a request header."""
        return self.phase is Phase.TOKENS and not self._has_headers

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest frame that is read; None: the limit of all requests."""
        return None if self.phase is Phase.AUTHENTICATED else self._rules.receive_bytes_max

    def handle(self, event: Event | Computed, now: Now) -> list[Effect]:
        """Handle one frame of the client, or the outcome of a computation."""
        if isinstance(event, Computed):
            return self._computed(event.step, now)
        match self.phase:
            case Phase.CLOSED | Phase.COMPUTING:
                return []
            case Phase.AUTHENTICATED:
                return self._authenticated(event, now.monotonic_ms)
            case Phase.TOKENS:
                return self._tokens(event, now)
            case Phase.CONNECTED | Phase.HANDSHAKE:
                return self._before(event)

    # ------------------------------------------------------------------------------- inside

    def _before(self, event: Event) -> list[Effect]:
        match event:
            case VersionsRequested(is_valid) if self.phase is Phase.CONNECTED:
                if is_valid:
                    self.phase = Phase.HANDSHAKE
                return [Serve()]
            case HandshakeRequested():
                return self._handshake(event)
            case _:
                return self._close(f"{_described(event)} before authentication")

    def _handshake(self, event: HandshakeRequested) -> list[Effect]:
        mechanisms = tuple(self._rules.servers)
        self._has_headers = event.api_version >= 1
        begin = self._rules.servers.get(event.mechanism)
        if begin is None:
            return self._refuse(
                f"mechanism {quoted(event.mechanism)} is not enabled; enabled are "
                f"{', '.join(mechanisms)}",
                AnswerHandshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms),
            )
        self.phase = Phase.TOKENS
        # As in Kafka, a handshake with another mechanism than before is answered without an error,
        # and the message after it is refused.
        is_changed = self.principal is not None and event.mechanism != self._mechanism
        self._server = None if is_changed else begin()
        self._mechanism = self._mechanism if is_changed else event.mechanism
        return [AnswerHandshake(ErrorCode.NONE, mechanisms)]

    def _tokens(self, event: Event, now: Now) -> list[Effect]:
        if isinstance(event, InvalidReceived):
            return self._close(f"{event.what} during authentication")
        if self._server is None:
            return self._refuse(
                f"{quoted(self.principal or '')} requested another mechanism than "
                f"{self._mechanism} for its re-authentication"
            )
        if not isinstance(event, TokenReceived):
            text = f"Unexpected Kafka request of type {_api(event)} during SASL authentication."
            return self._refuse(
                f"{_described(event)} during authentication",
                AnswerError(ErrorCode.ILLEGAL_SASL_STATE, text),
            )
        step = self._server.step(event.token)
        if isinstance(step, Computation):
            self.phase = Phase.COMPUTING
            return [Compute(step.work)]
        return self._stepped(step, now)

    def _computed(self, step: Step, now: Now) -> list[Effect]:
        if self.phase is not Phase.COMPUTING:
            return []
        self.phase = Phase.TOKENS
        return self._stepped(step, now)

    def _stepped(self, step: Step, now: Now) -> list[Effect]:
        match step:
            case Challenge(token):
                return [AnswerToken(token, is_raw=not self._has_headers)]
            case Failed() as failed:
                return self._failed(failed)
            case Done() as done:
                return self._done(done, now)

    def _done(self, done: Done, now: Now) -> list[Effect]:
        if self.principal not in (None, done.principal):
            before, after = (name.replace(":", ".", 1) for name in (self.principal, done.principal))
            text = f"Cannot change principals during re-authentication from {before}: {after}"
            return self._failed(Failed(quoted(text), text))
        limits = []
        if self._rules.max_reauth_ms.get(self._mechanism, 0) > 0:
            limits.append(self._rules.max_reauth_ms[self._mechanism])
        if done.expires_ms is not None:
            limits.append(done.expires_ms - now.wall_ms)
        lifetime_ms = min(limits, default=0)
        if limits and lifetime_ms <= 0:
            return self._failed(Failed(f"the credential of {quoted(done.principal)} has expired"))
        self.expires_ms = MonotonicMs(now.monotonic_ms + lifetime_ms) if limits else None
        self.principal = done.principal
        self.phase = Phase.AUTHENTICATED
        self._server = None
        return [
            SetPrincipal(done.principal, done.is_delegation_token, done.extensions),
            AnswerToken(done.token, session_lifetime_ms=lifetime_ms, is_raw=not self._has_headers),
        ]

    def _authenticated(self, event: Event, monotonic_ms: MonotonicMs) -> list[Effect]:
        if isinstance(event, HandshakeRequested) and self._may_reauthenticate(monotonic_ms):
            self._reauthenticated_ms = monotonic_ms
            return self._handshake(event)
        if self.expires_ms is not None and monotonic_ms > self.expires_ms:
            return self._close(
                f"the session of {quoted(self.principal or '')} has expired", has_expired=True
            )
        return [Serve()]

    def _may_reauthenticate(self, monotonic_ms: MonotonicMs) -> bool:
        last_ms = self._reauthenticated_ms
        is_early = last_ms is not None and monotonic_ms - last_ms < REAUTHENTICATION_INTERVAL_MS
        return self.expires_ms is not None and not is_early

    def _failed(self, failed: Failed) -> list[Effect]:
        # Without headers there is no response that could have an error.
        if not self._has_headers:
            return self._refuse(failed.reason)
        kind = "authentication" if self.principal is None else "re-authentication"
        text = failed.text or (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
        answer = AnswerToken(b"", ErrorCode.SASL_AUTHENTICATION_FAILED, text)
        return self._refuse(failed.reason, answer)

    def _refuse(
        self, reason: str, answer: AnswerHandshake | AnswerToken | AnswerError | None = None
    ) -> list[Effect]:
        self.phase, self._server = Phase.CLOSED, None
        return [Refuse(reason, self._rules.failure_delay_ms, answer)]

    def _close(self, reason: str, *, has_expired: bool = False) -> list[Effect]:
        self.phase, self._server = Phase.CLOSED, None
        return [Close(reason, has_expired)]


def _api(event: VersionsRequested | HandshakeRequested | OtherRequested) -> str:
    match event:
        case VersionsRequested():
            return "API_VERSIONS"
        case HandshakeRequested():
            return "SASL_HANDSHAKE"
        case OtherRequested(api):
            return api


def _described(event: Event) -> str:
    match event:
        case InvalidReceived(what):
            return what
        case TokenReceived():
            return "request SASL_AUTHENTICATE"
        case _:
            return f"request {_api(event)}"
