"""The authorizer of a broker: kept decisions, and the audit log in Kafka's form."""

import logging

import pytest

from odradek.broker.serving.acl_authorizer import AUDIT_LOGGER, DECISIONS_MAX, AclAuthorizer
from odradek.broker.serving.session import Session
from odradek.model.acl import AclEntry, AclOperation, ResourcePattern, ResourceType
from odradek.obs.log_limit import LogLimit
from odradek.security.acls import AclSettings

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
T = ResourcePattern(TOPIC, "t")


@pytest.fixture
def authorizer():
    authorizer = AclAuthorizer()
    authorizer.replace_all({T: [AclEntry("User:alice", "*", READ, allowed=True)]})
    return authorizer


def session_of(authorizer, principal="User:alice") -> Session:
    session = Session(
        authorizer=authorizer, principal=principal, client_host="10.0.0.7", listener="PLAINTEXT"
    )
    session.begin(1, "app")
    return session


def test_until_it_is_configured_and_loaded_it_denies():
    assert not session_of(AclAuthorizer()).authorize(READ, TOPIC, "t")


def test_a_kept_decision_ends_with_the_acls_and_with_the_options(authorizer):
    session = session_of(authorizer)
    assert session.authorize(READ, TOPIC, "t")
    authorizer.put(T, [])
    assert not session.authorize(READ, TOPIC, "t")
    authorizer.configure(AclSettings(allow_if_no_acl=True))
    assert session.authorize(READ, TOPIC, "t")
    authorizer.replace_all({T: [AclEntry("User:alice", "*", READ, allowed=False)]})
    assert not session.authorize(READ, TOPIC, "t")


def test_a_kept_decision_ends_with_the_principal(authorizer):
    session = session_of(authorizer)
    assert session.authorize(READ, TOPIC, "t")
    session.principal = "User:bob"
    assert not session.authorize(READ, TOPIC, "t")


def test_a_kept_decision_about_any_topic_ends_with_the_acls_and_is_each_clients(authorizer):
    alice, bob = session_of(authorizer), session_of(authorizer, "User:bob")
    assert not alice.authorize_any(AclOperation.WRITE, TOPIC)
    authorizer.put(T, [AclEntry("User:alice", "*", AclOperation.WRITE, allowed=True)])
    assert alice.authorize_any(AclOperation.WRITE, TOPIC)
    assert not bob.authorize_any(AclOperation.WRITE, TOPIC)
    authorizer.put(T, [])
    assert not alice.authorize_any(AclOperation.WRITE, TOPIC)


def test_the_kept_decisions_are_bounded(authorizer):
    session = session_of(authorizer)
    for number in range(DECISIONS_MAX + 10):
        session.would_allow(READ, TOPIC, f"t{number}")

    assert len(session.decisions.allowed) <= DECISIONS_MAX


# ------------------------------------------------------------------------------- the audit


def test_what_is_denied_is_logged_at_info_and_what_is_allowed_at_debug(authorizer, caplog):
    session = session_of(authorizer)
    with caplog.at_level(logging.DEBUG, logger=AUDIT_LOGGER):
        session.authorize(READ, TOPIC, "t")
        session.authorize(AclOperation.DESCRIBE_CONFIGS, TOPIC, "t")

    allowed, denied = caplog.records
    assert (allowed.name, allowed.levelname) == ("kafka.authorizer.logger", "DEBUG")
    assert allowed.message == (
        "Principal = User:alice is Allowed Operation = Read from host = 10.0.0.7 on resource = "
        "Topic:LITERAL:t for request = Fetch with resourceRefCount = 1"
    )
    assert (denied.name, denied.levelname) == ("kafka.authorizer.logger", "INFO")
    assert denied.message == (
        "Principal = User:alice is Denied Operation = DescribeConfigs from host = 10.0.0.7 on "
        "resource = Topic:LITERAL:t for request = Fetch with resourceRefCount = 1"
    )


def test_each_denied_request_is_logged_and_a_shortened_answer_is_not(authorizer, caplog):
    session = session_of(authorizer, "User:bob")
    with caplog.at_level(logging.INFO, logger=AUDIT_LOGGER):
        session.authorize(READ, TOPIC, "t")
        session.authorize(READ, TOPIC, "t")
        session.would_allow(READ, TOPIC, "u")

    assert len(caplog.records) == 2


def test_write_to_any_topic_is_logged_with_the_type_only(authorizer, caplog):
    with caplog.at_level(logging.INFO, logger=AUDIT_LOGGER):
        assert not session_of(authorizer).authorize_any(AclOperation.WRITE, TOPIC)

    assert "on resource = Topic:UNKNOWN:NONE" in caplog.text
    assert "resourceRefCount = 0" in caplog.text


def test_a_name_cannot_begin_another_line_of_the_log(authorizer, caplog):
    with caplog.at_level(logging.INFO, logger=AUDIT_LOGGER):
        session_of(authorizer).authorize(READ, TOPIC, "t\nPrincipal = User:root is Allowed")

    assert "\n" not in caplog.records[0].message
    assert r"t\nPrincipal" in caplog.records[0].message


def test_no_denial_is_hidden_by_those_of_others(authorizer, caplog):
    eve, alice = session_of(authorizer, "User:eve"), session_of(authorizer)
    limit = LogLimit(lambda: 0)  # the filter of a broker's log
    caplog.handler.addFilter(limit)
    try:
        with caplog.at_level(logging.INFO, logger=AUDIT_LOGGER):
            for number in range(400):
                eve.authorize(READ, ResourceType.GROUP, f"harmless{number}")
                eve.authorize(READ, TOPIC, "t")
            alice.authorize(AclOperation.DELETE, TOPIC, "payroll")
            eve.authorize(AclOperation.DELETE, TOPIC, "payroll")
            limit.flush(ends=True)
    finally:
        caplog.handler.removeFilter(limit)

    *_, by_alice, by_eve, left_out = caplog.messages
    assert by_alice.startswith("Principal = User:alice is Denied Operation = Delete")
    assert by_eve.startswith("Principal = User:eve is Denied Operation = Delete")
    assert left_out.startswith("300 more lines like this of User:eve in 0 s were left out")
    assert sum("Group:LITERAL:harmless" in line for line in caplog.messages) == 400
