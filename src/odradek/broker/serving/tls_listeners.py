"""TLS on the listeners of a broker: certificates, handshakes, and the principals of clients.

A client of an SSL listener is the subject of its certificate, mapped by
`ssl.principal.mapping.rules`, and `User:ANONYMOUS` without a certificate. On a SASL_SSL listener
TLS only encrypts: the principal is that of the SASL mechanism.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.broker.serving.session import Session
from odradek.config.broker import LISTENER_PREFIX, BrokerConfig
from odradek.config.option import as_words
from odradek.model.clock import WallMs
from odradek.model.errors import StartupError
from odradek.net.connection import Connection
from odradek.net.tls.context import ServerTls, TlsOptions, client_context, server_tls
from odradek.net.tls.transport import Scratch, TlsTransport
from odradek.security.tls.certificate import read_certificate
from odradek.security.tls.principal_mapping import PrincipalMapping
from odradek.security.tls.stores import TlsError, key_store_of, trust_store_of

log = logging.getLogger(__name__)
ENCRYPTED: Final = ("SSL", "SASL_SSL")
_CLIENT_AUTH: Final = "ssl.client.auth"


class _TlsListener(NamedTuple):
    tls: ServerTls
    mapping: PrincipalMapping | None  # None: the principal is that of SASL


def tls_options(config: BrokerConfig, listener: str, protocol: str) -> TlsOptions:
    """The options of TLS of a listener.

    The `ssl.client.auth` of all listeners does not hold for SASL_SSL, as in Kafka (KIP-684).
    """

    def option(name: str) -> object:
        return config.for_listener(listener, name)

    client_auth = option(_CLIENT_AUTH)
    if protocol == "SASL_SSL":
        own = f"{LISTENER_PREFIX}{listener.lower()}.{_CLIENT_AUTH}"
        client_auth = config.values.get(own, "none")
    return TlsOptions(
        key_store=key_store_of(option),
        trust_store=trust_store_of(option),
        versions=as_words(config.for_listener(listener, "ssl.enabled.protocols")),
        ciphers=as_words(config.for_listener(listener, "ssl.cipher.suites")),
        client_auth=str(client_auth),
        checks_host_name=bool(option("ssl.endpoint.identification.algorithm")),
    )


class TlsListeners:
    """The listeners of one broker that use TLS."""

    def __init__(
        self,
        *,
        soon: Callable[[Callable[[], None]], None],
        wall_ms: Callable[[], WallMs],
        refused: Callable[[Connection, str], None],
    ) -> None:
        """`soon` is `Turns.soon`; `refused` records that a client was refused."""
        self.failed: Counter[str] = Counter()  # handshakes, by listener
        self._soon = soon
        self._wall_ms = wall_ms
        self._refused = refused
        self._scratch = Scratch()
        self._listeners: dict[str, _TlsListener] = {}
        self._clients: dict[str, ssl.SSLContext] = {}  # for connections to the same listener

    def open(self, config: BrokerConfig) -> None:
        """Load the key stores and trust stores.

        Raises:
            StartupError: which option of which listener cannot be used, and what to do.
        """
        for point in config.listeners:
            if point.security_protocol not in ENCRYPTED:
                continue
            options = tls_options(config, point.listener, point.security_protocol)
            try:
                loaded = self._loaded(config, point.listener, point.security_protocol, options)
                self._listeners[point.listener] = loaded
                if point.listener == config.inter_broker_listener:
                    self._clients[point.listener] = client_context(options)
            except TlsError as error:
                raise StartupError(f"listener {point.listener}: {error}") from None
            self._warn(point.listener, options, loaded.tls)

    def client_context(self, listener: str) -> ssl.SSLContext:
        """The context for connections to the brokers' listener on other brokers."""
        return self._clients[listener]

    def around(self, connection: Connection) -> asyncio.BufferedProtocol:
        """What the socket of a connection is given: TLS, or the connection itself."""
        listener = self._listeners.get(connection.listener)
        if listener is None:
            return connection
        return TlsTransport(
            connection,
            listener.tls.context,
            scratch=self._scratch,
            established=lambda transport: self._established(connection, listener, transport),
            failed=lambda reason: self._failed(connection, reason),
            server_side=True,
            soon=self._soon,
        )

    # ----------------------------------------------------------------------- inside

    def _loaded(
        self, config: BrokerConfig, listener: str, protocol: str, options: TlsOptions
    ) -> _TlsListener:
        mapping = None
        if protocol == "SSL":
            rules = config.for_listener(listener, "ssl.principal.mapping.rules")
            mapping = PrincipalMapping(str(rules))
        return _TlsListener(server_tls(options), mapping)

    def _warn(self, listener: str, options: TlsOptions, tls: ServerTls) -> None:
        certificate, now_ms = tls.certificate, self._wall_ms()
        if certificate.not_after_ms < now_ms:
            log.warning(
                "listener %s: the certificate of %s has expired: clients refuse it; replace it",
                listener,
                certificate.subject,
            )
        elif certificate.not_before_ms > now_ms:
            log.warning(
                "listener %s: the certificate of %s is not valid yet: clients refuse it; check "
                "this host's clock",
                listener,
                certificate.subject,
            )
        trust = options.trust_store
        if options.client_auth != "none" and not (trust.location or trust.certificates):
            log.warning(
                "listener %s: ssl.client.auth=%s without a trust store: a certificate of any "
                "authority that this system trusts is accepted; set ssl.truststore.location",
                listener,
                options.client_auth,
            )

    def _established(
        self, connection: Connection, listener: _TlsListener, transport: TlsTransport
    ) -> None:
        session: Session | None = connection.session
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        der = tls.getpeercert(binary_form=True)
        if session is None or listener.mapping is None or der is None:
            return
        try:
            subject = read_certificate(der).subject
            session.principal = f"User:{listener.mapping.name_of(subject)}"
        except (TlsError, ValueError) as error:
            self._failed(connection, str(error))
            connection.abort()

    def _failed(self, connection: Connection, reason: str) -> None:
        """Count a failed handshake; a peer that has sent nothing (a port check) is not logged."""
        if not reason:
            return
        self.failed[connection.listener] += 1
        if connection.session is not None:
            self._refused(connection, reason)
        log.warning(
            "closed %s:%d on listener %s: %s",
            connection.peer_host,
            connection.peer_port,
            connection.listener,
            reason,
        )
