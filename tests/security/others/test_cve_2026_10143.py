"""CVE-2026-10143: a client did the work that a server's iteration count asked for."""

import hashlib

import pytest

from odradek.client.security.scram import ITERATIONS_MAX, ScramError, ScramExchange


@pytest.mark.parametrize("count", [ITERATIONS_MAX + 1, 2**31 - 1, 10**30, -1, 0, 1, 4095])
def test_another_count_is_refused_before_it_is_used(monkeypatch, count):
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", None)
    exchange = ScramExchange("SCRAM-SHA-256", "alice", "secret", nonce="client")
    exchange.first()

    with pytest.raises(ScramError, match="iterations; must be 4096 to"):
        exchange.final(b"r=clientserver,s=c2FsdA==,i=%d" % count)


def test_a_count_of_thousands_of_digits_is_refused(monkeypatch):
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", None)
    exchange = ScramExchange("SCRAM-SHA-256", "alice", "secret", nonce="client")
    exchange.first()

    with pytest.raises(ScramError):
        exchange.final(b"r=clientserver,s=c2FsdA==,i=" + b"9" * 100_000)
