"""Requests about delegation tokens, on one broker."""

import pytest
from tests.unit.broker.live import play

from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
REQUESTS = [
    CreateDelegationTokenRequest(max_lifetime_ms=-1),
    RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=-1),
    ExpireDelegationTokenRequest(hmac=b"h", expiry_time_period_ms=-1),
    DescribeDelegationTokenRequest(owners=None),
]


class Allowed:
    """An authorizer that allows what is listed."""

    version = 0

    def __init__(self, *allowed):
        self.allowed = allowed

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return (operation, resource_type, name) in self.allowed


def peer_of(live, user, protocol="SASL_PLAINTEXT", *, is_delegation_token=False):
    peer = live.peer()
    session = peer.connection.session
    session.principal, session.security_protocol = f"User:{user}", protocol
    session.is_delegation_token = is_delegation_token
    return peer


def create(*renewers, owner=None, kind="User", lifetime_ms=-1):
    return CreateDelegationTokenRequest(
        owner_principal_type=owner and kind,
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=k, principal_name=n) for k, n in renewers],
        max_lifetime_ms=lifetime_ms,
    )


def describe(*owners):
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=o) for o in owners]
    return DescribeDelegationTokenRequest(owners=named)


def play_with_secret(story, **properties):
    play(story, delegation_token_secret_key="s3cret", **properties)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize(
    ("user", "protocol", "is_token"),
    [("a", "PLAINTEXT", False), ("ANONYMOUS", "SSL", False), ("a", "SASL_SSL", True)],
)
def test_a_connection_that_does_not_authenticate_by_itself_is_refused(
    request_, user, protocol, is_token
):
    async def story(live):
        peer = peer_of(live, user, protocol, is_delegation_token=is_token)
        assert (await peer.ask(request_)).error_code == NOT_ALLOWED

    play_with_secret(story)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_without_the_secret_there_are_no_tokens(request_, protocol):
    async def story(live):
        assert (await peer_of(live, "a", protocol).ask(request_)).error_code == DISABLED

    play(story)


def test_the_former_name_of_the_secret_is_used_too():
    async def story(live):
        answer = await peer_of(live, "a").ask(create())
        assert answer.error_code == 0
        assert len(answer.hmac) == 64

    play(story, delegation_token_master_key="s3cret")


def test_a_token_is_created_described_renewed_and_expired():
    async def story(live):
        peer = peer_of(live, "a")
        made = await peer.ask(create(("User", "r"), lifetime_ms=9_000))
        assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "a")
        assert made.token_requester_principal_name == "a"
        assert made.max_timestamp_ms == made.issue_timestamp_ms + 9_000
        assert made.expiry_timestamp_ms == made.issue_timestamp_ms + 1_000
        (told,) = (await peer.ask(describe("a"))).tokens
        assert (told.token_id, told.hmac) == (made.token_id, made.hmac)
        assert (told.expiry_timestamp, told.max_timestamp, told.issue_timestamp) == (
            made.expiry_timestamp_ms, made.max_timestamp_ms, made.issue_timestamp_ms
        )  # fmt: skip
        assert [renewer.principal_name for renewer in told.renewers] == ["r"]
        renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=60_000)
        renewed = await peer_of(live, "r").ask(renewal)
        assert renewed.expiry_timestamp_ms == made.max_timestamp_ms
        refused = await peer_of(live, "x").ask(renewal)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert refused.expiry_timestamp_ms == -1
        end = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert (await peer.ask(end)).error_code == 0
        assert (await peer.ask(end)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert (await peer.ask(describe("a"))).tokens == []

    play_with_secret(story, delegation_token_expiry_time_ms=1_000)


def test_for_another_owner_a_client_needs_the_right_to_create_tokens():
    async def story(live):
        peer = peer_of(live, "req")
        peer.connection.session.authorizer = Allowed(
            (AclOperation.CREATE_TOKENS, ResourceType.USER, "User:o")
        )
        made = await peer.ask(create(owner="o"))
        assert (made.error_code, made.principal_name) == (0, "o")
        assert made.token_requester_principal_name == "req"
        refused = await peer.ask(create(owner="p"))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_id, refused.hmac) == ("p", "", b"")
        assert (await peer.ask(create(owner="req"))).error_code == 0
        # The requester sees the token, and may not renew it.
        assert len((await peer.ask(describe("req"))).tokens) == 2
        renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1)
        assert (await peer.ask(renewal)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

    play_with_secret(story)


def test_a_renewer_that_is_no_user_is_refused():
    async def story(live):
        answer = await peer_of(live, "a").ask(create(("User", "r"), ("Group", "g")))
        assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE

    play_with_secret(story)


def test_tokens_are_described_to_whom_they_concern_and_who_has_the_right():
    async def story(live):
        ids = {}
        for owner, renewer in (("a", "r"), ("b", "r"), ("c", "s")):
            made = await peer_of(live, owner).ask(create(("User", renewer)))
            ids[made.token_id] = owner

        async def seen(user, request, *allowed):
            peer = peer_of(live, user)
            peer.connection.session.authorizer = Allowed(*allowed)
            return sorted(ids[token.token_id] for token in (await peer.ask(request)).tokens)

        all_tokens = DescribeDelegationTokenRequest(owners=None)
        on_token = (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, next(iter(ids)))
        on_owner = (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:c")
        assert await seen("a", all_tokens) == ["a"]
        assert await seen("r", all_tokens) == ["a", "b"]
        assert await seen("r", describe("a", "c")) == ["a"]
        assert await seen("r", describe("r")) == ["a", "b"]
        assert await seen("r", describe()) == []
        assert await seen("x", all_tokens) == []
        assert await seen("x", all_tokens, on_token) == ["a"]
        assert await seen("x", all_tokens, on_owner) == ["c"]
        assert await seen("x", describe("b"), on_token, on_owner) == []

    play_with_secret(story)


def test_expired_tokens_are_removed_at_the_interval():
    async def story(live):
        peer = peer_of(live, "a")
        await peer.ask(create(lifetime_ms=500))
        assert len((await peer.ask(describe("a"))).tokens) == 1
        await live.until(lambda: not live.broker.delegation_tokens.all())
        assert (await peer.ask(describe("a"))).tokens == []

    play_with_secret(story, delegation_token_expiry_check_interval_ms=1_000)


def test_tokens_are_there_after_a_restart():
    async def story(live):
        made = await peer_of(live, "a").ask(create())
        await live.restart()
        (found,) = (await peer_of(live, "a").ask(describe("a"))).tokens
        assert found.hmac == made.hmac

    play_with_secret(story)
