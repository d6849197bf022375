"""Admin requests about delegation tokens. Principals are written with their type: `User:alice`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from odradek.client.admin.topics import any_broker
from odradek.client.cluster import Cluster
from odradek.client.kafka_errors import check


class Token(NamedTuple):
    """A delegation token as its owner sees it. The HMAC in base64 is the password of a login."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    expires_ms_max: int

    def __repr__(self) -> str:
        return f"Token({self.token_id!r} of {self.owner})"


async def create_token(
    cluster: Cluster, *, owner: str | None, renewers: Sequence[str], lifetime_ms: int
) -> Token:
    """Create a token; the owner None is the client itself.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import create_delegation_token as wire  # noqa: PLC0415

    kind, name = _split(owner) if owner is not None else (None, None)
    request = wire.CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[
            wire.CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(_split, renewers)
        ],
        max_lifetime_ms=lifetime_ms,
    )
    broker = await any_broker(cluster)
    response = await broker.request(request, wire.CreateDelegationTokenResponse)
    check(response.error_code, None)
    return Token(
        response.token_id,
        bytes(response.hmac),
        _owner(response),
        _requester(response),
        tuple(renewers),
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
    )


async def renew_token(cluster: Cluster, mac: bytes, period_ms: int) -> int:
    """Let a token expire later. Returns when it expires.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import renew_delegation_token as wire  # noqa: PLC0415

    request = wire.RenewDelegationTokenRequest(hmac=mac, renew_period_ms=period_ms)
    broker = await any_broker(cluster)
    response = await broker.request(request, wire.RenewDelegationTokenResponse)
    check(response.error_code, None)
    return response.expiry_timestamp_ms


async def expire_token(cluster: Cluster, mac: bytes, period_ms: int) -> int:
    """Let a token expire after a period; a negative one removes it. Returns when it expires.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import expire_delegation_token as wire  # noqa: PLC0415

    request = wire.ExpireDelegationTokenRequest(hmac=mac, expiry_time_period_ms=period_ms)
    broker = await any_broker(cluster)
    response = await broker.request(request, wire.ExpireDelegationTokenResponse)
    check(response.error_code, None)
    return response.expiry_timestamp_ms


async def describe_tokens(cluster: Cluster, owners: Sequence[str] | None) -> list[Token]:
    """The tokens of these principals, or (None) all, that the client may see.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import describe_delegation_token as wire  # noqa: PLC0415

    named = None
    if owners is not None:
        named = [
            wire.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_split, owners)
        ]
    request = wire.DescribeDelegationTokenRequest(owners=named)
    broker = await any_broker(cluster)
    response = await broker.request(request, wire.DescribeDelegationTokenResponse)
    check(response.error_code, None)
    return [
        Token(
            token.token_id,
            bytes(token.hmac),
            _owner(token),
            _requester(token),
            tuple(f"{r.principal_type}:{r.principal_name}" for r in token.renewers),
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
        )
        for token in response.tokens
    ]


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _owner(token: Any) -> str:
    return f"{token.principal_type}:{token.principal_name}"


def _requester(token: Any) -> str:
    return f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
