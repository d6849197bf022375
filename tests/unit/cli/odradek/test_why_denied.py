"""`odradek why denied`: the rule that decides, and the command that would allow the request."""

import pytest

import odradek.client.admin.security as rights
from odradek.cli.main import run
from odradek.client.admin.security import Acl
from odradek.client.admin.topics import ConfigEntry
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourcePattern, ResourceType
from odradek.plan.commands import Caller
from odradek.plan.denied import (
    DeniedRequest,
    bindings_of,
    explain_denied,
    hidden_in,
    settings_of,
)
from odradek.security.acls import AclSettings

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
ON = AclSettings(frozenset({"User:admin"}))


def acl(name="t", operation=READ, permission=rights.ALLOW, *, principal="User:a", host="*",
        pattern=rights.LITERAL, kind=TOPIC):  # fmt: skip
    return Acl(kind, name, pattern, principal, host, operation, permission)


def lines(*acls, settings=ON, principal="User:a", host=None, operation=READ, kind=TOPIC, name="t"):
    asked = DeniedRequest(principal, host, operation, ResourcePattern(kind, name))
    brokers = settings if isinstance(settings, dict) else {0: settings, 1: settings}
    found = explain_denied(asked, brokers, bindings_of(acls), Caller(bootstrap="b:9"))
    return [str(line) for line in found]


def test_without_an_acl_the_command_that_allows_it():
    assert lines() == [
        (
            "User:a from a host that no ACL names: Read on Topic t: denied, because no ACL is on "
            "this resource, and allow.everyone.if.no.acl.found is false"
        ),
        (
            "to allow it: kafka-acls --bootstrap-server b:9 --add --allow-principal User:a "
            "--operation Read --topic t"
        ),
    ]


def test_with_acls_of_others_only_it_is_denied():
    first, command = lines(acl(principal="User:b"), host="10.0.0.7")

    assert first == (
        "User:a from 10.0.0.7: Read on Topic t: denied, because ACLs are on this resource, and "
        "none of them allows this to this principal and host"
    )
    assert command.endswith("--allow-principal User:a --allow-host 10.0.0.7 --operation Read "
                            "--topic t")  # fmt: skip


def test_each_deny_is_named_with_the_command_that_removes_it():
    denied = acl("*", AclOperation.ALL, rights.DENY, principal="User:*", host="10.0.0.7")
    prefixed = acl("t", READ, rights.DENY, pattern=rights.PREFIXED)

    assert lines(denied, prefixed, host="10.0.0.7") == [
        (
            "User:a from 10.0.0.7: Read on Topic t: denied, because this ACL denies it: All of "
            "User:* from host 10.0.0.7 on every Topic"
        ),
        (
            "to remove that ACL: kafka-acls --bootstrap-server b:9 --remove "
            "--deny-principal 'User:*' --deny-host 10.0.0.7 --operation All --topic '*'"
        ),
        (
            "then it is still denied, because this ACL denies it: Read of User:a from host * on "
            "each Topic whose name begins with t"
        ),
        (
            "to remove that ACL: kafka-acls --bootstrap-server b:9 --remove "
            "--deny-principal User:a --operation Read --topic t --resource-pattern-type prefixed"
        ),
        (
            "to allow it: kafka-acls --bootstrap-server b:9 --add --allow-principal User:a "
            "--allow-host 10.0.0.7 --operation Read --topic t"
        ),
    ]


def test_without_the_deny_it_is_allowed_if_an_allow_is_there():
    explained = lines(acl(), acl(permission=rights.DENY))

    assert [line.split(":")[0] for line in explained][1:] == ["to remove that ACL"]


@pytest.mark.parametrize(
    ("acls", "changes", "reason"),
    [
        ([acl()], {}, "this ACL allows it: Read of User:a from host * on Topic t"),
        ([], {"principal": "User:admin"}, "super.users names this principal"),
        ([], {"settings": AclSettings(allow_if_no_acl=True)},
         "no ACL is on this resource, and allow.everyone.if.no.acl.found is true"),
        ([], {"settings": None}, "authorizer.class.name is not set: every request is allowed"),
    ],
)  # fmt: skip
def test_what_is_allowed_has_its_reason(acls, changes, reason):
    (line,) = lines(*acls, **changes)

    assert line.endswith(f"allowed, because {reason}")


def test_brokers_with_other_options_are_answered_apart():
    allowed, denied, _ = lines(settings={0: None, 1: ON, 2: ON})

    assert allowed.startswith("broker 0: User:a from")
    assert denied.startswith("broker 1, 2: User:a from")


def test_an_idempotent_producer_needs_write_only():
    about = {"operation": AclOperation.IDEMPOTENT_WRITE, "kind": CLUSTER, "name": CLUSTER_NAME}
    with_write = lines(acl(operation=WRITE), **about)
    without = lines(**about)

    assert with_write[1:] == [
        "an idempotent producer does not need it: this principal may Write to a topic"
    ]
    assert without[1].endswith("--operation IdempotentWrite --cluster")


def entry(name, value):
    return ConfigEntry(name, value, "STATIC_BROKER_CONFIG", value is None, True, ())


def test_the_options_of_a_broker():
    on = entry("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer")
    shown = [on, entry("super.users", "User:b;User:c"),
             entry("allow.everyone.if.no.acl.found", "true")]  # fmt: skip

    assert settings_of([]) is None
    assert settings_of(shown) == AclSettings(frozenset({"User:b", "User:c"}), True)
    assert hidden_in(shown) == []


def test_an_option_that_a_broker_hides_is_named():
    on = entry("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer")
    hidden = [on, entry("super.users", None)]

    assert settings_of(hidden) == AclSettings()
    assert hidden_in(hidden) == ["does not report the value of super.users: the default is assumed"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--operation", "Read"], "give one of --topic"),
        (["--operation", "Read", "--topic", "t", "--group", "g"], "give one of --topic"),
        (["--operation", "Reed", "--topic", "t"], "there is no such operation"),
        (["--operation", "Any", "--topic", "t"], "there is no such operation"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments, error, capsys):
    code = run(["why", "denied", "--principal", "User:a", *arguments])

    assert code == 1
    assert error in capsys.readouterr().err
