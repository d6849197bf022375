"""CVE-2024-56128: the SCRAM server did not check the nonce of the client-final-message."""

import hashlib

from odradek.client.security.scram import ScramExchange
from odradek.security.sasl.scram import ScramServer, derive
from odradek.security.sasl.step import Challenge, Done, Failed

SALTED = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
CREDENTIAL = derive("SCRAM-SHA-256", b"salt", SALTED, 4096)


def server(nonce):
    return ScramServer(
        "SCRAM-SHA-256",
        credentials={"alice": CREDENTIAL}.get,
        tokens={}.get,
        nonce=nonce,
        decoy_secret=b"decoy",
    )


def recorded():
    """The client's messages of a successful login."""
    one = server("first")
    client = ScramExchange("SCRAM-SHA-256", "alice", "secret", nonce="client")
    challenge = one.step(client.first())
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.token)
    assert isinstance(one.step(final), Done)
    return client.first(), final


def test_a_recorded_login_cannot_be_replayed():
    first, final = recorded()
    one = server("second")

    assert isinstance(one.step(first), Challenge)
    failed = one.step(final)
    assert isinstance(failed, Failed)
    assert "nonce" in failed.reason


def test_nor_with_the_nonce_of_the_new_exchange():
    first, final = recorded()
    one = server("second")

    one.step(first)
    assert isinstance(one.step(final.replace(b"clientfirst", b"clientsecond")), Failed)
