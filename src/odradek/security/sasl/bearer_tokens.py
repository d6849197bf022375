"""Validators of bearer tokens: JSON Web Tokens (RFC 7519) with or without a signature.

`JwksTokens` verifies signatures with the public keys of a JSON Web Key Set (RFC 7517). It needs
the package PyJWT. The type of the key that the token's `kid` names determines the algorithms, never
the token: so `none`, and an HMAC with a public key as its secret, are refused.

`UnsecuredTokens` accepts whatever a client writes into a token, and is for tests.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.model.extras import install
from odradek.security.sasl.oauthbearer import BearerToken, TokenRefused

_RSA_BITS_MIN: Final = 2048
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA"}),
}
_PART: Final = re.compile(r"[A-Za-z0-9_-]+")
_SECONDS_MAX: Final = 1 << 53

Claims = Mapping[str, object]
UNKNOWN_KEY: Final = "the token names no key of the key set"


class JwksError(OdradekError):
    """The key set cannot be used, or the package that verifies signatures is not installed."""


class ClaimRules(NamedTuple):
    """What a token's claims have to be; no audiences and None for the issuer: not checked."""

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    skew_ms: int = 30_000
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class UnsecuredTokens:
    """Accepts tokens without a signature (algorithm `none`)."""

    def __init__(
        self, rules: ClaimRules, wall_ms: Callable[[], WallMs], *, anybody_may_claim_any_name: bool
    ) -> None:
        """Raises:
        ValueError: it is not stated that every client may use every name.
        """
        if not anybody_may_claim_any_name:
            raise ValueError("tokens without a signature prove nothing: use a key set")
        self._rules = rules
        self._wall_ms = wall_ms

    def __call__(self, token: str) -> BearerToken | TokenRefused:
        header, payload, signature = _parts(token)
        if header is None or header.get("alg") != "none" or signature:
            return TokenRefused("the token is not one without a signature")
        return check_claims(_object(payload), self._rules, self._wall_ms())


class JwksTokens:
    """Accepts tokens that are signed with a key of a JSON Web Key Set."""

    def __init__(self, jwks: str, rules: ClaimRules, wall_ms: Callable[[], WallMs]) -> None:
        """`jwks` is the JSON text.

        Raises:
            JwksError: it has no key that can be used, or PyJWT is not installed.
        """
        try:
            import jwt  # noqa: PLC0415 - an extra
            import jwt.algorithms  # noqa: PLC0415
        except ImportError:
            raise JwksError(
                f"OAUTHBEARER with signed tokens needs the package PyJWT: {install('oauth')}"
            ) from None
        self._jwt: Any = jwt
        self._keys = dict(_keys(jwt, jwks))
        if not self._keys:
            raise JwksError("the key set has no RSA, EC or Ed25519 key for signatures with a kid")
        self._rules = rules
        self._wall_ms = wall_ms

    def __call__(self, token: str) -> BearerToken | TokenRefused:
        header, _, _ = _parts(token)
        if header is None:
            return TokenRefused("the token is not a signed JSON Web Token")
        kid, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(kid, str) or kid not in self._keys:
            return TokenRefused(UNKNOWN_KEY)
        key, algorithms = self._keys[kid]
        if not isinstance(algorithm, str) or algorithm not in algorithms or "crit" in header:
            return TokenRefused("the token's header does not fit the key that it names")
        try:
            payload = self._jwt.PyJWS().decode(token, key=key, algorithms=[algorithm])
        except (self._jwt.PyJWTError, ValueError, TypeError):
            return TokenRefused("the token's signature is wrong")
        return check_claims(_object(payload), self._rules, self._wall_ms())


def check_claims(
    claims: Claims | None, rules: ClaimRules, wall_ms: WallMs
) -> BearerToken | TokenRefused:
    """The token of these claims, if they keep the rules at this time."""
    if claims is None:
        return TokenRefused("the token's claims are not a JSON object")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject:
        return TokenRefused(f"the token has no {rules.subject_claim}")
    fault = _fault_of_times(claims, rules.skew_ms, wall_ms) or _fault_of_origin(claims, rules)
    expires_ms = _millis(claims.get("exp"))
    if fault is not None or expires_ms is None:
        return TokenRefused(fault or "the token has no exp")
    scopes = claims.get(rules.scope_claim, "")
    if isinstance(scopes, str):
        scopes = scopes.split()
    if not isinstance(scopes, list) or not all(isinstance(each, str) for each in scopes):
        return TokenRefused(f"the token's {rules.scope_claim} is neither a text nor a list")
    return BearerToken(subject, frozenset(scopes), WallMs(expires_ms))


def _fault_of_times(claims: Claims, skew_ms: int, wall_ms: WallMs) -> str | None:
    expires_ms, issued_ms = _millis(claims.get("exp")), _millis(claims.get("iat"))
    if expires_ms is None or issued_ms is None:
        return "the token has no exp, or no iat"
    if wall_ms >= expires_ms + skew_ms:
        return "the token has expired"
    not_before_ms = _millis(claims.get("nbf", 0))
    if not_before_ms is None or wall_ms < max(issued_ms, not_before_ms) - skew_ms:
        return "the token is not valid yet"
    return None


def _fault_of_origin(claims: Claims, rules: ClaimRules) -> str | None:
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        return "the token has another issuer"
    if not rules.audiences:
        return None
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if rules.audiences.isdisjoint(each for each in named if isinstance(each, str)):
        return "the token is for another audience"
    return None


def _millis(seconds: object) -> int | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return int(seconds * 1000) if abs(seconds) < _SECONDS_MAX else None


# --------------------------------------------------------------------------------------- parsing


def _parts(token: str) -> tuple[Claims | None, bytes | None, str]:
    """The header, the undecoded claims and the signature of a token in the compact form."""
    parts = token.split(".")
    if len(parts) != 3:
        return None, None, ""
    return _object(_bytes_of(parts[0])), _bytes_of(parts[1]), parts[2]


def _bytes_of(part: str) -> bytes | None:
    if not _PART.fullmatch(part):
        return None
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        return None


def _object(text: str | bytes | None) -> dict[str, object] | None:
    """A JSON object; None: it is not one."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _keys(jwt: Any, jwks: str) -> list[tuple[str, tuple[Any, frozenset[str]]]]:
    """The usable keys by kid, each with the algorithms of its type."""
    whole = _object(jwks)
    entries = whole.get("keys") if whole is not None else None
    if not isinstance(entries, list):
        raise JwksError("the key set is not a JSON object with keys")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str):
            continue
        algorithms = _algorithms_of(entry)
        if algorithms and entry.get("use", "sig") == "sig":
            found.append((entry["kid"], (_public_key(jwt, entry), algorithms)))
    if len(dict(found)) < len(found):
        raise JwksError("the key set has two keys with one kid")
    return found


def _algorithms_of(entry: Claims) -> frozenset[str]:
    kind, curve = entry.get("kty"), entry.get("crv")
    if kind == "RSA":
        algorithms = _RSA
    elif kind in ("EC", "OKP"):
        algorithms = _CURVES.get(str(curve), frozenset())
    else:
        algorithms = frozenset()
    return algorithms & {str(entry["alg"])} if "alg" in entry else algorithms


def _public_key(jwt: Any, entry: Mapping[str, Any]) -> Any:
    kinds = {
        "RSA": jwt.algorithms.RSAAlgorithm,
        "EC": jwt.algorithms.ECAlgorithm,
        "OKP": jwt.algorithms.OKPAlgorithm,
    }
    public = {name: value for name, value in entry.items() if name not in ("d", "alg")}
    try:
        key = kinds[entry["kty"]].from_jwk(dict(public))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        raise JwksError(f"the key {entry['kid']!r} of the key set cannot be read") from None
    if entry["kty"] == "RSA" and key.key_size < _RSA_BITS_MIN:
        raise JwksError(f"the key {entry['kid']!r} has fewer than {_RSA_BITS_MIN} bits")
    return key
