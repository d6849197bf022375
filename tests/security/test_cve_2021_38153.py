"""CVE-2021-38153: comparing secrets took longer the more of them was right."""

import hmac

from odradek.client.security.scram import ScramExchange
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramServer, derive
from odradek.security.sasl.step import Challenge, Failed


def compared(monkeypatch):
    """What is compared in constant time."""
    sizes = []
    compare = hmac.compare_digest

    def counted(one, other):
        sizes.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    return sizes


def test_plain_passwords_of_any_length_are_compared_in_constant_time(monkeypatch):
    sizes = compared(monkeypatch)
    server = PlainServer({"alice": "alice-secret"})

    for message in (b"\0alice\0a", b"\0alice\0" + b"a" * 500, b"\0nobody\0a"):
        assert isinstance(server.step(message), Failed)
    assert sizes == [(32, 32)] * 3


def test_scram_keys_are_compared_in_constant_time(monkeypatch):
    server = ScramServer(
        "SCRAM-SHA-256",
        credentials={"alice": derive("SCRAM-SHA-256", b"salt", b"salted", 4096)}.get,
        tokens={}.get,
        nonce="server",
        decoy_secret=b"decoy",
    )
    client = ScramExchange("SCRAM-SHA-256", "alice", "wrong", nonce="client")
    challenge = server.step(client.first())
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.token)
    sizes = compared(monkeypatch)

    assert isinstance(server.step(final), Failed)
    assert sizes[-1] == (32, 32)
