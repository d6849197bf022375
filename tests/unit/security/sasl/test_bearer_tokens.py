"""Bearer tokens: signatures, claims, and forged tokens."""

import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from odradek.model.clock import WallMs
from odradek.security.sasl.bearer_tokens import (
    ClaimRules,
    JwksError,
    JwksTokens,
    UnsecuredTokens,
    check_claims,
)
from odradek.security.sasl.oauthbearer import BearerToken, TokenRefused

NOW = 1_700_000_000
CLAIMS = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 60, "scope": "read write"}
ALICE = BearerToken("alice", frozenset({"read", "write"}), WallMs((NOW + 60) * 1000))
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
RSA = rsa.generate_private_key(65537, 2048)


def wall_ms():
    return WallMs(NOW * 1000)


def jwk(algorithm, key, kid, **more):
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


KEYS = [
    jwk(ECAlgorithm, EC, "ec"),
    jwk(OKPAlgorithm, ED, "ed"),
    jwk(RSAAlgorithm, RSA, "rsa", use="sig"),
    jwk(RSAAlgorithm, RSA, "rs512", alg="RS512"),
]


def tokens(keys=KEYS, **rules):
    return JwksTokens(json.dumps({"keys": keys}), ClaimRules(**rules), wall_ms)


def b64(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (EC, "ES256", "ec"),
        (ED, "EdDSA", "ed"),
        (RSA, "RS256", "rsa"),
        (RSA, "PS256", "rsa"),
        (RSA, "RS512", "rs512"),
    ],
)
def test_a_signed_token(key, algorithm, kid):
    assert tokens()(jwt.encode(CLAIMS, key, algorithm, {"kid": kid})) == ALICE


@pytest.mark.parametrize(
    ("key", "algorithm", "header"),
    [
        (EC, "ES256", {}),
        (EC, "ES256", {"kid": "another"}),
        (EC, "ES256", {"kid": "rsa"}),
        (EC, "ES256", {"kid": "ec", "crit": ["exp"]}),
        (RSA, "RS256", {"kid": "ec"}),
        (RSA, "RS256", {"kid": "rs512"}),
        (ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": "ec"}),
        ("a secret of thirty-two bytes or so", "HS256", {"kid": "rsa"}),
        ("a secret of thirty-two bytes or so", "HS256", {"kid": "ec"}),
        (None, "none", {"kid": "rsa"}),
        (None, "none", {}),
    ],
)
def test_a_token_with_another_key_or_algorithm(key, algorithm, header):
    assert isinstance(tokens()(jwt.encode(CLAIMS, key, algorithm, header)), TokenRefused)


def test_a_public_key_is_not_the_secret_of_an_hmac():
    public = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = f"{b64({'alg': 'HS256', 'kid': 'rsa'})}.{b64(CLAIMS)}"
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        signed.encode(), public
    )

    assert isinstance(tokens()(f"{signed}.{b64(signature)}"), TokenRefused)


def test_changed_claims():
    header, _, signature = jwt.encode(CLAIMS, EC, "ES256", {"kid": "ec"}).split(".")

    changed = f"{header}.{b64({**CLAIMS, 'sub': 'admin'})}.{signature}"
    assert tokens()(changed) == TokenRefused("the token's signature is wrong")
    assert isinstance(tokens()(f"{header}.{b64(CLAIMS)}."), TokenRefused)


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": NOW - 31},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 1e308},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"iat": NOW + 31},
        {"iat": None},
        {"nbf": NOW + 31},
        {"nbf": "x"},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"scope": 7},
        {"scope": [7]},
        {"iss": "other"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": [["kafka"]]},
        {"aud": {"kafka": 1}},
    ],
)
def test_claims_that_are_refused(changed):
    rules = ClaimRules(issuer="we", audiences=frozenset({"kafka"}))
    claims = {**CLAIMS, "iss": "we", "aud": ["web", "kafka"]}

    assert check_claims(claims, rules, wall_ms()) == ALICE
    assert isinstance(check_claims({**claims, **changed}, rules, wall_ms()), TokenRefused)


@pytest.mark.parametrize("changed", [{"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 30}])
def test_clocks_may_differ(changed):
    claims = {**CLAIMS, **changed}

    assert isinstance(check_claims(claims, ClaimRules(), wall_ms()), BearerToken)
    assert isinstance(check_claims(claims, ClaimRules(skew_ms=0), wall_ms()), TokenRefused)


def test_claims_with_other_names():
    rules = ClaimRules(scope_claim="scp", subject_claim="upn")

    found = check_claims({**CLAIMS, "scp": ["read", "write"], "upn": "alice"}, rules, wall_ms())
    assert found == ALICE


@pytest.mark.parametrize(
    "jwks",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps({"keys": []}),
        json.dumps({"keys": [7, {"kty": "oct", "k": "AAAA", "kid": "x"}]}),
        json.dumps({"keys": [{**KEYS[0], "kid": None}]}),
        json.dumps({"keys": [{**KEYS[0], "use": "enc"}]}),
        json.dumps({"keys": [{**KEYS[0], "alg": "HS256"}]}),
        json.dumps({"keys": [KEYS[0], {**KEYS[2], "kid": "ec"}]}),
        json.dumps({"keys": [{**KEYS[0], "x": "!"}]}),
        json.dumps({"keys": [{**KEYS[0], "x": 7}]}),
        json.dumps({"keys": [{"kty": "RSA", "kid": "x"}]}),
        json.dumps({"keys": [{**KEYS[2], "n": "AQAB"}]}),
    ],
)
def test_a_key_set_without_usable_keys(jwks):
    with pytest.raises(JwksError):
        JwksTokens(jwks, ClaimRules(), wall_ms)


def unsecured():
    return UnsecuredTokens(ClaimRules(), wall_ms, anybody_may_claim_any_name=True)


def test_unsecured_tokens_have_to_be_allowed():
    with pytest.raises(ValueError, match="prove nothing"):
        UnsecuredTokens(ClaimRules(), wall_ms, anybody_may_claim_any_name=False)


def test_an_unsecured_token():
    assert unsecured()(jwt.encode(CLAIMS, None, "none")) == ALICE
    assert isinstance(unsecured()(jwt.encode({**CLAIMS, "exp": 1}, None, "none")), TokenRefused)
    assert isinstance(unsecured()(jwt.encode(CLAIMS, EC, "ES256")), TokenRefused)
    assert isinstance(unsecured()(jwt.encode(CLAIMS, None, "none") + "AAAA"), TokenRefused)


PARTS = st.text("AQz_-.") | st.binary().map(b64) | st.sampled_from([b64({"alg": "none"}), ""])
SIGNED_BY_EC = b64({"alg": "ES256", "kid": "ec"})
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(PARTS, max_size=4), PARTS, PARTS)
def test_no_token_raises(parts, payload, signature):
    validate = tokens(KEYS[:1])

    assert isinstance(validate(".".join(parts)), TokenRefused)
    assert isinstance(validate(f"{SIGNED_BY_EC}.{payload}.{signature}"), TokenRefused)
    assert isinstance(unsecured()(".".join(parts)), TokenRefused)


@pytest.mark.parametrize("text", [b"[" * 100_000, b"9" * 10_000, b"\xff", b'{"a":' * 100_000])
def test_json_that_is_hard_to_parse(text):
    assert isinstance(tokens()(f"{b64(text)}.{b64(text)}.AAAA"), TokenRefused)
    assert isinstance(unsecured()(f"{b64({'alg': 'none'})}.{b64(text)}."), TokenRefused)


@given(
    st.dictionaries(
        st.sampled_from(["sub", "exp", "iat", "nbf", "iss", "aud", "scope"]),
        JSON | st.integers(NOW - 100, NOW + 100),
    )
)
def test_no_claims_raise(claims):
    rules = ClaimRules(issuer="we", audiences=frozenset({"kafka"}))

    assert isinstance(check_claims(claims, rules, wall_ms()), TokenRefused | BearerToken)
