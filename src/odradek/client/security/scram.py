"""SCRAM, the client's side: a password is proved without being sent (RFC 5802, RFC 7677).

    exchange = ScramExchange("SCRAM-SHA-256", "alice", "secret", nonce="fyko+d2l...")
    first = exchange.first()            n,,n=alice,r=fyko+d2l...
    final = exchange.final(answer)      c=biws,r=fyko+d2l...3rfc...,p=...
    exchange.verify(answer)             the server knew the password, too

Pure: the nonce is drawn by the caller. The server chooses how much work a login is, so iterations
are bounded (`ITERATIONS_MAX`), and a server that does not prove itself is refused.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

from odradek.model.errors import OdradekError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4_096
# Kafka stores no more than 16,384; a million is half a second here.
ITERATIONS_MAX: Final = 1_000_000
_GS2_HEADER: Final = "n,,"  # no channel binding, no other user to act for


class ScramError(OdradekError):
    """The server refuses, or says something that no honest server says."""


class ScramExchange:
    """One login."""

    def __init__(self, mechanism: str, user: str, password: str, *, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """The first message: who, and our half of the nonce."""
        return (_GS2_HEADER + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """The second message: the proof.

        Raises:
            ScramError: the answer is no challenge, or one that must not be met.
        """
        fields = _fields(server_first)
        if "e" in fields:
            raise ScramError(fields["e"])
        try:
            nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (KeyError, ValueError, binascii.Error):
            raise ScramError("the challenge has no nonce, salt and iterations") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the challenge does not answer our nonce")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(
                f"{iterations} iterations; must be {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        binding = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Whether the server knows the password, too.

        Raises:
            ScramError: it refuses us, or does not.
        """
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramError(fields["e"])
        try:
            signature = base64.b64decode(fields["v"], validate=True)
        except (KeyError, binascii.Error):
            raise ScramError("the last answer has no signature") from None
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the server's signature is wrong: it does not know the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = bytes(message).decode()
    except UnicodeDecodeError:
        raise ScramError("an answer that is no UTF-8") from None
    fields = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ScramError(f"an answer with {name[:40]!r} where name=value should stand")
        fields[name] = value
    return fields
