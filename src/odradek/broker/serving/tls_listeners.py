"""TLS on the listeners of a broker: certificates, handshakes, and the principals of clients.

A client of an SSL listener is the subject of its certificate, mapped by
`ssl.principal.mapping.rules`, and `User:ANONYMOUS` without a certificate. On a SASL_SSL listener
TLS only encrypts: the principal is that of the SASL mechanism.

Key stores and trust stores are replaced while the broker runs: by options (`reconfigure`), and when
their files have changed (`reload`). New connections use the new ones; open connections stay. What
cannot be used leaves the former ones in place.
"""

import asyncio
import logging
import os
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.serving.authentication_counts import CountsByListener
from odradek.broker.serving.session import Session
from odradek.config.broker import LISTENER_PREFIX, BrokerConfig
from odradek.config.option import as_words
from odradek.model.clock import WallMs
from odradek.model.errors import StartupError
from odradek.net.connection import Connection
from odradek.net.tls.context import ServerTls, TlsOptions, client_context, refusal, server_tls
from odradek.net.tls.transport import Scratch, TlsTransport
from odradek.net.unauthenticated import Unauthenticated
from odradek.obs.log_limit import of
from odradek.security.tls.certificate import incompatibility, read_certificate
from odradek.security.tls.principal_mapping import PrincipalMapping
from odradek.security.tls.stores import TlsError, key_store_of, trust_store_of

log = logging.getLogger(__name__)
ENCRYPTED: Final = ("SSL", "SASL_SSL")
RELOAD_MS: Final = 5_000
_CLIENT_AUTH: Final = "ssl.client.auth"
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
# The largest message with certificates of a client that OpenSSL accepts, and takes memory for.
_CERTIFICATES_BYTES_MAX: Final = 100 * 1024

Stamp = tuple[tuple[int, int, int] | None, ...]


class _Settings(NamedTuple):
    """The options of one listener; of equal ones nothing is loaded again."""

    tls: TlsOptions
    rules: str | None  # None: the principal is that of SASL
    is_inside: bool  # the brokers' listener
    allows_dn: bool
    allows_san: bool


class _TlsListener(NamedTuple):
    """What new connections of one listener use."""

    settings: _Settings
    stamp: Stamp  # of the files from which it was loaded
    server: ServerTls
    mapping: PrincipalMapping | None
    client: ssl.SSLContext | None  # for connections to other brokers
    tester: ssl.SSLContext | None  # the same without a check of host names


def uses_tls(config: BrokerConfig) -> bool:
    """Whether one of the listeners uses TLS."""
    return any(point.security_protocol in ENCRYPTED for point in config.listeners)


def tls_options(config: BrokerConfig, listener: str, protocol: str) -> TlsOptions:
    """The options of TLS of a listener.

    The `ssl.client.auth` of all listeners does not hold for SASL_SSL, as in Kafka (KIP-684).
    """
    option = partial(config.for_listener, listener)
    client_auth = option(_CLIENT_AUTH)
    if protocol == "SASL_SSL":
        own = f"{LISTENER_PREFIX}{listener.lower()}.{_CLIENT_AUTH}"
        client_auth = config.values.get(own, "none")
    return TlsOptions(
        key_store=key_store_of(option),
        trust_store=trust_store_of(option),
        versions=as_words(option("ssl.enabled.protocols")),
        ciphers=as_words(option("ssl.cipher.suites")),
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
        counts: CountsByListener,
    ) -> None:
        """`soon` is `Turns.soon`; `refused` records that a client was refused."""
        self.failed: Counter[str] = Counter()  # handshakes, by listener
        self._soon = soon
        self._wall_ms = wall_ms
        self._refused = refused
        self.counts = counts
        self.unauthenticated: Unauthenticated | None = None  # the server's
        self._scratch = Scratch()
        self._listeners: dict[str, _TlsListener] = {}
        self._failed_stamps: dict[str, Stamp] = {}  # of files that could not be used

    # ------------------------------------------------------------------ key stores and trust stores

    def open(self, config: BrokerConfig) -> None:
        """Load the key stores and trust stores.

        Raises:
            StartupError: which option of which listener cannot be used, and what to do.
        """
        for listener, settings in _settings_of(config):
            try:
                loaded = _load(settings)
                _check_inside(loaded.server.context, loaded.tester)
            except TlsError as error:
                raise StartupError(f"listener {listener}: {error}") from None
            self._listeners[listener] = loaded
            self._warn(listener, loaded)

    def check(self, config: BrokerConfig) -> None:
        """Check that `reconfigure` could use these options.

        Raises:
            TlsError: why not, in Kafka's words where it has some.
        """
        for listener, settings in _settings_of(config):
            present = self._listeners.get(listener)
            if present is not None and _differs(present, settings):
                _check_replacement(present, _load(settings))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use other options for new connections; what cannot be used is logged."""
        for listener, settings in _settings_of(config):
            present = self._listeners.get(listener)
            if present is not None and present.settings != settings:
                try:
                    self._replace(listener, present, _load(settings))
                except TlsError as error:
                    log.warning("listener %s keeps its certificates: %s", listener, error)

    async def reload(self) -> None:
        """Load key stores and trust stores whose files have changed."""
        for listener, present in list(self._listeners.items()):
            stamp = _stamp(present.settings.tls.files)
            if stamp in (present.stamp, self._failed_stamps.get(listener)):
                continue
            try:
                loaded = await asyncio.to_thread(_load, present.settings)
                self._replace(listener, present, loaded)
            except TlsError as error:
                self._failed_stamps[listener] = stamp
                log.warning(
                    "listener %s keeps its certificates, because its changed files cannot be used: "
                    "%s; they are read again when they change",
                    listener,
                    error,
                )

    def _replace(self, listener: str, present: _TlsListener, loaded: _TlsListener) -> None:
        _check_replacement(present, loaded)
        if self._listeners.get(listener) is present:  # not replaced by options meanwhile
            self._listeners[listener] = loaded
            self._failed_stamps.pop(listener, None)
            log.info(
                "listener %s uses other certificates for new connections: that of %s",
                listener,
                loaded.server.certificate.subject,
            )
            self._warn(listener, loaded)

    def expiries(self) -> dict[str, WallMs]:
        """Until when the certificate of each listener is valid."""
        return {
            name: each.server.certificate.not_after_ms for name, each in self._listeners.items()
        }

    # ---------------------------------------------------------------------------- connections

    def client_context(self, listener: str) -> ssl.SSLContext:
        """The context for connections to the brokers' listener on other brokers."""
        context = self._listeners[listener].client
        if context is None:
            raise KeyError(listener)
        return context

    def around(self, connection: Connection) -> asyncio.BufferedProtocol:
        """What the socket of a connection is given: TLS, or the connection itself."""
        listener = self._listeners.get(connection.listener)
        if listener is None:
            return connection
        return TlsTransport(
            connection,
            listener.server.context,
            scratch=self._scratch,
            established=partial(self._established, connection, listener.mapping),
            failed=partial(self._failed, connection),
            server_side=True,
            soon=self._soon,
            accepted=partial(self._accepted, connection),
            begins=partial(self._begins, connection, listener.settings.tls.client_auth != "none"),
        )

    def _accepted(self, connection: Connection) -> None:
        # Without a session it is above a limit of connections, and closed now or later.
        has_session = connection.session is not None and not connection.closing
        if self.unauthenticated is not None and has_session:
            self.unauthenticated.enter(connection)

    def _begins(self, connection: Connection, has_certificates: bool, hello_bytes: int) -> bool:
        if self.unauthenticated is None:
            return True
        # OpenSSL copies a large ClientHello once.
        more_bytes = 2 * hello_bytes + has_certificates * _CERTIFICATES_BYTES_MAX
        return self.unauthenticated.begin_handshake(connection, more_bytes)

    def _established(
        self, connection: Connection, mapping: PrincipalMapping | None, transport: TlsTransport
    ) -> None:
        if mapping is not None and self.unauthenticated is not None:
            self.unauthenticated.leave(connection)  # no SASL on this listener
        session: Session | None = connection.session
        if session is None or mapping is None:
            return
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        der = tls.getpeercert(binary_form=True)
        try:
            if der is not None:
                session.principal = f"User:{mapping.name_of(read_certificate(der).subject)}"
        except (TlsError, ValueError) as error:
            self._failed(connection, str(error))
            connection.abort()
            return
        self.counts.add(connection.listener, "successful_authentication")
        self.counts[connection.listener].successful_authentication_no_reauth_total += 1

    def _failed(self, connection: Connection, reason: str) -> None:
        """Count a failed handshake; a peer that has sent nothing (a port check) is not logged."""
        if not reason:
            return
        self.failed[connection.listener] += 1
        self.counts.add(connection.listener, "failed_authentication")
        if connection.session is not None:
            self._refused(connection, reason)
        log.warning(
            "closed %s:%d on listener %s: %s",
            connection.peer_host,
            connection.peer_port,
            connection.listener,
            reason,
            extra=of(connection.peer_host),
        )

    def _warn(self, listener: str, loaded: _TlsListener) -> None:
        certificate, now_ms = loaded.server.certificate, self._wall_ms()
        options = loaded.settings.tls
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
        if options.client_auth != "none" and not options.has_trust_store:
            log.warning(
                "listener %s: ssl.client.auth=%s without a trust store: a certificate of any "
                "authority that this system trusts is accepted; set ssl.truststore.location",
                listener,
                options.client_auth,
            )


def _settings_of(config: BrokerConfig) -> Iterable[tuple[str, _Settings]]:
    for point in config.listeners:
        listener, protocol = point.listener, point.security_protocol
        if protocol in ENCRYPTED:
            rules = str(config.for_listener(listener, "ssl.principal.mapping.rules"))
            yield (
                listener,
                _Settings(
                    tls=tls_options(config, listener, protocol),
                    rules=rules if protocol == "SSL" else None,
                    is_inside=listener == config.inter_broker_listener,
                    allows_dn=bool(config.for_listener(listener, "ssl.allow.dn.changes")),
                    allows_san=bool(config.for_listener(listener, "ssl.allow.san.changes")),
                ),
            )


def _load(settings: _Settings) -> _TlsListener:
    """Load the stores of a listener.

    Raises:
        TlsError: they cannot be used.
    """
    options = settings.tls
    # Before the files are read: a change meanwhile is seen as another one.
    stamp = _stamp(options.files)
    client = tester = None
    if settings.is_inside:
        client = client_context(options)
        tester = client_context(replace(options, checks_host_name=False))
    return _TlsListener(
        settings=settings,
        stamp=stamp,
        server=server_tls(options),
        mapping=None if settings.rules is None else PrincipalMapping(settings.rules),
        client=client,
        tester=tester,
    )


def _stamp(files: Iterable[str]) -> Stamp:
    """What changes when a file is written or replaced; None for a file that is not there."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _differs(present: _TlsListener, settings: _Settings) -> bool:
    return present.settings != settings or present.stamp != _stamp(settings.tls.files)


def _check_replacement(present: _TlsListener, loaded: _TlsListener) -> None:
    """Check that other stores may replace the present ones while the broker runs.

    Raises:
        TlsError: why not, in Kafka's words where it has some.
    """
    settings = loaded.settings
    why = incompatibility(
        present.server.certificate,
        loaded.server.certificate,
        allow_dn=settings.allows_dn,
        allow_san=settings.allows_san,
    )
    if why is not None:
        raise TlsError(
            f"{why}; ssl.allow.dn.changes and ssl.allow.san.changes allow it, or a restart"
        )
    if settings.tls.has_trust_store and not present.settings.tls.has_trust_store:
        raise TlsError(
            "Cannot add SSL truststore to an existing listener for which no truststore was "
            "configured."
        )
    # Brokers with the former stores and with the new ones connect to each other.
    _check_inside(loaded.server.context, present.tester)
    _check_inside(present.server.context, loaded.tester)


def _check_inside(server: ssl.SSLContext, client: ssl.SSLContext | None) -> None:
    """Check that a broker with these stores can connect to another one.

    Raises:
        TlsError: the trust store does not trust the certificate in the key store.
    """
    why = None if client is None else refusal(server, client)
    if why is not None and getattr(why, "verify_code", None) != _EXPIRED:
        raise TlsError(
            "brokers with these options cannot connect to each other: the trust store has to trust "
            f"the certificate in the key store ({why.reason or why})"
        )
