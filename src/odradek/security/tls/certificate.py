"""The parts of an X.509 certificate that a broker uses: subject, names and validity.

Python's `ssl` returns a peer's certificate as decoded text, without the types of the values, and
Java prints some values by their type. So the certificate's DER is read here; OpenSSL has parsed and
verified it before.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from odradek.model.clock import WallMs

# The attributes to which RFC 2253 gives a keyword; others are printed by their OID.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_ESCAPED: Final = ',=+<>#;"\\'
_OID: Final = 0x06
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_ALTERNATIVE_NAMES: Final = "2.5.29.17"


class X509Certificate(NamedTuple):
    """The parts of a certificate that a broker uses."""

    subject: str  # in the form of RFC 2253, as `X500Principal.getName()` of Java prints it
    alternative_names: frozenset[bytes]  # each a GeneralName in DER
    not_before_ms: WallMs
    not_after_ms: WallMs


class _Element(NamedTuple):
    """One value in DER: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def incompatibility(
    existing: X509Certificate, new: X509Certificate, *, allow_dn: bool, allow_san: bool
) -> str | None:
    """Why a certificate cannot replace another while the broker runs; None if it can.

    These are the rules of Kafka's `SslFactory`, with `ssl.allow.dn.changes` and
    `ssl.allow.san.changes` (KIP-978).
    """
    if not allow_dn and existing.subject != new.subject:
        return (
            f"Keystore DistinguishedName does not match:  existing={{DN={existing.subject}}}, "
            f"new={{DN={new.subject}}}"
        )
    if not allow_san and not existing.alternative_names <= new.alternative_names:
        return (
            "Keystore SubjectAltNames do not match: the new certificate has not all names of the "
            "existing one"
        )
    return None


def read_certificate(der: bytes) -> X509Certificate:
    """Read a certificate.

    Raises:
        ValueError: it is not an X.509 certificate.
    """
    try:
        return _read(der)
    except (IndexError, StopIteration):
        raise ValueError("DER without the parts of a certificate") from None


def _read(der: bytes) -> X509Certificate:
    (outer,) = _elements(der)
    signed = next(_elements(outer.content))
    fields = [field for field in _elements(signed.content) if field.tag != _VERSION]
    # Serial number, signature, issuer, validity, subject, key, and what is optional.
    validity, subject = fields[3], fields[4]
    not_before, not_after = _elements(validity.content)
    return X509Certificate(
        subject=_distinguished_name(subject.content),
        alternative_names=_alternative_names(fields[6:]),
        not_before_ms=_wall_ms(not_before),
        not_after_ms=_wall_ms(not_after),
    )


def _elements(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        begin = at + 2
        if begin > len(data):
            raise ValueError("DER ends within a length")
        length = data[at + 1]
        if length & 0x80:
            more = length & 0x7F
            length = int.from_bytes(data[begin : begin + more], "big")
            begin += more
        end = begin + length
        if end > len(data):
            raise ValueError("DER ends within a value")
        yield _Element(data[at], data[begin:end], data[at:end])
        at = end


def _distinguished_name(content: bytes) -> str:
    """The name, the most specific part first."""
    parts = ["+".join(map(_attribute, _elements(part.content))) for part in _elements(content)]
    return ",".join(reversed(parts))


def _attribute(pair: _Element) -> str:
    kind, value = _elements(pair.content)
    oid = _dotted(kind.content)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    # Java takes every type of text for UTF-8.
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(
        "\\" + character if character in _ESCAPED else character for character in text
    ).replace("\0", "\\00")
    inner = escaped.strip(" \r")
    if not inner:
        return "".join("\\" + character for character in escaped)
    before, _, after = escaped.partition(inner)
    return "".join(("".join("\\" + c for c in before), inner, "".join("\\" + c for c in after)))


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _alternative_names(optional: list[_Element]) -> frozenset[bytes]:
    for field in optional:
        if field.tag != _EXTENSIONS:
            continue
        (extensions,) = _elements(field.content)
        for extension in _elements(extensions.content):
            kind, *_, value = _elements(extension.content)
            if kind.tag == _OID and _dotted(kind.content) == _ALTERNATIVE_NAMES:
                (names,) = _elements(value.content)
                return frozenset(name.whole for name in _elements(names.content))
    return frozenset()


def _wall_ms(time: _Element) -> WallMs:
    text = time.content.decode("ascii").rstrip("Z")
    if time.tag == _UTC_TIME:  # two digits of the year; from 50 on they mean 19xx
        text = ("19" if text >= "50" else "20") + text
    at = datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return WallMs(int(at.timestamp() * 1000))
