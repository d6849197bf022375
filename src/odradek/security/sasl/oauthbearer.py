"""The server's side of OAUTHBEARER (RFC 7628): a bearer token in one message.

    n,a=alice,^Aauth=Bearer TOKEN^Atraceid=123^A^A        (^A is the byte 1)

The validator is given: it decides whom the token names and whether it is valid. A refused token is
answered with a JSON error as a challenge; the client confirms it with ^A, and the exchange fails.
"""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.security.sasl.step import Challenge, Done, Failed, Step, quoted

_MESSAGE: Final = re.compile(
    rb"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class BearerToken(NamedTuple):
    """A valid token: its subject without a type, its scopes, and when it expires."""

    subject: str
    scopes: frozenset[str]
    expires_ms: WallMs


class TokenRefused(NamedTuple):
    """Why a token is refused, for the log and without the token; and what the client receives."""

    reason: str
    status: str = "invalid_token"
    scope: str | None = None

    def json(self) -> str:
        """The error of RFC 7628, section 3.2.2."""
        error = {"status": self.status}
        if self.scope is not None:
            error["scope"] = self.scope
        return json.dumps(error, separators=(",", ":"))


Validate = Callable[[str], BearerToken | TokenRefused]


class OAuthBearerServer:
    """The server's side of one OAUTHBEARER exchange."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refused: TokenRefused | None = None

    def step(self, token: bytes) -> Step:
        if self._refused is not None:
            return Failed(self._refused.reason, self._refused.json())
        match = _MESSAGE.fullmatch(token)
        if match is None:
            return Failed("the OAUTHBEARER message is invalid")
        pairs = [pair.split("=", 1) for pair in match["pairs"].decode().split("\1")[:-1]]
        values = dict(map(tuple, pairs))
        if len(values) < len(pairs):
            return Failed("the OAUTHBEARER message has a key twice")
        auth = _AUTH.fullmatch(values.pop("auth", ""))
        if auth is None or auth[1].lower() != "bearer":
            return Failed("the OAUTHBEARER message has no 'auth' with a bearer token")
        authorization_id = (match["authzid"] or b"").decode()
        return self._checked(auth[2], authorization_id, values)

    def _checked(self, text: str, authorization_id: str, extensions: dict[str, str]) -> Step:
        found = self._validate(text)
        if isinstance(found, TokenRefused):
            self._refused = found
            return Challenge(found.json().encode())
        name = authorization_id.replace("=2C", ",").replace("=3D", "=")
        if name not in ("", found.subject):
            return Failed(
                f"the token of {quoted(found.subject)} came with the authorization id "
                f"{quoted(name)}",
                "Authentication failed: Client requested an authorization id "
                f"({name}) that is different from the token's principal name ({found.subject})",
            )
        return Done(f"User:{found.subject}", expires_ms=found.expires_ms, extensions=extensions)
