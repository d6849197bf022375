"""The certificates of `odradek up --secure`: accepted by TLS, bounded in time, renewed in time."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.local import certificates
from odradek.local.certificates import (
    CA_VALID,
    RENEWED_BEFORE,
    VALID,
    Certificate,
    authority_is_due,
    expires,
    is_due,
    issue,
    make_authority,
)

NOW = datetime.now(UTC).replace(microsecond=0)
NAMES = ["localhost", "127.0.0.1", "::1", "alpha.example"]


@pytest.fixture(scope="module")
def authority():
    return make_authority("test", NOW)


@pytest.fixture(scope="module")
def broker(authority):
    return issue(authority, "broker-0", NAMES, NOW)


def handshake(authority: str, broker: Certificate, host: str, tmp_path) -> str | None:
    """Connect in memory. Returns why the client refuses; None if it does not."""
    file = tmp_path / "broker.pem"
    file.write_text(broker.key + broker.certificate)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(file)
    client_context = ssl.create_default_context(cadata=authority)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return None


@pytest.mark.parametrize("host", NAMES)
def test_a_client_that_trusts_the_ca_accepts_each_name(authority, broker, host, tmp_path):
    assert handshake(authority.certificate, broker, host, tmp_path) is None


def test_a_client_refuses_another_name_and_another_ca(authority, broker, tmp_path):
    other = make_authority("other", NOW)

    refused = handshake(authority.certificate, broker, "beta.example", tmp_path)
    assert refused is not None
    assert "not valid for 'beta.example'" in refused
    assert handshake(other.certificate, broker, "localhost", tmp_path) is not None


def test_keys_are_p_256_and_validity_is_bounded(authority, broker):
    for held, valid in ((authority, CA_VALID), (broker, VALID)):
        parsed = x509.load_pem_x509_certificate(held.certificate.encode())
        key = parsed.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
        assert parsed.not_valid_after_utc - NOW == valid
        assert held.key.startswith("-----BEGIN PRIVATE KEY-----")  # PKCS #8, as Java needs it


def test_the_key_is_not_printed(broker):
    assert "PRIVATE" not in f"{broker} {broker!r}"


def test_a_certificate_is_due_before_it_expires(authority, broker):
    last = expires(broker.certificate) - RENEWED_BEFORE
    ca = authority.certificate

    assert not is_due(broker.certificate, ca, NAMES, last - timedelta(days=1))
    assert is_due(broker.certificate, ca, NAMES, last + timedelta(days=1))


def test_a_certificate_is_due_when_it_lacks_a_name_or_has_another_ca(authority, broker):
    other = make_authority("other", NOW)

    assert is_due(broker.certificate, authority.certificate, [*NAMES, "10.0.0.7"], NOW)
    assert not is_due(broker.certificate, authority.certificate, NAMES[:2], NOW)
    assert is_due(broker.certificate, other.certificate, NAMES, NOW)


def test_a_renewed_ca_is_trusted_and_so_is_what_the_former_has_signed(authority, broker, tmp_path):
    assert not authority_is_due(authority.certificate, NOW)
    later = NOW + CA_VALID - VALID + timedelta(days=1)
    assert authority_is_due(authority.certificate, later)

    renewed = make_authority("ignored", NOW, authority)
    assert renewed.certificate != authority.certificate
    assert handshake(renewed.certificate, broker, "localhost", tmp_path) is None
    newer = issue(renewed, "broker-0", NAMES, NOW)
    assert handshake(authority.certificate, newer, "localhost", tmp_path) is None


def test_no_certificate_outlives_its_ca(authority):
    late = NOW + CA_VALID - timedelta(days=3)

    made = issue(authority, "broker-0", NAMES, late)
    assert expires(made.certificate) == expires(authority.certificate)
    assert certificates.is_due(made.certificate, authority.certificate, NAMES, late)
