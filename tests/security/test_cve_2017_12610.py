"""CVE-2017-12610: an authorization id of SASL let a user act as another."""

import pytest

from odradek.model.clock import WallMs
from odradek.security.sasl.oauthbearer import BearerToken, OAuthBearerServer
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramServer, derive
from odradek.security.sasl.step import Failed


def scram():
    return ScramServer(
        "SCRAM-SHA-256",
        credentials={"alice": derive("SCRAM-SHA-256", b"salt", b"salted", 4096)}.get,
        tokens={}.get,
        nonce="server",
        decoy_secret=b"decoy",
    )


def bearer():
    token = BearerToken("alice", frozenset(), WallMs(1000))
    return OAuthBearerServer(lambda _: token)


@pytest.mark.parametrize("name", [b"admin", b"Alice", b"alice=2C", b"User:alice"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PlainServer({"alice": "secret", "admin": "x"}), b"%b\0alice\0secret"),
        (scram, b"n,a=%b,n=alice,r=abc"),
        (bearer, b"n,a=%b,\1auth=Bearer x\1\1"),
    ],
)
def test_a_user_may_not_act_as_another(make, message, name):
    failed = make().step(message % name)

    assert isinstance(failed, Failed)
    assert failed.text is not None
    assert "authorization id" in failed.text
