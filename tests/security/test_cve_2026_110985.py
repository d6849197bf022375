"""CVE-2026-110985: unsigned bearer tokens were accepted where no key was configured."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from odradek.model.clock import WallMs
from odradek.security.sasl.bearer_tokens import (
    ClaimRules,
    JwksError,
    JwksTokens,
    UnsecuredTokens,
)
from odradek.security.sasl.oauthbearer import TokenRefused

CLAIMS = {"sub": "admin", "iat": 0, "exp": 10_000}
PUBLIC = ec.generate_private_key(ec.SECP256R1()).public_key()
JWKS = json.dumps({"keys": [{**json.loads(ECAlgorithm.to_jwk(PUBLIC)), "kid": "k"}]})


def wall_ms():
    return WallMs(1000)


def part(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("jwks", ["", "{}", '{"keys": []}'])
def test_there_is_no_validator_without_keys(jwks):
    with pytest.raises(JwksError):
        JwksTokens(jwks, ClaimRules(), wall_ms)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, "HS256", "ES256"])
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_an_unsigned_token_is_refused(algorithm, signature):
    token = f"{part({'alg': algorithm, 'kid': 'k'})}.{part(CLAIMS)}.{signature}"

    assert isinstance(JwksTokens(JWKS, ClaimRules(), wall_ms)(token), TokenRefused)


def test_unsigned_tokens_need_a_statement_that_everybody_may_claim_any_name():
    with pytest.raises(ValueError, match="prove nothing"):
        UnsecuredTokens(ClaimRules(), wall_ms, anybody_may_claim_any_name=False)
