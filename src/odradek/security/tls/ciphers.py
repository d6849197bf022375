"""Cipher suites: from the names of Java's options to those of OpenSSL."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_JAVA: Final = re.compile(r"TLS_(?P<exchange>\w+)_WITH_(?P<cipher>\w+)")
_BLOCK: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)_(CBC_)?")


class CipherSuites(NamedTuple):
    """The suites for TLS 1.2 in OpenSSL's names, and whether one of TLS 1.3 is among them."""

    openssl: tuple[str, ...]
    has_tls_1_3: bool


def cipher_suites(names: Iterable[str]) -> CipherSuites:
    """The suites of `ssl.cipher.suites`, which may have either kind of names."""
    openssl = []
    has_tls_1_3 = False
    for name in names:
        match = _JAVA.fullmatch(name)
        if match is not None:
            openssl.append(_openssl(match["exchange"], match["cipher"]))
        elif name.startswith("TLS_"):  # TLS 1.3 has suites without a key exchange
            has_tls_1_3 = True
        else:
            openssl.append(name)
    return CipherSuites(tuple(openssl), has_tls_1_3)


def _openssl(exchange: str, cipher: str) -> str:
    """For example ECDHE_RSA and AES_128_CBC_SHA256: ECDHE-RSA-AES128-SHA256."""
    cipher = _BLOCK.sub(r"\1\2_", cipher)
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20_POLY1305"
    parts = [] if exchange == "RSA" else exchange.split("_")
    return "-".join([*parts, *cipher.split("_")])
