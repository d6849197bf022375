"""TLS contexts, and SASL authentication over Kafka's requests.

Key stores and trust stores may be PEM (files or text in the properties), or PKCS12 if the package
`cryptography` is installed (Python's `ssl` reads only PEM). Since Java 9, files called JKS are
usually PKCS12. Real JKS files are refused with the command that converts them.
"""

import pathlib
import re
import secrets
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from odradek.client.security.jaas import credentials
from odradek.client.security.scram import ScramError, ScramExchange
from odradek.client.settings import KeyStore, Security, SettingsError
from odradek.model.errors import OdradekError
from odradek.security.sasl.scram import SCRAM_HASHES

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_NONCE_BYTES: Final = 18
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_TLS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


class AuthenticationError(OdradekError):
    """The broker refuses the credentials, or the TLS handshake failed. Never retried."""


# ------------------------------------------------------------------------------------- TLS


def tls_context(security: Security) -> ssl.SSLContext:
    """The TLS context for all connections with these settings.

    Raises:
        SettingsError: a store cannot be read, or no protocol version is supported.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.checks_host_name
    versions = [_TLS[name] for name in security.tls_versions if name in _TLS]
    if not versions:
        raise SettingsError(
            f"ssl.enabled.protocols={','.join(security.tls_versions)}: this client has "
            f"{', '.join(_TLS)}"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if security.ciphers:
        _set_ciphers(context, security.ciphers)
    _load_trust(context, security.trust_store)
    _load_key(context, security.key_store)
    return context


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        raise SettingsError(f"ssl.cipher.suites={','.join(names)}: {error}") from None


def _load_trust(context: ssl.SSLContext, store: KeyStore) -> None:
    if store.certificates is not None:
        pem = store.certificates
    elif store.location is None:
        context.load_default_certs()
        return
    else:
        pem = _trusted_pem(store)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        where = store.location or "ssl.truststore.certificates"
        raise SettingsError(f"{where}: no certificates to trust: {error}") from None


def _load_key(context: ssl.SSLContext, store: KeyStore) -> None:
    if store.key is not None:
        pem = f"{store.key}\n{store.certificates or ''}"
    elif store.location is None:
        return
    elif store.type == "PEM":
        pem = _text(store, "ssl.keystore.location")
    else:
        pem = _key_pem(store)
    # load_cert_chain reads only files: the file is private (0600) and deleted at once.
    with tempfile.TemporaryDirectory(prefix="odradek-") as folder:
        file = pathlib.Path(folder, "key.pem")
        file.touch(mode=0o600)
        file.write_text(pem)
        password = store.key_password or ""
        try:
            context.load_cert_chain(file, password=lambda: password)
        except (ssl.SSLError, OSError) as error:
            where = store.location or "ssl.keystore.key"
            raise SettingsError(f"{where}: no key with a matching certificate: {error}") from None


def _text(store: KeyStore, option: str) -> str:
    return _bytes(store, option).decode("ascii", "replace")


def _bytes(store: KeyStore, option: str) -> bytes:
    if store.location is None:
        raise SettingsError(f"{option} is not set")
    try:
        return pathlib.Path(store.location).read_bytes()
    except OSError as error:
        raise SettingsError(f"{option}={store.location}: {error.strerror}") from None


def _trusted_pem(store: KeyStore) -> str:
    option = "ssl.truststore.location"
    if store.type == "PEM":
        return _text(store, option)
    _, chain = _read_pkcs12(store, option)
    return chain


def _key_pem(store: KeyStore) -> str:
    key, chain = _read_pkcs12(store, "ssl.keystore.location")
    return key + chain


def _read_pkcs12(store: KeyStore, option: str) -> tuple[str, str]:
    """Key and certificates of a PKCS12 file, as PEM."""
    data = _bytes(store, option)
    if data.startswith(_JKS_MAGIC):
        raise SettingsError(
            f"{option}={store.location}: a JKS file, which only Java reads. "
            f"keytool -importkeystore -srckeystore {store.location} -destkeystore store.p12 "
            "-deststoretype PKCS12 converts it; or use PEM"
        )
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  an extra
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError:
        raise SettingsError(
            f"{option}={store.location}: PKCS12 needs the package cryptography "
            "(pip install 'odradek[pkcs12]'); PEM needs nothing"
        ) from None
    password = store.password.encode() if store.password else None
    try:
        content = pkcs12.load_pkcs12(data, password)
    except ValueError as error:
        raise SettingsError(f"{option}={store.location}: {error}") from None
    pem = serialization.Encoding.PEM
    key = ""
    if content.key is not None:
        protection = (
            serialization.BestAvailableEncryption(store.key_password.encode())
            if store.key_password
            else serialization.NoEncryption()
        )
        key = content.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, protection).decode()
    held = [content.cert] if content.cert is not None else []
    certificates = [entry.certificate for entry in [*held, *content.additional_certs]]
    return key, "".join(certificate.public_bytes(pem).decode() for certificate in certificates)


# ------------------------------------------------------------------------------------ SASL

# Sends one SASL token and returns the broker's; raises AuthenticationError if it refuses.
Send = Callable[[bytes], Awaitable[bytes]]
# Salts a password, perhaps in another thread.
Compute = Callable[[Callable[[], bytes]], Awaitable[bytes]]


async def _at_once(work: Callable[[], bytes]) -> bytes:
    return work()


async def authenticate(security: Security, send: Send, *, compute: Compute = _at_once) -> None:
    """Authenticate with the mechanism of the settings.

    Raises:
        AuthenticationError: the broker refuses, or does not prove that it knows the password.
        SettingsError: `sasl.jaas.config` has no user name and password, or there is no token.
    """
    if security.mechanism == "OAUTHBEARER":
        await _send_bearer(bearer_token(security.token_url), send)
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


async def _send_bearer(token: str, send: Send) -> None:
    """Send a bearer token (RFC 7628)."""
    error = await send(f"n,,\1auth=Bearer {token}\1\1".encode())
    if error:
        await send(b"\1")  # the broker fails the exchange, with the error as its text
        raise AuthenticationError(f"OAUTHBEARER: {error.decode(errors='replace')[:200]}")


def bearer_token(url: str | None) -> str:
    """The token in the file that `sasl.oauthbearer.token.endpoint.url` names.

    Raises:
        SettingsError: it is not set, is another URL than of a file, or the file has no token.
    """
    option = "sasl.oauthbearer.token.endpoint.url"
    parts = urlsplit(url or "")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise SettingsError(
            f"{option}={url}: must be file:///PATH; another program has to put the token there"
        )
    try:
        text = pathlib.Path(unquote(parts.path)).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{option}={url}: {error}") from None
    if not _TOKEN.fullmatch(text):
        raise SettingsError(f"{option}={url}: the file has no bearer token alone")
    return text
