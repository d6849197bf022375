"""Subjects of certificates as Java's `X500Principal.getName()` prints them, names and validity."""

import datetime
import ipaddress

import pytest

from odradek.security.tls.certificate import read_certificate

x509 = pytest.importorskip("cryptography.x509")
hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
encoding = pytest.importorskip("cryptography.hazmat.primitives.serialization").Encoding.DER
from cryptography.x509.name import _ASN1Type as Asn1  # noqa: E402
from cryptography.x509.oid import NameOID  # noqa: E402

KEY = ec.generate_private_key(ec.SECP256R1())
BEGIN = datetime.datetime(2024, 2, 29, 12, 30, 1, tzinfo=datetime.UTC)


def certificate(*parts, names=(), begin=BEGIN, end=BEGIN + datetime.timedelta(days=365)):
    """A certificate with these attributes: each a pair, or a list of pairs in one part."""
    subject = x509.Name([
        x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in part])
        for part in (part if isinstance(part, list) else [part] for part in parts)
    ])  # fmt: skip
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(encoding)


def subject(*parts):
    return read_certificate(certificate(*parts)).subject


def test_the_most_specific_part_comes_first():
    assert subject(
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Berlin"),
        (NameOID.LOCALITY_NAME, "Berlin"),
        (NameOID.STREET_ADDRESS, "Unter den Linden"),
        (NameOID.ORGANIZATION_NAME, "Odradek"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Brokers"),
        (NameOID.DOMAIN_COMPONENT, "org"),
        (NameOID.USER_ID, "u1"),
        (NameOID.COMMON_NAME, "broker-1"),
    ) == (
        "CN=broker-1,UID=u1,DC=org,OU=Brokers,O=Odradek,"
        "STREET=Unter den Linden,L=Berlin,ST=Berlin,C=DE"
    )


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("a,b", r"a\,b"),
        ('a+b"c\\d<e>f;g=h#i', r"a\+b\"c\\d\<e\>f\;g\=h\#i"),
        (" a b ", r"\ a b\ "),
        ("  ", r"\ \ "),
        ("Jürgen", "Jürgen"),
        ("a\nb", "a\nb"),
    ],
)
def test_characters_are_escaped(value, printed):
    assert subject((NameOID.COMMON_NAME, value)) == f"CN={printed}"


def test_attributes_without_a_keyword_are_printed_by_their_number_and_in_hexadecimal():
    assert subject((NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.COMMON_NAME, "c")) == (
        "CN=c,1.2.840.113549.1.9.1=#1603614062"
    )
    assert subject((NameOID.SERIAL_NUMBER, "1")) == "2.5.4.5=#130131"
    assert subject((x509.ObjectIdentifier("2.999.1"), "x")) == "2.999.1=#0c0178"


def test_a_part_with_two_attributes():
    printed = subject([(NameOID.COMMON_NAME, "c"), (NameOID.USER_ID, "u")])
    assert sorted(printed.split("+")) == ["CN=c", "UID=u"]


def test_an_empty_subject():
    assert subject() == ""


def test_text_that_is_not_utf_8_is_read_as_java_reads_it():
    assert subject((NameOID.COMMON_NAME, "ab", Asn1.BMPString)) == r"CN=\00a\00b"


def test_times_and_names():
    names = [x509.DNSName("a"), x509.IPAddress(ipaddress.ip_address("::1"))]
    read = read_certificate(certificate((NameOID.COMMON_NAME, "c"), names=names))
    assert read.not_before_ms == BEGIN.timestamp() * 1000
    assert read.not_after_ms == (BEGIN + datetime.timedelta(days=365)).timestamp() * 1000
    assert len(read.alternative_names) == 2
    fewer = read_certificate(certificate((NameOID.COMMON_NAME, "d"), names=names[:1]))
    assert fewer.alternative_names < read.alternative_names


def test_years_outside_of_two_digits():
    for year in (1950, 1999, 2049, 2050, 9999):
        end = datetime.datetime(year, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
        data = certificate((NameOID.COMMON_NAME, "c"), begin=end, end=end)
        assert read_certificate(data).not_after_ms == end.timestamp() * 1000


def test_bytes_that_are_not_a_certificate_are_refused():
    whole = certificate((NameOID.COMMON_NAME, "c"))
    for data in (b"", whole[:1], whole[:-1], whole[:50], b"\x30\x02\x05\x00", b"\x30\x02\x30\x00"):
        with pytest.raises(ValueError, match="DER|unpack"):
            read_certificate(data)
