"""Certificates for the brokers of one cluster: a CA of its own, and one for each broker. PEM text.

    CA       EC P-256, valid for ten years; it is renewed with the same key, so that certificates
             which it has signed stay valid, and clients that trust the former one connect
    broker   EC P-256, valid for 825 days: the longest that macOS and iOS accept

Needs the package `cryptography`; every other module works without it.
"""

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID: Final = timedelta(days=825)
CA_VALID: Final = timedelta(days=3650)
# Half a month before `odradek doctor` warns: after a restart in that time there is no warning.
RENEWED_BEFORE: Final = timedelta(days=45)
_CLOCK_SKEW: Final = timedelta(hours=1)


class Certificate(NamedTuple):
    """A private key (PKCS #8, not encrypted) and its certificate, both PEM."""

    key: str
    certificate: str

    def __repr__(self) -> str:
        return "Certificate()"  # without the key


def make_authority(name: str, now: datetime, former: Certificate | None = None) -> Certificate:
    """A CA; with the key and the name of a former one if there is one."""
    if former is None:
        key: ec.EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    else:
        key, subject = _key(former.key), _parsed(former.certificate).subject
    made = _builder(subject, subject, key.public_key(), now, CA_VALID)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(_usage(signs_certificates=True), critical=True)
    return Certificate(_key_text(key), _text(made.sign(key, hashes.SHA256())))


def issue(
    authority: Certificate, common_name: str, names: Iterable[str], now: datetime
) -> Certificate:
    """A certificate with a new key for these host names and addresses.

    It is also valid for clients (mutual TLS), and never longer than the CA's.
    """
    ca, ca_key = _parsed(authority.certificate), _key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    valid = min(VALID, ca.not_valid_after_utc - now)
    made = _builder(subject, ca.subject, key.public_key(), now, valid)
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            False,
        ),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
        (x509.SubjectAlternativeName([_general(name) for name in sorted(set(names))]), False),
    ):
        made = made.add_extension(extension, critical=is_critical)
    return Certificate(_key_text(key), _text(made.sign(ca_key, hashes.SHA256())))


def expires(certificate: str) -> datetime:
    until: datetime = _parsed(certificate).not_valid_after_utc
    return until


def authority_is_due(certificate: str, now: datetime) -> bool:
    """Whether a broker's certificate that is issued now would outlive the CA's."""
    return expires(certificate) < now + VALID


def is_due(certificate: str, authority: str, names: Iterable[str], now: datetime) -> bool:
    """Whether a broker needs another one: it expires soon, lacks a name, or is of another CA."""
    parsed, ca = _parsed(certificate), _parsed(authority)
    held = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    has = {str(name.value) for name in held}
    key_id = parsed.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    ca_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key())
    return (
        parsed.not_valid_after_utc < now + RENEWED_BEFORE
        or not {str(_general(name).value) for name in names} <= has
        or key_id.key_identifier != ca_id.key_identifier
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    valid: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _parsed(certificate: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.encode())


def _key(text: str) -> ec.EllipticCurvePrivateKey:
    key: ec.EllipticCurvePrivateKey = serialization.load_pem_private_key(text.encode(), None)
    return key


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return str(pem, "ascii")


def _text(certificate: x509.Certificate) -> str:
    return str(certificate.public_bytes(serialization.Encoding.PEM), "ascii")
