"""The bearer token of a client: made of claims, or requested with client credentials."""

import base64
import json
from urllib.parse import parse_qs

import pytest

from odradek.model.clock import WallMs
from odradek.security.sasl.bearer_login import (
    BearerLoginError,
    expires_ms,
    is_unsecured,
    subject_of,
    token_in,
    token_request,
    unsecured_token,
)
from odradek.security.sasl.bearer_tokens import ClaimRules, UnsecuredTokens

NOW = WallMs(1_700_000_000_000)
ALICE = {"unsecuredLoginStringClaim_sub": "alice"}
APP = {"clientId": "app", "clientSecret": "s:ecret&"}


def accepted(token, **rules):
    return UnsecuredTokens(ClaimRules(**rules), lambda: NOW, anybody_may_claim_any_name=True)(token)


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_an_unsecured_token_names_its_subject_for_an_hour():
    found = accepted(unsecured_token(ALICE, NOW))

    assert found.subject == "alice"
    assert found.expires_ms == NOW + 3_600_000
    assert expires_ms(unsecured_token(ALICE, NOW)) == found.expires_ms


def test_the_claims_of_an_unsecured_token_are_those_of_the_options():
    options = {
        "unsecuredLoginStringClaim_name": "alice",
        "unsecuredLoginPrincipalClaimName": "name",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token = unsecured_token(options, NOW)

    assert claims(token)["level"] == 3
    found = accepted(token, subject_claim="name")
    assert found.subject == subject_of(options) == "alice"
    assert found.scopes == {"read", "write"}
    assert found.expires_ms == NOW + 60_000


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"unsecuredLoginStringClaim_x": "y"}, "no option unsecuredLoginStringClaim_sub"),
        ({"unsecuredLoginNumberClaim_sub": "1"}, "no option unsecuredLoginStringClaim_sub"),
        (ALICE | {"unsecuredLoginLifetimeSeconds": "long"}, "LifetimeSeconds must be a number"),
    ],
)
def test_an_unsecured_token_needs_a_subject_and_numbers(options, reason):
    assert is_unsecured(options)
    with pytest.raises(BearerLoginError, match=reason):
        unsecured_token(options, NOW)


def test_client_credentials_are_sent_as_kafkas_client_sends_them():
    request = token_request(APP | {"scope": "kafka write"})

    kind, _, encoded = request.headers["Authorization"].partition(" ")
    assert (kind, base64.b64decode(encoded)) == ("Basic", b"app:s:ecret&")
    fields = parse_qs(request.body.decode())
    assert fields == {"grant_type": ["client_credentials"], "scope": ["kafka write"]}
    assert b"scope" not in token_request(APP).body


def test_missing_credentials_are_named_and_present_ones_are_not():
    with pytest.raises(BearerLoginError, match="no option clientId") as error:
        token_request({"clientSecret": "hidden"})
    assert "hidden" not in str(error.value)
    assert not is_unsecured(APP)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"<html>", "not JSON"),
        (b"[]", "no access_token"),
        (b'{"access_token": 1}', "no access_token"),
        (b'{"access_token": "a b"}', "no bearer token"),
    ],
)
def test_a_response_without_a_token(response, reason):
    with pytest.raises(BearerLoginError, match=reason):
        token_in(response)


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "a.e30.c", "a.bnVsbA.c"])
def test_a_token_that_does_not_say_when_it_expires(token):
    assert expires_ms(token) is None
