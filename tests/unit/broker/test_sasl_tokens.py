"""Logging in with delegation tokens, on the SASL listener of a whole broker."""

import pytest
from tests.unit.broker.live import play
from tests.unit.broker.test_sasl import OPTIONS, is_refused, log_in, set_password

from odradek.client.security.protocol import AuthenticationError
from odradek.model.errors import ErrorCode
from odradek.security.delegation_tokens import password_of
from odradek.security.sasl.scram import SCRAM_HASHES
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

SCRAM = "SCRAM-SHA-256"


def play_with_tokens(story, **properties):
    play(story, **OPTIONS, **{"delegation.token.secret.key": "s3cret"}, **properties)


async def created(live, lifetime_ms=-1):
    peer = await log_in(live, "PLAIN")
    made = await peer.ask(CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms))
    assert made.error_code == 0
    return made


async def log_in_with(live, made, mechanism=SCRAM):
    return await log_in(live, mechanism, made.token_id, password_of(made.hmac), owner="alice")


async def refuses(live, *credentials):
    with pytest.raises(AuthenticationError, match="invalid credentials with SASL mechanism"):
        await log_in(live, SCRAM, *credentials, owner="alice")
    return True


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_the_bearer_of_a_token_acts_as_its_owner(mechanism):
    async def story(live):
        peer = await log_in_with(live, await created(live), mechanism)
        assert peer.connection.session.is_delegation_token

    play_with_tokens(story)


def test_with_a_token_no_other_is_created():
    async def story(live):
        made = await created(live)
        peer = await log_in_with(live, made)
        for request in (
            CreateDelegationTokenRequest(max_lifetime_ms=-1),
            ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1),
        ):
            answer = await peer.ask(request)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    play_with_tokens(story)


def test_a_wrong_hmac_and_an_unknown_token_are_refused():
    async def story(live):
        made = await created(live)
        assert await refuses(live, made.token_id, password_of(b"another"))
        assert await refuses(live, "another", password_of(made.hmac))
        # A token is no user, and a user is no token.
        await set_password(live, SCRAM, "secret")
        assert await is_refused(live, SCRAM, made.token_id, password_of(made.hmac))
        assert await refuses(live, "alice", "secret")

    play_with_tokens(story)


def test_without_the_secret_no_token_is_accepted():
    async def story(live):
        made = await created(live)
        await live.restart(**{"delegation.token.secret.key": ""})
        assert await refuses(live, made.token_id, password_of(made.hmac))

    play_with_tokens(story)


def test_a_token_that_was_expired_is_refused():
    async def story(live):
        made = await created(live)
        peer = await log_in(live, "PLAIN")
        await peer.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1))
        assert await refuses(live, made.token_id, password_of(made.hmac))

    play_with_tokens(story)


def test_a_token_that_has_expired_is_refused_and_closes_the_connections_that_used_it(caplog):
    async def story(live):
        made = await created(live, lifetime_ms=2_000)
        peer = await log_in_with(live, made)
        await live.until(lambda: live.clock.wall_ms() > made.expiry_timestamp_ms + 100)
        assert await refuses(live, made.token_id, password_of(made.hmac))
        assert len(live.broker.delegation_tokens.all()) == 1  # not removed yet
        peer.send(DescribeClusterRequest())
        assert peer.closed

    play_with_tokens(story)
    assert "the credential of 'User:alice' has expired" in caplog.text
    assert "the session of 'User:alice' has expired" in caplog.text


def test_no_log_line_has_the_hmac_or_the_secret(caplog):
    async def story(live):
        made = await created(live)
        await log_in_with(live, made)
        await refuses(live, made.token_id, "wrong")
        hmacs.append(password_of(made.hmac))

    hmacs = []
    caplog.set_level("DEBUG")
    play_with_tokens(story)
    assert hmacs[0] not in caplog.text
    assert "s3cret" not in caplog.text
