"""What may be done with delegation tokens, and when they expire."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.security.scram import ScramExchange
from odradek.model.clock import WallMs
from odradek.model.errors import ErrorCode
from odradek.security.delegation_tokens import (
    DelegationToken,
    TokenOptions,
    WantedToken,
    check_renewers,
    created,
    expired,
    hmac_of,
    password_of,
    renewed,
    scram_credential,
)
from odradek.security.sasl.scram import SCRAM_HASHES, ScramServer, TokenCredential
from odradek.security.sasl.step import Challenge, Done

OWNER, REQUESTER, RENEWER, OTHER = (
    f"User:{name}" for name in ("owner", "requester", "renewer", "x")
)
OPTIONS = TokenOptions(secret="s3cret", lifetime_ms=7_000, renewal_ms=1_000)
NOW = WallMs(1_000_000)
MISMATCH, EXPIRED = (
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    ErrorCode.DELEGATION_TOKEN_EXPIRED,
)


def token(expires_ms=NOW + 1_000, expires_ms_max=NOW + 7_000):
    return DelegationToken(
        "id", OWNER, REQUESTER, (RENEWER,), NOW, WallMs(expires_ms), WallMs(expires_ms_max)
    )


@pytest.mark.parametrize(
    ("lifetime_ms", "expires_ms", "expires_ms_max"),
    [(-1, 1_000, 7_000), (0, 1_000, 7_000), (500, 500, 500), (3_000, 1_000, 3_000),
     (7_001, 1_000, 7_000), (2**63 - 1, 1_000, 7_000)],
)  # fmt: skip
def test_a_new_token_ends_within_the_limits(lifetime_ms, expires_ms, expires_ms_max):
    made = created("id", WantedToken(OWNER, REQUESTER, (RENEWER,), lifetime_ms), OPTIONS, NOW)

    assert made == token(NOW + expires_ms, NOW + expires_ms_max)


def test_only_users_are_renewers():
    assert check_renewers([]) is ErrorCode.NONE
    assert check_renewers([OWNER, RENEWER]) is ErrorCode.NONE
    assert check_renewers([OWNER, "Group:g"]) is ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize("principal", [OWNER, RENEWER])
def test_the_owner_and_its_renewers_renew_a_token(principal):
    later = WallMs(NOW + 900)

    assert renewed(token(), principal, -1, OPTIONS, later) == token(later + 1_000)
    assert renewed(token(), principal, 10, OPTIONS, later) == token(later + 10)
    assert renewed(token(), principal, 2**63 - 1, OPTIONS, later) == token(NOW + 7_000)


@pytest.mark.parametrize("principal", [REQUESTER, OTHER])
def test_nobody_else_renews_or_expires_a_token(principal):
    assert renewed(token(), principal, -1, OPTIONS, NOW) is MISMATCH
    assert expired(token(), principal, -1, NOW) is MISMATCH


def test_an_expired_token_is_not_renewed():
    assert renewed(token(), OWNER, -1, OPTIONS, WallMs(NOW + 1_000)) == token(NOW + 2_000)
    assert renewed(token(), OWNER, -1, OPTIONS, WallMs(NOW + 1_001)) is EXPIRED
    assert renewed(token(NOW + 9_000), OWNER, -1, OPTIONS, WallMs(NOW + 7_001)) is EXPIRED


@pytest.mark.parametrize("principal", [OWNER, RENEWER])
def test_a_token_expires_sooner_or_at_once(principal):
    assert expired(token(), principal, 0, NOW) == token(NOW)
    assert expired(token(), principal, 20, NOW) == token(NOW + 20)
    assert expired(token(), principal, 60_000, NOW) == token(NOW + 7_000)
    assert expired(token(), principal, -1, NOW) is None
    assert expired(token(), principal, 20, WallMs(NOW + 1_001)) is EXPIRED
    assert expired(token(), principal, -1, WallMs(NOW + 1_001)) is None


@given(st.integers(-2, 9_000), st.integers(0, 8_000), st.integers(-1, 9_000))
def test_no_change_moves_a_token_beyond_its_lifetime(lifetime_ms, passed_ms, period_ms):
    made = created("id", WantedToken(OWNER, OWNER, (), lifetime_ms), OPTIONS, NOW)
    later = WallMs(NOW + passed_ms)
    outcomes = [renewed(made, OWNER, period_ms, OPTIONS, later)]
    outcomes += [expired(made, OWNER, max(period_ms, 0), later)]

    assert made.expires_ms <= made.expires_ms_max <= NOW + OPTIONS.lifetime_ms
    for outcome in outcomes:
        assert outcome is EXPIRED or outcome.expires_ms <= made.expires_ms_max
        assert (outcome is EXPIRED) == made.has_expired(later)


def test_the_hmac_is_that_of_kafkas_brokers():
    # Java: Mac.getInstance("HmacSHA512") with the bytes of the secret, over those of the id.
    expected = hmac.new(b"secret", b"vRwYxMqHT0uHRC6pHdCjLw", hashlib.sha512).digest()

    assert hmac_of("secret", "vRwYxMqHT0uHRC6pHdCjLw") == expected
    assert base64.b64decode(password_of(expected)) == expected


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_a_client_logs_in_with_the_id_and_the_hmac(mechanism):
    stored = TokenCredential(OWNER, scram_credential("secret", mechanism, "id"), NOW)
    server = ScramServer(
        mechanism,
        credentials=lambda user: None,
        tokens={"id": stored}.get,
        nonce="n",
        decoy_secret=b"d",
    )
    password = password_of(hmac_of("secret", "id"))
    client = ScramExchange(mechanism, "id", password, nonce="c", is_token=True)

    challenge = server.step(client.first()).work()
    assert isinstance(challenge, Challenge)
    done = server.step(client.final(challenge.token))
    assert isinstance(done, Done)
    client.verify(done.token)
    assert (done.principal, done.is_delegation_token, done.expires_ms) == (OWNER, True, NOW)


def test_the_options_do_not_show_the_secret():
    assert "s3cret" not in f"{OPTIONS} {OPTIONS!r}"


def test_the_salt_shows_nothing_of_the_hmac():
    credential = scram_credential("secret", "SCRAM-SHA-256", "id")

    assert credential == scram_credential("secret", "SCRAM-SHA-256", "id")
    assert credential.salt not in hmac_of("secret", "id")
    assert credential.salt != scram_credential("secret", "SCRAM-SHA-256", "id2").salt
    assert credential.salt != scram_credential("secret2", "SCRAM-SHA-256", "id").salt
