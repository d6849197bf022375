"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

    client  n,,n=alice,r=CNONCE
    server  r=CNONCE SNONCE,s=SALT,i=4096
    client  c=biws,r=CNONCE SNONCE,p=PROOF
    server  v=SIGNATURE

As in Kafka there is no channel binding: a client-first-message begins with `n,`. A client
authenticates with a delegation token if it sends the extension `tokenauth=true`: the user name is
the token's id, the password its HMAC in base64.

The server keeps only what cannot be used to log in (`StoredCredential`). For an unknown user the
exchange goes on with a salt derived from the name, in the form of Java's salts, so its messages do
not show whether a user exists; the last one has the error of a wrong password. Users whose
credential has other iterations than `ITERATIONS_MIN` can be told apart from unknown ones by that
number.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.security.sasl.plain import OTHER_AUTHORIZATION_ID
from odradek.security.sasl.salt import salt_of
from odradek.security.sasl.step import Challenge, Computation, Done, Failed, Step, quoted

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384

_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = rb"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_BASE64: Final = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_CLIENT_FIRST: Final = re.compile(
    rb"(?P<gs2>n,(?:a=(?P<authzid>%b))?,)"
    rb"(?P<bare>n=(?P<name>%b),r=(?P<nonce>%b)(?P<extensions>%b))"
    % (_NAME, _NAME, _NONCE, _EXTENSIONS)
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<signed>c=(?P<binding>%b),r=(?P<nonce>%b)%b),p=(?P<proof>%b)"
    % (_BASE64, _NONCE, _EXTENSIONS, _BASE64)
)


class CredentialError(OdradekError):
    """A stored credential that cannot be parsed. Its text contains nothing of the credential."""


class StoredCredential(NamedTuple):
    """What the server keeps of a password: neither it nor a proof can be derived from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"StoredCredential(iterations={self.iterations})"

    def text(self) -> str:
        """As in the store, and as Kafka writes it."""
        salt, stored_key, server_key = (base64.b64encode(each).decode() for each in self[:3])
        return (
            f"salt={salt},stored_key={stored_key},server_key={server_key},"
            f"iterations={self.iterations}"
        )


class TokenCredential(NamedTuple):
    """A delegation token: the principal it acts for, its credential, and when it expires."""

    owner: str
    credential: StoredCredential
    expires_ms: WallMs


def derive(
    mechanism: str, salt: bytes, salted_password: bytes, iterations: int
) -> StoredCredential:
    """The credential of a password that is already salted (PBKDF2)."""
    algorithm = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    server_key = hmac.digest(salted_password, b"Server Key", algorithm)
    return StoredCredential(salt, stored_key, server_key, iterations)


def parse_credential(mechanism: str, text: str) -> StoredCredential:
    """The credential in a user's options in the store.

    Raises:
        CredentialError: a field is missing or invalid.
    """
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except (KeyError, ValueError, binascii.Error):
        raise CredentialError(
            f"the {mechanism} credential is not salt, stored_key, server_key and iterations"
        ) from None
    size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
    if not salt or len(stored_key) != size or len(server_key) != size:
        raise CredentialError(f"the {mechanism} credential has a key of another length than {size}")
    return StoredCredential(salt, stored_key, server_key, iterations)


class _Exchange(NamedTuple):
    """What the client-first-message has fixed."""

    user: str
    is_token: bool
    is_known: bool
    done: Done
    credential: StoredCredential
    binding: bytes  # what `c=` has to be, in base64
    nonce: bytes
    messages: bytes  # client-first-bare and server-first


class ScramServer:
    """The server's side of one SCRAM exchange."""

    def __init__(
        self,
        mechanism: str,
        *,
        credentials: Callable[[str], StoredCredential | None],
        tokens: Callable[[str], TokenCredential | None],
        nonce: str,
        decoy_secret: bytes,
    ) -> None:
        """`nonce` is drawn by the caller for this exchange; `decoy_secret` is the same for all
        exchanges with all brokers of a cluster, because the salt of an unknown user must not change
        from login to login.
        `tokens` is called in another thread than `credentials`.
        """
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._credentials = credentials
        self._tokens = tokens
        self._server_nonce = nonce.encode()
        self._decoy_secret = decoy_secret
        self._exchange: _Exchange | None = None
        self._has_ended = False

    def step(self, token: bytes) -> Step | Computation:
        if self._has_ended:
            return Failed("a message after the end of the SCRAM exchange")
        step = self._first(token) if self._exchange is None else self._final(token, self._exchange)
        self._has_ended = not isinstance(step, Challenge | Computation)
        return step

    def _first(self, message: bytes) -> Step | Computation:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            return Failed("the client-first-message of SCRAM is invalid")
        user = _unescaped(match["name"])
        # Before the look-up: the error must not show whether the user exists.
        if match["authzid"] is not None and _unescaped(match["authzid"]) != user:
            return Failed(
                f"user {quoted(user)} requested another authorization id", OTHER_AUTHORIZATION_ID
            )
        extensions = dict(
            part.decode().split("=", 1) for part in match["extensions"].split(b",") if part
        )
        if extensions.get("tokenauth", "").lower() == "true":
            # The credential of a token may have to be derived: milliseconds of PBKDF2.
            return Computation(partial(self._challenge, match, user, is_token=True))
        return self._challenge(match, user, is_token=False)

    def _challenge(self, match: re.Match[bytes], user: str, *, is_token: bool) -> Step:
        credential, done = self._look_up(user, is_token=is_token)
        is_known = credential is not None
        credential = credential or self._decoy(user)
        if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
            return Failed(
                f"the {self._mechanism} credential of {quoted(user)} has {credential.iterations} "
                f"iterations; must be {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        nonce = match["nonce"] + self._server_nonce
        salt = base64.b64encode(credential.salt)
        answer = b"r=%b,s=%b,i=%d" % (nonce, salt, credential.iterations)
        self._exchange = _Exchange(
            user=user,
            is_token=is_token,
            is_known=is_known,
            done=done,
            credential=credential,
            binding=base64.b64encode(match["gs2"]),
            nonce=nonce,
            messages=match["bare"] + b"," + answer,
        )
        return Challenge(answer)

    def _look_up(self, user: str, *, is_token: bool) -> tuple[StoredCredential | None, Done]:
        if not is_token:
            return self._credentials(user), Done(f"User:{user}")
        token = self._tokens(user)
        if token is None:
            return None, Done("")
        done = Done(token.owner, expires_ms=token.expires_ms, is_delegation_token=True)
        return token.credential, done

    def _decoy(self, user: str) -> StoredCredential:
        """The credential of an unknown user: no password has it."""
        seed = hmac.digest(self._decoy_secret, user.encode(), self._hash)
        salt = salt_of(hmac.digest(seed, b"salt", self._hash))
        return StoredCredential(salt, seed, seed, ITERATIONS_MIN)

    def _final(self, message: bytes, exchange: _Exchange) -> Step:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            return Failed("the client-final-message of SCRAM is invalid")
        if not hmac.compare_digest(match["nonce"], exchange.nonce):
            return Failed("the nonce in the client-final-message is another one")
        if not hmac.compare_digest(match["binding"], exchange.binding):
            return Failed("the channel binding differs from the client-first-message")
        credential = exchange.credential
        signed = exchange.messages + b"," + match["signed"]
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        proof = base64.b64decode(match["proof"])
        # A proof of another length is compared like a wrong one.
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_proven = hmac.compare_digest(stored_key, credential.stored_key)
        if not is_proven or len(proof) != len(signature) or not exchange.is_known:
            kind = "delegation token" if exchange.is_token else "user"
            fault = "the proof is wrong for" if exchange.is_known else "there is no"
            return Failed(f"{fault} {kind} {quoted(exchange.user)} with {self._mechanism}")
        answer = base64.b64encode(hmac.digest(credential.server_key, signed, self._hash))
        return exchange.done._replace(token=b"v=" + answer)


def _unescaped(name: bytes) -> str:
    return name.decode().replace("=2C", ",").replace("=3D", "=")
