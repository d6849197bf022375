"""TLS contexts of Python's `ssl` from Kafka's options, for servers and for clients.

Every certificate of a trust store is trusted itself, as in Java, also one that another authority
has signed. The suites of TLS 1.3 cannot be chosen one by one: `ssl` has no function for that.
"""

import pathlib
import re
import ssl
import tempfile
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.security.tls.certificate import X509Certificate, read_certificate
from odradek.security.tls.ciphers import cipher_suites
from odradek.security.tls.stores import KeyStore, TlsError, key_pem, trusted_pem

_KEY_LOCATION: Final = "ssl.keystore.location"
_TRUST_LOCATION: Final = "ssl.truststore.location"
_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """The options of TLS of one listener, or of a client."""

    key_store: KeyStore = KeyStore()
    trust_store: KeyStore = KeyStore()
    versions: tuple[str, ...] = tuple(_VERSIONS)
    ciphers: tuple[str, ...] = ()
    client_auth: str = "none"  # of a server: none, requested or required
    checks_host_name: bool = True  # of a client

    @property
    def has_trust_store(self) -> bool:
        """Whether others are trusted than those that the system trusts."""
        return self.trust_store.location is not None or self.trust_store.certificates is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        stores = (self.key_store, self.trust_store)
        return tuple(store.location for store in stores if store.location is not None)


class ServerTls(NamedTuple):
    """What a listener serves TLS with."""

    context: ssl.SSLContext
    certificate: X509Certificate


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """The context of connections that are made with these options.

    Raises:
        TlsError: a store cannot be read, or no protocol version is supported.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.checks_host_name
    _prepare(context, options, ssl.Purpose.SERVER_AUTH)
    pem = _key_text(options.key_store)
    if pem is not None:
        _load_key(context, pem, options.key_store)
    return context


def server_tls(options: TlsOptions) -> ServerTls:
    """The context of a listener, and its certificate.

    Raises:
        TlsError: there is no key store, a store cannot be read, or no protocol version is
            supported.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENT_AUTH[options.client_auth]
    pem = _key_text(options.key_store)
    if pem is None:
        raise TlsError(
            f"there is no key store: set {_KEY_LOCATION} and ssl.keystore.type, or "
            "ssl.keystore.key, ssl.keystore.certificate.chain and ssl.keystore.type=PEM"
        )
    _load_key(context, pem, options.key_store)
    _prepare(context, options, ssl.Purpose.CLIENT_AUTH)
    return ServerTls(context, _first_certificate(pem))


def refusal(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLError | None:
    """Why a client with one context cannot connect to a server with the other; None if it can.

    The client's context must not check host names.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in tuple(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return error
            sides.remove(side)
    return None


def _prepare(context: ssl.SSLContext, options: TlsOptions, purpose: ssl.Purpose) -> None:
    versions = [_VERSIONS[name] for name in options.versions if name in _VERSIONS]
    suites = cipher_suites(options.ciphers)
    if options.ciphers:
        if not suites.has_tls_1_3:
            versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
        if not suites.openssl:
            versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_2]
    if not versions:
        of_suites = " with these ssl.cipher.suites" if options.ciphers else ""
        raise TlsError(
            f"ssl.enabled.protocols={','.join(options.versions)}: supported{of_suites} are "
            f"{', '.join(_VERSIONS)}"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if suites.openssl:
        try:
            context.set_ciphers(":".join(suites.openssl))
        except ssl.SSLError as error:
            raise TlsError(f"ssl.cipher.suites={','.join(options.ciphers)}: {error}") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, options.trust_store, purpose)


def _load_trust(context: ssl.SSLContext, store: KeyStore, purpose: ssl.Purpose) -> None:
    if store.certificates is not None:
        pem = store.certificates
    elif store.location is None:
        context.load_default_certs(purpose)
        return
    else:
        pem = trusted_pem(store, _read(store.location, _TRUST_LOCATION), _TRUST_LOCATION)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        where = store.location or "ssl.truststore.certificates"
        raise TlsError(f"{where}: no certificates to trust: {error}") from None


def _key_text(store: KeyStore) -> str | None:
    """Key and certificates as PEM; None if there is no key store."""
    if store.key is not None:
        return f"{store.key}\n{store.certificates or ''}"
    if store.location is None:
        return None
    return key_pem(store, _read(store.location, _KEY_LOCATION), _KEY_LOCATION)


def _load_key(context: ssl.SSLContext, pem: str, store: KeyStore) -> None:
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
            raise TlsError(
                f"{where}: no key with a matching certificate: {_why_no_key(pem, error)}"
            ) from None


def _why_no_key(pem: str, error: OSError) -> str:
    if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate"
    if "ENCRYPTED" in pem:
        return "the key is encrypted, and ssl.key.password is not its password"
    if "PRIVATE KEY-----" not in pem:
        return "there is no private key in it"
    if "BEGIN CERTIFICATE-----" not in pem:
        return "there is no certificate in it"
    return str(error)


def _first_certificate(pem: str) -> X509Certificate:
    match = _CERTIFICATE.search(pem)
    if match is None:
        raise TlsError("the key store has no certificate in the form of PEM")
    return read_certificate(ssl.PEM_cert_to_DER_cert(match[0]))


def _read(location: str, option: str) -> bytes:
    try:
        return pathlib.Path(location).read_bytes()
    except OSError as error:
        raise TlsError(f"{option}={location}: {error.strerror}") from None
