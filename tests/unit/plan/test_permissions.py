"""Permissions in words: which ACLs they mean, how they are printed, and what is refused."""

import pytest

from odradek.cli.kafka.acls import command_line
from odradek.model.acl import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
)
from odradek.plan.commands import Caller
from odradek.plan.permissions import (
    KINDS,
    PermissionTextError,
    by_principal,
    commands,
    operations_of,
    pattern_of,
    principal_of,
    sentences,
    unrestricted,
)
from odradek.security.acls import AclSettings

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ORDERS = ResourcePattern(TOPIC, "orders")


def acl(operation=READ, pattern=ORDERS, *, principal="User:app", host="*", allowed=True):
    return Binding(pattern, AclEntry(principal, host, operation, allowed))


def test_a_name_is_a_user_and_a_principal_stays_one():
    assert [principal_of(text) for text in ("app", "User:app", "*", "Group:x")] == [
        "User:app", "User:app", "User:*", "Group:x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "pattern"),
    [
        ("topic", "orders", ORDERS),
        ("topic", "orders-*", ResourcePattern(TOPIC, "orders-", prefixed=True)),
        ("topic", "*", ResourcePattern(TOPIC, "*")),
        ("group", "g", ResourcePattern(GROUP, "g")),
        ("cluster", None, ResourcePattern(CLUSTER, CLUSTER_NAME)),
        ("transactional-id", "t*", ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t", True)),
    ],
)
def test_a_star_at_the_end_is_a_prefix(kind, name, pattern):
    assert pattern_of(kind, name) == pattern


@pytest.mark.parametrize(
    ("kind", "name", "complaint"),
    [
        ("topic", None, "its name is missing; '\\*' is every topic"),
        ("cluster", "x", "the cluster has no name"),
        ("topic", "a*b", "only be the last character"),
        ("topic", "**", "only be the last character"),
    ],
)
def test_unclear_resources_are_refused(kind, name, complaint):
    with pytest.raises(PermissionTextError, match=complaint):
        pattern_of(kind, name)


def test_operations_are_kafkas_in_any_spelling():
    assert operations_of("read,WRITE,read", "topic") == [READ, WRITE]
    assert operations_of("describe-configs", "topic") == [AclOperation.DESCRIBE_CONFIGS]
    assert operations_of("Describe_Configs", "cluster") == [AclOperation.DESCRIBE_CONFIGS]
    assert operations_of("all", "group") == [AclOperation.ALL]


@pytest.mark.parametrize(("text", "kind"), [("reed", "topic"), ("write", "group"), ("", "topic")])
def test_an_operation_that_the_resource_does_not_have_is_refused_with_those_it_has(text, kind):
    with pytest.raises(PermissionTextError, match=f"the operations on a {kind} are read, "):
        operations_of(text, kind)


def test_each_operation_on_each_kind_has_words():
    bindings = [
        acl(operation, pattern_of(kind, None if kind == "cluster" else "x"))
        for kind in KINDS
        for operation in operations_of("all", kind)
    ]
    assert len(sentences(bindings)) == len(KINDS)
    assert all(line.startswith("may do everything with ") for line in sentences(bindings))


def test_sentences_say_what_is_allowed_and_what_that_includes():
    prefixed = ResourcePattern(GROUP, "g", prefixed=True)
    assert sentences(
        [
            acl(),
            acl(READ, prefixed, host="10.0.0.7"),
            acl(WRITE, allowed=False),
            acl(CREATE, pattern_of("cluster", None)),
            acl(AclOperation.ALTER_CONFIGS, pattern_of("topic", "*")),
        ]
    ) == [
        "may read Topic orders (Read, which includes Describe)",
        (
            "may join, and commit offsets of, each Group whose name begins with g "
            "(Read, which includes Describe), from host 10.0.0.7 only"
        ),
        "may not write to Topic orders (Write)",
        "may create topics in the cluster (Create)",
        "may change the options of every Topic (AlterConfigs, which includes DescribeConfigs)",
    ]


def test_principals_are_in_order_with_their_denials_last():
    found = by_principal(
        [acl(WRITE, allowed=False), acl(principal="User:zoe"), acl(), acl(principal="User:*")]
    )
    assert list(found) == ["User:*", "User:app", "User:zoe"]
    assert [binding.entry.allowed for binding in found["User:app"]] == [True, False]


def test_one_command_for_each_resource_that_kafkas_tool_accepts():
    made = [acl(READ), acl(WRITE), acl(READ, pattern_of("group", "g*"), host="10.0.0.7")]
    printed = [str(each) for each in commands(made, Caller("b:9", config="c.properties"), "add")]

    where = "--bootstrap-server b:9 --command-config c.properties"
    assert printed == [
        (
            f"kafka-acls {where} --add --allow-principal User:app --operation Read "
            "--operation Write --topic orders"
        ),
        (
            f"kafka-acls {where} --add --allow-principal User:app --allow-host 10.0.0.7 "
            "--operation Read --group g --resource-pattern-type prefixed"
        ),
    ]
    for line in printed:
        command_line().parse(line.split()[1:])


def test_what_no_acl_restricts_is_said():
    secure = AclSettings(frozenset({"User:admin", "User:broker"}))
    assert unrestricted({0: secure, 1: secure}) == [
        "User:admin may do everything (super.users)",
        "User:broker may do everything (super.users)",
    ]
    assert unrestricted({0: secure}, "User:app") == []
    assert unrestricted({0: None, 1: AclSettings(allow_if_no_acl=True)}) == [
        "every client may do everything, because authorizer.class.name is not set (broker 0)",
        "every client may use what no ACL is on (allow.everyone.if.no.acl.found) (broker 1)",
    ]
