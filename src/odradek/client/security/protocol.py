"""TLS contexts of clients, and SASL authentication over Kafka's requests."""

import secrets
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.client.security.jaas import credentials
from odradek.client.security.scram import ScramError, ScramExchange
from odradek.client.settings import Security, SettingsError
from odradek.model.errors import OdradekError
from odradek.net.tls.context import TlsOptions, client_context
from odradek.security.sasl.scram import SCRAM_HASHES
from odradek.security.tls.stores import TlsError

_NONCE_BYTES: Final = 18


class AuthenticationError(OdradekError):
    """The broker refuses the credentials, or the TLS handshake failed. Never retried."""


# ------------------------------------------------------------------------------------- TLS


def tls_context(security: Security) -> ssl.SSLContext:
    """The TLS context for all connections with these settings.

    Raises:
        SettingsError: a store cannot be read, or no protocol version is supported.
    """
    options = TlsOptions(
        key_store=security.key_store,
        trust_store=security.trust_store,
        versions=security.tls_versions,
        ciphers=security.ciphers,
        checks_host_name=security.checks_host_name,
    )
    try:
        return client_context(options)
    except TlsError as error:
        raise SettingsError(str(error)) from None


# ------------------------------------------------------------------------------------ SASL

# Sends one SASL token and returns the broker's; raises AuthenticationError if it refuses.
Send = Callable[[bytes], Awaitable[bytes]]
# Salts a password, perhaps in another thread.
Compute = Callable[[Callable[[], bytes]], Awaitable[bytes]]


async def _at_once(work: Callable[[], bytes]) -> bytes:
    return work()


async def authenticate(
    security: Security,
    send: Send,
    *,
    compute: Compute = _at_once,
    host: str = "",
    token: Callable[[Security], Awaitable[str]] | None = None,
) -> None:
    """Authenticate with the mechanism of the settings. `host` is the broker's name for Kerberos.

    `token` returns the bearer token; by default one is requested.

    Raises:
        AuthenticationError: the broker refuses, or does not prove that it has the password.
        SettingsError: `sasl.jaas.config` has no user name and password, or there is no token.
    """
    if security.mechanism == "OAUTHBEARER":
        await _log_in_by_bearer(security, send, token)
        return
    if security.mechanism == "GSSAPI":
        await _log_in_by_gssapi(security, send, host)
        return
    user, password, is_token = credentials(security.jaas_config)
    if security.mechanism == "PLAIN":
        await send(b"\0".join((b"", user.encode(), password.encode())))
        return
    assert security.mechanism in SCRAM_HASHES, security.mechanism
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    exchange = ScramExchange(security.mechanism, user, password, nonce=nonce, is_token=is_token)
    try:
        challenge = await send(exchange.first())
        final = await compute(lambda: exchange.final(challenge))
        exchange.verify(await send(final))
    except ScramError as error:
        raise AuthenticationError(f"{security.mechanism}: {error}") from None


async def _log_in_by_gssapi(security: Security, send: Send, host: str) -> None:
    from odradek.client.security.kerberos import log_in_by_gssapi  # noqa: PLC0415 - an extra
    from odradek.net.gss import GssUnavailableError  # noqa: PLC0415
    from odradek.security.sasl.gssapi import GssError  # noqa: PLC0415

    try:
        await log_in_by_gssapi(security.jaas_config, security.kerberos_service, host, send)
    except (GssError, GssUnavailableError) as error:
        raise AuthenticationError(f"GSSAPI: {error}") from None


async def _log_in_by_bearer(
    security: Security, send: Send, get: Callable[[Security], Awaitable[str]] | None
) -> None:
    """Send a bearer token (RFC 7628)."""
    if get is None:
        from odradek.client.security.bearer import new_token  # noqa: PLC0415 - with urllib

        get = new_token
    token = await get(security)
    error = await send(f"n,,\1auth=Bearer {token}\1\1".encode())
    if error:
        await send(b"\1")  # the broker fails the exchange, with the error as its text
        raise AuthenticationError(f"OAUTHBEARER: {error.decode(errors='replace')[:200]}")
