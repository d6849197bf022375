"""PLAIN: who is authenticated, and what a refused client reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.jaas import parse_jaas
from odradek.security.sasl.plain import PlainServer, plain_users
from odradek.security.sasl.step import Done, Failed

LINE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="b" user_alice="alice-secret" user_bob="" user_="x";'
)
OTHER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
WRONG = "Authentication failed: Invalid username or password"


def step(message: bytes):
    return PlainServer(plain_users(parse_jaas(LINE))).step(message)


@pytest.mark.parametrize("message", [b"\0alice\0alice-secret", b"alice\0alice\0alice-secret"])
def test_user_and_password(message):
    assert step(message) == Done("User:alice")


def test_users_are_the_options_that_begin_with_user():
    assert plain_users(parse_jaas(LINE)) == {"alice": "alice-secret", "bob": "", "": "x"}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\0alice\0wrong", WRONG),
        (b"\0mallory\0alice-secret", WRONG),
        (b"\0bob\0x", WRONG),
        (b"\0username\0broker", WRONG),
        (b"bob\0alice\0alice-secret", OTHER),
        (b"bob\0alice\0wrong", WRONG),
        (b"\0bob\0", None),
        (b"\0\0x", None),
        (b"", None),
        (b"\0alice", None),
        (b"\0alice\0alice-secret\0", None),
        (b"\0\xff\0alice-secret", None),
    ],
)
def test_a_refused_client(message, text):
    failed = step(message)

    assert isinstance(failed, Failed)
    assert failed.text == text
    assert "secret" not in failed.reason


def test_a_name_cannot_write_lines_into_the_log():
    failed = step(b"\0a\nINFO all is well" + b"x" * 1000 + b"\0p")

    assert isinstance(failed, Failed)
    assert "\n" not in failed.reason
    assert len(failed.reason) < 200


@given(st.binary() | st.text().map(str.encode))
def test_no_message_raises(message):
    assert isinstance(step(message), Failed)
