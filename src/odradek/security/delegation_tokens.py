"""Delegation tokens (KIP-48): who may do what with one, and when it expires.

A token authenticates its bearer as its owner, by SCRAM: the user name is the token's id, the
password its HMAC in base64. The HMAC is computed from the id and from a secret that all brokers
have (`delegation.token.secret.key`), and is not stored.

A refusal is returned as an `ErrorCode`. Principals are written with their type: `User:alice`.
"""

import base64
import hashlib
import hmac
from collections.abc import Collection
from typing import Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.model.errors import ErrorCode
from odradek.security.sasl.salt import salt_of
from odradek.security.sasl.scram import ITERATIONS_MIN, SCRAM_HASHES, StoredCredential, derive

_HMAC: Final = "sha512"
_USER: Final = "User:"


class DelegationToken(NamedTuple):
    """A token as it is stored."""

    token_id: str
    owner: str
    requester: str  # who created it; another principal than the owner needs User CreateTokens
    renewers: tuple[str, ...]
    issued_ms: WallMs
    expires_ms: WallMs  # a renewal moves it
    expires_ms_max: WallMs  # no renewal moves `expires_ms` beyond it

    def has_expired(self, wall_ms: WallMs) -> bool:
        return min(self.expires_ms, self.expires_ms_max) < wall_ms

    def is_of(self, principal: str) -> bool:
        """Whether a principal is its owner, requested it, or may renew it."""
        return principal in (self.owner, self.requester, *self.renewers)


class TokenOptions(NamedTuple):
    """The options `delegation.token.*` of a broker."""

    secret: str  # delegation.token.secret.key
    lifetime_ms: int  # delegation.token.max.lifetime.ms
    renewal_ms: int  # delegation.token.expiry.time.ms

    def __repr__(self) -> str:
        return f"TokenOptions(lifetime_ms={self.lifetime_ms}, renewal_ms={self.renewal_ms})"


class WantedToken(NamedTuple):
    """What a client requests."""

    owner: str
    requester: str
    renewers: tuple[str, ...] = ()
    lifetime_ms: int = -1  # 0 or less: the longest that is allowed


def hmac_of(secret: str, token_id: str) -> bytes:
    """The secret of a token, as clients receive it."""
    return hmac.digest(secret.encode(), token_id.encode(), _HMAC)


def password_of(mac: bytes) -> str:
    """The password with which a client authenticates: the HMAC in base64."""
    return base64.b64encode(mac).decode()


def scram_credential(secret: str, mechanism: str, token_id: str) -> StoredCredential:
    """The SCRAM credential of a token. PBKDF2 takes milliseconds.

    The salt is derived, so that it is the same on all brokers and at every login.
    """
    salt = salt_of(hmac_of(secret, f"salt of {token_id}"))
    password = password_of(hmac_of(secret, token_id)).encode()
    salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password, salt, ITERATIONS_MIN)
    return derive(mechanism, salt, salted, ITERATIONS_MIN)


def check_renewers(renewers: Collection[str]) -> ErrorCode:
    """Only users can be renewers."""
    are_users = all(renewer.startswith(_USER) for renewer in renewers)
    return ErrorCode.NONE if are_users else ErrorCode.INVALID_PRINCIPAL_TYPE


def created(
    token_id: str, wanted: WantedToken, options: TokenOptions, wall_ms: WallMs
) -> DelegationToken:
    """A new token, issued now."""
    lifetime_ms = wanted.lifetime_ms
    allowed_ms = options.lifetime_ms
    expires_ms_max = wall_ms + (min(lifetime_ms, allowed_ms) if lifetime_ms > 0 else allowed_ms)
    return DelegationToken(
        token_id=token_id,
        owner=wanted.owner,
        requester=wanted.requester,
        renewers=wanted.renewers,
        issued_ms=wall_ms,
        expires_ms=WallMs(min(expires_ms_max, wall_ms + options.renewal_ms)),
        expires_ms_max=WallMs(expires_ms_max),
    )


def renewed(
    token: DelegationToken, requester: str, period_ms: int, options: TokenOptions, wall_ms: WallMs
) -> DelegationToken | ErrorCode:
    """The token with a later end; a negative period is `delegation.token.expiry.time.ms`."""
    if not _may_change(token, requester):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if token.has_expired(wall_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return _ending(token, wall_ms + (options.renewal_ms if period_ms < 0 else period_ms))


def expired(
    token: DelegationToken, requester: str, period_ms: int, wall_ms: WallMs
) -> DelegationToken | ErrorCode | None:
    """The token with its end after this period; None: it is removed, for a negative period."""
    if not _may_change(token, requester):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if period_ms < 0:
        return None
    if token.has_expired(wall_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return _ending(token, wall_ms + period_ms)


def _may_change(token: DelegationToken, principal: str) -> bool:
    return principal in (token.owner, *token.renewers)


def _ending(token: DelegationToken, expires_ms: int) -> DelegationToken:
    return token._replace(expires_ms=WallMs(min(token.expires_ms_max, expires_ms)))
