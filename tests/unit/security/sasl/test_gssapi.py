"""The server's side of GSSAPI, with a context that protects nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.gssapi import NO_LAYER, GssapiServer, GssError
from odradek.security.sasl.kerberos_names import parse_rules, short_name
from odradek.security.sasl.step import Challenge, Done, Failed

TICKET, PROOF = b"ticket", b"proof"


class Context:
    """Accepts one ticket; what it wraps begins with a mark."""

    def __init__(self, principal="alice@REALM", answer=PROOF) -> None:
        self.is_established = False
        self.principal, self.answer = principal, answer

    def peer(self):
        return self.principal

    def step(self, token):
        if token != TICKET:
            raise GssError("the ticket is wrong")
        self.is_established = True
        return self.answer

    def wrap(self, message):
        return b"#" + message

    def unwrap(self, message):
        if message[:1] != b"#":
            raise GssError("the message was changed")
        return message[1:]


def server(**given):
    rules = parse_rules(("DEFAULT",))
    return GssapiServer(Context(**given), lambda name: short_name(name, rules, "REALM"))


def offered(**given):
    one = server(**given)
    assert one.step(TICKET) == Challenge(PROOF)
    assert one.step(b"") == Challenge(b"#" + NO_LAYER)
    return one


@pytest.mark.parametrize("authorization_id", [b"", b"alice", b"alice@REALM"])
def test_a_client_with_a_ticket_is_the_user_of_its_principal(authorization_id):
    assert offered().step(b"#" + NO_LAYER + authorization_id) == Done("User:alice")


def test_without_a_last_token_of_the_context_the_offer_follows_at_once():
    one = server(answer=b"")

    assert one.step(TICKET) == Challenge(b"#" + NO_LAYER)
    assert one.step(b"#" + NO_LAYER) == Done("User:alice")


@pytest.mark.parametrize("token", [b"", b"x"])
def test_a_wrong_ticket_is_refused(token):
    assert server().step(token) == Failed("GSSAPI: the ticket is wrong")


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (b"", "GSSAPI: the message was changed"),
        (NO_LAYER, "GSSAPI: the message was changed"),
        (b"#", "the client chose a security layer"),
        (b"#\x01\x00\x00", "the client chose a security layer"),
        (b"#\x04\x00\x00\x00", "the client chose a security layer"),
        (b"#" + NO_LAYER + b"bob", "'alice@REALM' requested the authorization id 'bob'"),
        (b"#" + NO_LAYER + b"\xff", "requested the authorization id"),
    ],
)
def test_an_invalid_choice_is_refused(choice, reason):
    failed = offered().step(choice)

    assert isinstance(failed, Failed)
    assert failed.reason.startswith(reason) or reason in failed.reason


def test_a_principal_of_another_realm_needs_a_rule():
    failed = offered(principal="alice@OTHER").step(b"#" + NO_LAYER)

    assert isinstance(failed, Failed)
    assert "no rule" in failed.reason


def test_a_token_in_the_place_of_the_empty_message_is_refused():
    one = server()
    one.step(TICKET)

    assert one.step(b"#" + NO_LAYER) == Failed("a GSSAPI token after the last one")


@given(st.lists(st.sampled_from([b"", b"x", b"#", b"#" + NO_LAYER]) | st.binary(), max_size=4))
def test_nobody_logs_in_without_a_ticket(tokens):
    one = server()

    assert not any(isinstance(one.step(token), Done) for token in tokens)
