"""The client's side of SCRAM: proves a password without sending it (RFC 5802, RFC 7677).

    exchange = ScramExchange("SCRAM-SHA-256", "alice", "secret", nonce="fyko+d2l...")
    first = exchange.first()            n,,n=alice,r=fyko+d2l...
    final = exchange.final(answer)      c=biws,r=fyko+d2l...3rfc...,p=...
    exchange.verify(answer)             checks the server's signature

Pure: the caller draws the nonce. The server chooses the number of iterations, so it is bounded
(`ITERATIONS_MAX`); a server whose signature is wrong is refused.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

from odradek.model.errors import OdradekError
from odradek.security.sasl.scram import ITERATIONS_MIN, SCRAM_HASHES

# Kafka stores at most 16,384 iterations; a million takes about half a second.
ITERATIONS_MAX: Final = 1_000_000
_TOKEN: Final = ",tokenauth=true"
_GS2_HEADER: Final = "n,,"  # no channel binding, no authorization identity


class ScramError(OdradekError):
    """The server refuses, or its message violates the protocol."""


class ScramExchange:
    """One SCRAM authentication: `first`, `final`, `verify` in this order."""

    def __init__(
        self, mechanism: str, user: str, password: str, *, nonce: str, is_token: bool = False
    ) -> None:
        """`is_token`: user name and password are the id and the HMAC of a delegation token."""
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}{_TOKEN if is_token else ''}"
        self._server_signature = b""

    def first(self) -> bytes:
        """The client-first-message: user name and client nonce."""
        return (_GS2_HEADER + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """The client-final-message with the proof.

        Raises:
            ScramError: the server refuses, or its challenge is invalid.
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
            raise ScramError("the challenge does not extend the client's nonce")
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
        """Check the server's signature in the server-final-message.

        Raises:
            ScramError: the server refuses, or the signature is missing or wrong.
        """
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramError(fields["e"])
        try:
            signature = base64.b64decode(fields["v"], validate=True)
        except (KeyError, binascii.Error):
            raise ScramError("the last message has no signature") from None
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the server's signature is wrong: it does not know the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = bytes(message).decode()
    except UnicodeDecodeError:
        raise ScramError("a message that is not UTF-8") from None
    fields = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ScramError(f"a message with {name[:40]!r} instead of name=value")
        fields[name] = value
    return fields
