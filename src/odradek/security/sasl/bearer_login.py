"""How a client gets its bearer token, as Kafka's login callback handlers do.

`OAuthBearerUnsecuredLoginCallbackHandler` makes a token without a signature from the options of the
login module (`unsecuredLoginStringClaim_sub="alice"`), which only brokers for tests accept.
`OAuthBearerLoginCallbackHandler` sends the client credentials (RFC 6749, section 4.4) among these
options to an identity provider.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError

_PREFIX: Final = "unsecuredLogin"
_STRING, _NUMBER, _LIST = (f"{_PREFIX}{kind}Claim_" for kind in ("String", "Number", "List"))
_LIFETIME: Final = f"{_PREFIX}LifetimeSeconds"
_SUBJECT: Final = f"{_PREFIX}PrincipalClaimName"
_LIFETIME_S: Final = 3600
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class BearerLoginError(OdradekError):
    """There is no token. The text has no credentials."""


class TokenRequest(NamedTuple):
    """What is sent to the token endpoint."""

    headers: dict[str, str]
    body: bytes


def is_unsecured(options: Mapping[str, str]) -> bool:
    """Whether the options of the login module have the claims of an unsecured token."""
    return any(name.startswith((_STRING, _NUMBER, _LIST)) for name in options)


def unsecured_token(options: Mapping[str, str], wall_ms: WallMs) -> str:
    """A token without a signature, with the claims of the options.

    Raises:
        BearerLoginError: a number is not one, or the claim with the subject is missing.
    """
    claims: dict[str, Any] = {}
    for name, value in options.items():
        if name.startswith(_STRING):
            claims[name.removeprefix(_STRING)] = value
        elif name.startswith(_NUMBER):
            claims[name.removeprefix(_NUMBER)] = _number(name, value)
        elif name.startswith(_LIST):  # its first character separates the values
            claims[name.removeprefix(_LIST)] = value[1:].split(value[0]) if value else []
    subject = options.get(_SUBJECT, "sub")
    if not isinstance(claims.get(subject), str):
        raise BearerLoginError(f"the login module has no option {_STRING}{subject}")
    lifetime_s = _number(_LIFETIME, options.get(_LIFETIME, str(_LIFETIME_S)))
    issued_s = wall_ms / 1000
    claims = {"iat": issued_s, "exp": issued_s + lifetime_s} | claims
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def subject_of(options: Mapping[str, str]) -> str | None:
    """The subject of an unsecured token; None: the options do not say it."""
    return options.get(_STRING + options.get(_SUBJECT, "sub"))


def token_request(options: Mapping[str, str]) -> TokenRequest:
    """The request for a token with the client credentials of the options.

    Raises:
        BearerLoginError: there are none.
    """
    missing = [name for name in ("clientId", "clientSecret") if not options.get(name)]
    if missing:
        raise BearerLoginError(f"the login module has no option {' and no '.join(missing)}")
    credentials = f"{options['clientId']}:{options['clientSecret']}".encode()
    fields = {"grant_type": "client_credentials"}
    if options.get("scope"):
        fields["scope"] = options["scope"]
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(credentials).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return TokenRequest(headers, urlencode(fields).encode())


def token_in(response: bytes) -> str:
    """The token in the response of a token endpoint.

    Raises:
        BearerLoginError: there is none.
    """
    try:
        found = json.loads(response)
    except ValueError:
        raise BearerLoginError("the response is not JSON") from None
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise BearerLoginError("the response has no access_token")
    return checked(token)


def checked(token: str) -> str:
    """The token, if it is one that can be sent.

    Raises:
        BearerLoginError: it is not.
    """
    text = token.strip()
    if not _TOKEN.fullmatch(text):
        raise BearerLoginError("there is no bearer token alone")
    return text


def expires_ms(token: str) -> WallMs | None:
    """When a token expires, by its claim `exp`; None: it does not say it."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return WallMs(int(claims["exp"] * 1000))
    except (IndexError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BearerLoginError(f"the login module's option {name} must be a number") from None


def _encoded(part: Mapping[str, Any]) -> str:
    text = json.dumps(part, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")
