"""Key stores and trust stores of Kafka's options, as PEM text, which Python's `ssl` reads.

PEM needs nothing, PKCS12 the package `cryptography`. Since Java 9, files called JKS are usually
PKCS12. Real JKS files are refused with the command that converts them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.model.extras import install

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PEM_MARK: Final = b"-----BEGIN "


class TlsError(OdradekError):
    """An option or a file of TLS that cannot be used; the text says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """A key store or trust store: a file, or PEM text in the properties."""

    type: str = "JKS"  # JKS, PKCS12 or PEM
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = None  # PEM text: the chain, or the certificates to trust
    key: str | None = field(default=None, repr=False)  # PEM text
    key_password: str | None = field(default=None, repr=False)


def key_store_of(option: Callable[[str], Any]) -> KeyStore:
    """The key store of these options."""
    return KeyStore(
        type=option("ssl.keystore.type").upper(),
        location=option("ssl.keystore.location"),
        password=option("ssl.keystore.password"),
        certificates=option("ssl.keystore.certificate.chain"),
        key=option("ssl.keystore.key"),
        key_password=option("ssl.key.password"),
    )


def trust_store_of(option: Callable[[str], Any]) -> KeyStore:
    """The trust store of these options."""
    return KeyStore(
        type=option("ssl.truststore.type").upper(),
        location=option("ssl.truststore.location"),
        password=option("ssl.truststore.password"),
        certificates=option("ssl.truststore.certificates"),
    )


def key_pem(store: KeyStore, data: bytes, option: str) -> str:
    """Key and certificates of a key store's file with these bytes.

    Raises:
        TlsError: the file has another format, or the password is wrong.
    """
    if store.type == "PEM":
        return data.decode("ascii", "replace")
    key, chain = _read_pkcs12(store, data, option)
    return key + chain


def trusted_pem(store: KeyStore, data: bytes, option: str) -> str:
    """The certificates of a trust store's file with these bytes.

    Raises:
        TlsError: the file has another format, or the password is wrong.
    """
    if store.type == "PEM":
        return data.decode("ascii", "replace")
    _, chain = _read_pkcs12(store, data, option)
    return chain


def _read_pkcs12(store: KeyStore, data: bytes, option: str) -> tuple[str, str]:
    """Key and certificates of a PKCS12 file, as PEM."""
    if data.startswith(_JKS_MAGIC):
        raise TlsError(
            f"{option}={store.location}: a JKS file, which only Java reads. "
            f"keytool -importkeystore -srckeystore {store.location} -destkeystore store.p12 "
            "-deststoretype PKCS12 converts it; or use PEM"
        )
    if data.lstrip().startswith(_PEM_MARK):
        type_option = option.replace("location", "type")
        raise TlsError(f"{option}={store.location}: a PEM file: set {type_option}=PEM")
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  an extra
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError:
        raise TlsError(
            f"{option}={store.location}: PKCS12 needs the package cryptography "
            f"({install('pkcs12')}); PEM needs nothing"
        ) from None
    password = store.password.encode() if store.password else None
    try:
        content = pkcs12.load_pkcs12(data, password)
    except ValueError as error:
        raise TlsError(f"{option}={store.location}: {error}") from None
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
