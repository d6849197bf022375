"""SCRAM: the example of RFC 7677, and servers that violate the protocol."""

import pytest

from odradek.client.security.scram import ScramError, ScramExchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(user="user", password="pencil", mechanism="SCRAM-SHA-256"):
    return ScramExchange(mechanism, user, password, nonce=NONCE)


def test_the_example_of_rfc_7677():
    one = exchange()

    assert one.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert one.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    one.verify(SERVER_FINAL)


def test_the_proof_of_sha_512_differs():
    assert exchange(mechanism="SCRAM-SHA-512").final(SERVER_FIRST) != exchange().final(SERVER_FIRST)


def test_a_name_with_commas_is_escaped():
    assert exchange(user="a,b=c").first() == b"n,,n=a=2Cb=3Dc,r=rOprNGfwEbeRWgbNEkqO"


def test_a_server_without_the_password_is_refused():
    one = exchange()
    one.final(SERVER_FIRST)

    with pytest.raises(ScramError, match="the server's signature is wrong"):
        one.verify(b"v=" + b"A" * 43 + b"=")


@pytest.mark.parametrize(
    ("challenge", "complaint"),
    [
        (b"e=unknown-user", "unknown-user"),
        (b"r=other,s=QQ==,i=4096", "does not extend the client's nonce"),
        (f"r={NONCE},s=QQ==,i=4096".encode(), "does not extend the client's nonce"),
        (f"r={NONCE}x,s=QQ==,i=1000000000".encode(), "iterations; must be 4096 to 1000000"),
        (f"r={NONCE}x,s=QQ==,i=1".encode(), "1 iterations; must be"),
        (f"r={NONCE}x,s=!,i=4096".encode(), "no nonce, salt and iterations"),
        (f"r={NONCE}x,i=4096".encode(), "no nonce, salt and iterations"),
        (b"nonsense", "instead of name=value"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_an_invalid_challenge_is_refused(challenge, complaint):
    with pytest.raises(ScramError, match=complaint):
        exchange().final(challenge)


@pytest.mark.parametrize("answer", [b"e=invalid-proof", b"w=1"])
def test_the_servers_error_is_raised(answer):
    one = exchange()
    one.final(SERVER_FIRST)

    with pytest.raises(ScramError, match="invalid-proof|no signature"):
        one.verify(answer)
