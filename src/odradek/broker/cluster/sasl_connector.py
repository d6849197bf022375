"""Connections to other brokers over a SASL listener: each logs in before its first request.

SaslHandshake and SaslAuthenticate are sent in fixed versions, because brokers do not negotiate
versions. (Apache Kafka's broker sends ApiVersions first.) Where a password is to be salted, the
worker does it: the other broker chooses the number of iterations.

If the other broker limits the session (`connections.max.reauth.ms`), the connection is replaced
after 85 % of it, between two requests (`Channel.is_stale`). Kafka's broker authenticates again on
the same connection. A new connection costs one more handshake in an hour or a day, and needs no
second state in which a channel must not be used.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from odradek.broker.cluster.peers import PeerError, exchange
from odradek.broker.serving.worker import Worker
from odradek.client.security.protocol import AuthenticationError, authenticate
from odradek.client.security.scram import ScramError
from odradek.client.settings import Security, SettingsError
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ErrorCode
from odradek.net.channel import Channel, Connector
from odradek.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

log = logging.getLogger(__name__)
_SESSION_SHARE: Final = 0.85


class BrokerLogin(NamedTuple):
    """How this broker logs in to others."""

    mechanism: str
    jaas_config: str
    remedy: str  # what has to be so that others accept it
    user: str | None  # None: a bearer token says it
    token_url: str | None = None
    kerberos_service: str | None = None
    token: Callable[[Security], Awaitable[str]] | None = None  # what gets the bearer token

    def __repr__(self) -> str:
        return f"BrokerLogin({self.mechanism}, {self.user!r})"

    def settings(self) -> Security:
        """The settings of a client that logs in so."""
        return Security(
            protocol="SASL_PLAINTEXT",
            mechanism=self.mechanism,
            jaas_config=self.jaas_config,
            token_url=self.token_url,
            kerberos_service=self.kerberos_service,
        )


class SaslConnector:
    """A `Connector` of channels that are authenticated when `connect` returns them."""

    def __init__(
        self,
        connector: Connector,
        login: Callable[[], BrokerLogin],
        *,
        worker: Worker,
        monotonic_ms: Callable[[], MonotonicMs],
        refused: Callable[[str, str], None],
        client_id: str,
    ) -> None:
        """`login` is read for each connection. `refused` is called with a host and what happened,
        each time that a broker refuses.
        """
        self._connector = connector
        self._login = login
        self._worker = worker
        self._monotonic_ms = monotonic_ms
        self._refused = refused
        self._client_id = client_id
        self._logged: dict[tuple[str, int], str] = {}  # the last refusal of each address

    async def connect(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.BufferedProtocol:
        """Connect and log in.

        Raises:
            OSError: the connection cannot be made.
            PeerError: the broker refuses the log-in, or has closed the connection.
        """
        protocol = await self._connector.connect(make_protocol, host, port)
        if not isinstance(protocol, Channel):
            raise TypeError(f"{type(protocol).__name__} cannot log in")
        login = self._login()
        try:
            await self._log_in(login, protocol, host, port)
        except AuthenticationError as error:
            protocol.close()
            user = "" if login.user is None else f" as {login.user!r}"
            what = f"the broker at {host}:{port} refuses this broker's log-in{user}"
            self._note(login, host, port, f"{what} with {login.mechanism}: {error}")
            raise PeerError(f"{host}:{port} refuses the log-in: {error}") from None
        except SettingsError as error:
            protocol.close()
            what = f"this broker cannot log in to the one at {host}:{port}"
            self._note(login, host, port, f"{what} with {login.mechanism}: {error}")
            raise PeerError(f"no log-in to {host}:{port}: {error}") from None
        except BaseException:
            protocol.close()
            raise
        self._logged.pop((host, port), None)
        return protocol

    async def _log_in(self, login: BrokerLogin, channel: Channel, host: str, port: int) -> None:
        began_ms, lifetime_ms, name = self._monotonic_ms(), 0, f"{host}:{port}"

        async def send(token: bytes) -> bytes:
            nonlocal lifetime_ms
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = await exchange(
                channel, request, SaslAuthenticateResponse, client_id=self._client_id, name=name
            )
            if answer.error_code:
                raise AuthenticationError(answer.error_message or _name_of(answer.error_code))
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        handshake = SaslHandshakeRequest(mechanism=login.mechanism)
        offered = await exchange(
            channel, handshake, SaslHandshakeResponse, client_id=self._client_id, name=name
        )
        if offered.error_code:
            raise AuthenticationError(
                f"{_name_of(offered.error_code)}: it has {', '.join(offered.mechanisms) or 'none'}"
            )
        await authenticate(
            login.settings(), send, compute=self._compute, host=host, token=login.token
        )
        if lifetime_ms:
            channel.stale_ms = MonotonicMs(began_ms + int(lifetime_ms * _SESSION_SHARE))

    async def _compute(self, work: Callable[[], bytes]) -> bytes:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def outcome() -> bytes | ScramError:
            try:
                return work()
            except ScramError as error:  # what the other broker has sent is invalid
                return error

        def done(found: bytes | ScramError) -> None:
            if future.done():
                return
            if isinstance(found, ScramError):
                future.set_exception(found)
            else:
                future.set_result(found)

        self._worker.run(outcome, done)
        return await future

    def _note(self, login: BrokerLogin, host: str, port: int, what: str) -> None:
        self._refused(host, what)
        if self._logged.get((host, port)) == what:
            return  # logged once, until it changes or a log-in succeeds
        self._logged[host, port] = what
        log.error(
            "%s; nothing is replicated from it and no request is sent to it until %s; further "
            "refusals are not logged",
            what,
            login.remedy,
        )


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
