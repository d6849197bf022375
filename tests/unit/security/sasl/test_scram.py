"""The server's side of SCRAM: the RFC's example, clients of others and our own, and attacks."""

import base64
import hashlib
import re

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.admin import security as admin
from odradek.client.security.scram import ScramExchange
from odradek.model.clock import WallMs
from odradek.security.delegation_tokens import scram_credential as token_credential
from odradek.security.sasl.salt import salt_of
from odradek.security.sasl.scram import (
    SCRAM_HASHES,
    CredentialError,
    ScramServer,
    StoredCredential,
    TokenCredential,
    derive,
    parse_credential,
)
from odradek.security.sasl.step import Challenge, Computation, Done, Failed

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SHA_256 = "SCRAM-SHA-256"


def credential(password="pencil", mechanism=SHA_256, iterations=4096):
    algorithm = SCRAM_HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), SALT, iterations)
    return derive(mechanism, SALT, salted, iterations)


PENCIL = credential()


def server(mechanism=SHA_256, users=None, tokens=None, nonce=SERVER_NONCE, secret=b"decoy"):
    return ScramServer(
        mechanism,
        credentials=({"user": PENCIL} if users is None else users).get,
        tokens=(tokens or {}).get,
        nonce=nonce,
        decoy_secret=secret,
    )


def challenged(first=FIRST, **given):
    one = server(**given)
    challenge = answered(one.step(first))
    assert isinstance(challenge, Challenge)
    return one, challenge.token


def answered(step):
    """The step, also if it is computed in another thread."""
    return step.work() if isinstance(step, Computation) else step


def test_the_example_of_rfc_7677():
    one = server()

    assert one.step(FIRST) == Challenge(CHALLENGE)
    assert one.step(FINAL) == Done("User:user", SIGNATURE)


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
@pytest.mark.parametrize("user", ["user", "a,b=c", "u r"])
def test_our_client(mechanism, user):
    users = {user: credential(mechanism=mechanism, iterations=8192)}
    one = server(mechanism, users)
    client = ScramExchange(mechanism, user, "pencil", nonce=CLIENT_NONCE)

    challenge = one.step(client.first())
    assert isinstance(challenge, Challenge)
    done = one.step(client.final(challenge.token))
    assert isinstance(done, Done)
    client.verify(done.token)
    assert done.principal == f"User:{user}"


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_a_client_of_others(mechanism):
    one = server(mechanism, {"user": credential(mechanism=mechanism)})
    client = scramp.ScramClient([mechanism], "user", "pencil")

    challenge = one.step(client.get_client_first().encode())
    assert isinstance(challenge, Challenge)
    client.set_server_first(challenge.token.decode())
    done = one.step(client.get_client_final().encode())
    assert isinstance(done, Done)
    client.set_server_final(done.token.decode())


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_credentials_are_those_of_others(mechanism):
    salt, stored_key, server_key, iterations = scramp.ScramMechanism(mechanism).make_auth_info(
        "pencil", 4096, SALT
    )

    assert credential(mechanism=mechanism) == (salt, stored_key, server_key, iterations)


def login(one, user, password):
    """The messages of the server in a login with a password that may be wrong."""
    client = ScramExchange(SHA_256, user, password, nonce=CLIENT_NONCE)
    challenge = one.step(client.first())
    return challenge, one.step(client.final(challenge.token))


def test_an_unknown_user_gets_the_exchange_of_a_wrong_password():
    of_known, wrong = login(server(), "user", "pen")
    of_unknown, unknown = login(server(), "nobody", "pen")
    again, _ = login(server(), "nobody", "pencil")
    another, _ = login(server(), "nobody2", "pen")

    assert isinstance(wrong, Failed)
    assert isinstance(unknown, Failed)
    assert wrong.text is None
    assert unknown.text is None
    assert wrong.reason != unknown.reason
    assert re.sub(rb"s=[^,]*", b"s=", of_known.token) == re.sub(
        rb"s=[^,]*", b"s=", of_unknown.token
    )
    assert again == of_unknown
    assert another != of_unknown


def salt_for(user, **given):
    _, challenge = challenged(f"n,,n={user},r=abc".encode(), **given)
    return re.search(rb"s=([^,]*)", challenge)[1]


def test_the_salt_of_an_unknown_user_is_of_the_clusters_secret_and_not_of_the_log_in():
    salt = salt_for("nobody", nonce="one")

    assert salt_for("nobody", nonce="two") == salt
    assert salt_for("nobody", nonce="one", secret=b"of another cluster") != salt


@pytest.mark.parametrize("mechanism", sorted(SCRAM_HASHES))
def test_the_salt_of_an_unknown_user_has_the_form_of_a_known_users(mechanism):
    made = admin.scram_credential(mechanism, "pencil", 4096)
    of_unknown, _ = login(server(mechanism), "nobody", "pen")
    of_token = token_credential("secret", mechanism, "token")
    salts = [made.salt, base64.b64decode(re.search(rb"s=([^,]*)", of_unknown.token)[1])]

    for salt in (*salts, of_token.salt):
        assert re.fullmatch(rb"[0-9a-z]{20,26}", salt), salt


def test_a_salt_is_130_bits_in_base_36_as_javas_are():
    assert int(salt_of(b"\xff" * 17), 36) == 2**130 - 1
    assert int(salt_of(bytes(range(1, 18))), 36) == int.from_bytes(bytes(range(1, 18))) >> 6
    assert salt_of(bytes(17)) == b"0"
    assert len(salt_of(b"\xff" * 32)) == 26


def test_a_delegation_token():
    tokens = {"token-id": TokenCredential("User:alice", PENCIL, WallMs(5000))}
    client = scramp.ScramClient([SHA_256], "token-id", "pencil")
    first = client.get_client_first() + ",tokenauth=true"
    client.client_first_bare += ",tokenauth=true"

    one, challenge = challenged(first.encode(), tokens=tokens)
    client.set_server_first(challenge.decode())

    done = one.step(client.get_client_final().encode())
    assert isinstance(done, Done)
    assert done[:1] + done[2:4] == ("User:alice", 5000, True)


def test_a_user_is_no_token_and_a_token_no_user():
    tokens = {"token-id": TokenCredential("User:alice", PENCIL, WallMs(5000))}

    _, failed = login(server(tokens=tokens), "token-id", "pencil")
    assert isinstance(failed, Failed)
    one, _ = challenged(FIRST + b",tokenauth=true", tokens=tokens)
    assert isinstance(one.step(FINAL), Failed)


def test_unknown_extensions_are_part_of_what_is_signed():
    one, _ = challenged(FIRST + b",other=x")

    assert isinstance(one.step(FINAL), Failed)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a\x00c",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=abc\n",
        "n,,n=us\u00e9r,r=abc".encode(),
    ],
)
def test_an_invalid_first_message(first):
    assert server().step(first) == Failed("the client-first-message of SCRAM is invalid")


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_another_authorization_id(user):
    failed = server().step(f"n,a=admin,n={user},r=abc".encode())

    assert isinstance(failed, Failed)
    assert failed.text is not None
    assert failed.text.endswith("an authorization id that is different from username")


def test_the_users_own_authorization_id():
    one, challenge = challenged(b"n,a=user,n=user,r=abc")
    nonce = challenge.split(b",")[0]

    assert one.step(b"c=biws," + nonce + b",p=AAAA") == Failed(
        "the channel binding differs from the client-first-message"
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (SERVER_NONCE.encode(), b"", "nonce"),
        (b"r=rO", b"r=r0", "nonce"),
        (b"$k0,", b"$k0x,", "nonce"),
        (b"c=biws", b"c=eSws", "channel binding"),
        (b"c=biws", b"c=", "channel binding"),
        (b"p=d", b"p=e", "proof"),
        (b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p=", "proof"),
        (b"p=dHzb", b"p=AAAAdHzb", "proof"),
        (b",p=dHzb", b",x=y,p=dHzb", "proof"),
        (b"dVQ=", b"dVQ", "invalid"),
        (b",p=", b",q=", "invalid"),
        (b"c=biws,", b"", "invalid"),
    ],
)
def test_a_changed_final_message(old, new, reason):
    one, _ = challenged()

    assert old in FINAL
    failed = one.step(FINAL.replace(old, new))
    assert isinstance(failed, Failed)
    assert reason in failed.reason
    assert failed.text is None


def test_the_final_message_of_another_exchange():
    one, _ = challenged(nonce="another")

    assert isinstance(one.step(FINAL), Failed)


def test_nothing_follows_the_end():
    one = server()
    one.step(FIRST)
    one.step(FINAL)

    assert isinstance(one.step(FINAL), Failed)


@pytest.mark.parametrize("iterations", [1, 4095, 16385])
def test_a_credential_with_other_iterations_is_not_used(iterations):
    users = {"user": PENCIL._replace(iterations=iterations)}

    failed = server(users=users).step(FIRST)
    assert isinstance(failed, Failed)
    assert "must be 4096 to 16384" in failed.reason


def test_the_form_in_the_store():
    assert parse_credential(SHA_256, PENCIL.text()) == PENCIL
    assert "stored_key" not in repr(PENCIL)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=QQ==",
        PENCIL.text().replace("stored_key=", "stored_key=!"),
        PENCIL.text().replace("iterations=4096", "iterations=x"),
        PENCIL.text().replace("salt=W22ZaJ0SNY7soEsUEjb6gQ==", "salt="),
        StoredCredential(b"salt", b"short", b"short", 4096).text(),
    ],
)
def test_an_invalid_stored_credential(text):
    with pytest.raises(CredentialError) as raised:
        parse_credential(SHA_256, text)
    assert "=" not in str(raised.value)


FIRST_MESSAGES = st.builds(
    lambda name, nonce, rest: b"n,,n=" + name + b",r=" + nonce + rest,
    st.sampled_from([b"user", b"=2C", b"=", b"\xff"]),
    st.binary(max_size=4),
    st.sampled_from([b"", b",a=b", b",tokenauth=true", b","]),
)


@settings(max_examples=200)
@given(st.binary() | FIRST_MESSAGES, st.binary() | st.just(FINAL))
def test_no_messages_raise_or_authenticate(first, final):
    one = server(nonce="drawn for each exchange".replace(" ", ""))

    assert isinstance(answered(one.step(first)), Challenge | Failed)
    assert isinstance(answered(one.step(final)), Challenge | Failed)
    assert isinstance(one.step(final), Failed)
