"""Authorities and certificates for tests, as the files that options name."""

import datetime
import pathlib
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
# The validity of a certificate that has expired, for `Authority.issue`.
PASSED = {"not_before": PAST - datetime.timedelta(days=1), "not_after": PAST}


class Authority:
    """A certificate authority, and a folder for its files."""

    def __init__(self, folder: pathlib.Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.file = self._write(f"{name}.pem", self._authority.cert_pem.bytes())

    def issue(self, *hosts: str, name: str = "server", **more: Any) -> str:
        """The file with a key and its certificate, for these hosts."""
        issued = self._authority.issue_cert(*hosts, **more)
        return self._write(f"{name}.pem", issued.private_key_and_cert_chain_pem.bytes())

    def issue_for_java(self, *hosts: str, name: str = "java", **more: Any) -> str:
        """The same with the key as PKCS#8, which alone Java reads."""
        issued = self._authority.issue_cert(*hosts, **more)
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self._write(f"{name}.pem", pem + b"".join(c.bytes() for c in issued.cert_chain_pems))

    def expired(self, *hosts: str, name: str = "expired") -> str:
        """The same with a certificate that has expired."""
        return self.issue(*hosts, name=name, **PASSED)

    def _write(self, name: str, data: bytes) -> str:
        file = self._folder / name
        file.write_bytes(data)
        return str(file)


def server_options(authority: Authority, key: str, *, prefix: str = "") -> dict[str, str]:
    """The options of a broker with this key, which trusts the authority."""
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": key,
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.location": authority.file,
    }


def client_options(authority: Authority, key: str | None = None) -> dict[str, str]:
    """The properties of a client that trusts the authority; `key` is its own certificate."""
    options = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.file,
    }
    if key is not None:
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": key}
    return options
