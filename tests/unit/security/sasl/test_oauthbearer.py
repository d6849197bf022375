"""OAUTHBEARER: the client's message, and the answer to a refused token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.clock import WallMs
from odradek.security.sasl.oauthbearer import BearerToken, OAuthBearerServer, TokenRefused
from odradek.security.sasl.step import Challenge, Done, Failed

ALICE = BearerToken("alice", frozenset({"a"}), WallMs(5000))


def server(found=ALICE, seen=None):
    def validate(token):
        if seen is not None:
            seen.append(token)
        return found

    return OAuthBearerServer(validate)


@pytest.mark.parametrize("authorization_id", [b"", b"a=alice"])
def test_the_message_of_the_rfc(authorization_id):
    seen = []
    message = b"n,%b,\1host=server.example.com\1port=143\1auth=Bearer vF9dft4qmTc2==\1\1"

    assert server(seen=seen).step(message % authorization_id) == Done(
        "User:alice",
        expires_ms=WallMs(5000),
        extensions={"host": "server.example.com", "port": "143"},
    )
    assert seen == ["vF9dft4qmTc2=="]


@pytest.mark.parametrize("confirmation", [b"\1", b"n,,\1auth=Bearer x\1\1", b""])
def test_a_refused_token_is_answered_with_an_error_and_then_fails(confirmation):
    one = server(TokenRefused("expired an hour ago", scope="produce"))
    error = '{"status":"invalid_token","scope":"produce"}'

    assert one.step(b"n,,\1auth=bearer x\1\1") == Challenge(error.encode())
    assert one.step(confirmation) == Failed("expired an hour ago", error)


def test_another_authorization_id():
    failed = server().step(b"n,a=bob,\1auth=Bearer x\1\1")

    assert isinstance(failed, Failed)
    assert failed.text is not None
    assert "authorization id (bob) that is different" in failed.text


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"y,,\1auth=Bearer x\1\1",
        b"n,,\1auth=Bearer x\1",
        b"n,,\1auth=Bearer x\1\1more",
        b"n,,\1auth=Basic x\1\1",
        b"n,,\1auth=Bearer\1\1",
        b"n,,\1auth=Bearer x y\1\1",
        b"n,,\1trace=Bearer x\1\1",
        b"n,,\1auth=Bearer x\1auth=Bearer y\1\1",
        b"n,,\1key_=v\1auth=Bearer x\1\1",
        b"n,,\1key=\xff\1auth=Bearer x\1\1",
        b"n,,\1\1",
    ],
)
def test_an_invalid_message_is_not_validated(message):
    seen = []

    assert isinstance(server(seen=seen).step(message), Failed)
    assert seen == []


@given(
    st.binary(),
    st.lists(st.sampled_from([b"auth=Bearer x", b"auth=", b"a=b", b"\1", b"=", b"\xff"])),
)
def test_no_message_raises(noise, pairs):
    one = server(TokenRefused("refused"))

    assert isinstance(one.step(b"n,," + b"\1".join([b"", *pairs, b"", b""])), Challenge | Failed)
    assert isinstance(server(TokenRefused("refused")).step(noise), Failed)
