"""Decisions about ACLs, compared with an oracle that follows the rules word by word."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.model.acl import AclEntry, AclOperation, Binding, ResourcePattern, ResourceType
from odradek.security.acls import AclRule, Acls, AclSettings, Requester, parse_super_users

_OP = AclOperation
IMPLIES_DESCRIBE = (_OP.READ, _OP.WRITE, _OP.DELETE, _OP.ALTER)
NAMES = ("*", "a", "ab", "abc", "b", "*a")
PRINCIPALS = ("User:a", "User:b", "User:*")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
OPERATIONS = (_OP.ALL, _OP.READ, _OP.DESCRIBE, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS, _OP.WRITE)
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
DEFAULTS = AclSettings()

BINDINGS = st.builds(
    Binding,
    st.builds(ResourcePattern, st.sampled_from(KINDS), st.sampled_from(NAMES), st.booleans()),
    st.builds(
        AclEntry,
        st.sampled_from(PRINCIPALS),
        st.sampled_from(HOSTS),
        st.sampled_from(OPERATIONS),
        st.booleans(),
    ),
)
CLIENTS = st.builds(Requester, st.sampled_from(PRINCIPALS[:2]), st.sampled_from(HOSTS[1:]))
SETTINGS = st.builds(
    AclSettings, st.sampled_from((frozenset(), frozenset({"User:b"}))), st.booleans()
)


def acls_of(bindings) -> Acls:
    patterns: dict = {}
    for pattern, entry in bindings:
        patterns.setdefault(pattern, set()).add(entry)
    return Acls(patterns)


def topic(name, operation=_OP.READ, *, allowed=True, prefixed=False, principal="User:a", host="*"):
    pattern = ResourcePattern(ResourceType.TOPIC, name, prefixed)
    return Binding(pattern, AclEntry(principal, host, operation, allowed))


# ------------------------------------------------------------------------------ the oracle


def is_on(pattern, kind, name) -> bool:
    if pattern.resource_type != kind:
        return False
    if pattern.prefixed:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def is_for(entry, client) -> bool:
    return entry.principal in (client.principal, "User:*") and entry.host in (client.host, "*")


def oracle(bindings, options, client, operation, kind, name) -> bool:
    if client.principal in options.super_users:
        return True
    found = [binding.entry for binding in bindings if is_on(binding.pattern, kind, name)]
    if not found:
        return options.allow_if_no_acl
    matching = [entry for entry in found if is_for(entry, client)]
    if any(not e.allowed and e.operation in (operation, _OP.ALL) for e in matching):
        return False
    enough = {operation, _OP.ALL}
    if operation == _OP.DESCRIBE:
        enough.update(IMPLIES_DESCRIBE)
    if operation == _OP.DESCRIBE_CONFIGS:
        enough.add(_OP.ALTER_CONFIGS)
    return any(e.allowed and e.operation in enough for e in matching)


@settings(max_examples=300)
@given(st.lists(BINDINGS, max_size=12), SETTINGS, CLIENTS)
@example([topic("*", allowed=False), topic("ab")], DEFAULTS, Requester("User:a", "10.0.0.1"))
def test_every_decision_is_the_oracles(bindings, options, client):
    acls = acls_of(bindings)
    for operation, kind, name in itertools.product(OPERATIONS[1:], KINDS, NAMES[1:]):
        decision = acls.decide(options, client, operation, kind, name)

        assert decision.allowed is oracle(bindings, options, client, operation, kind, name)
        assert decision.binding is None or decision.binding in bindings


@settings(max_examples=300)
@given(st.lists(BINDINGS, max_size=8), st.lists(BINDINGS, max_size=8), CLIENTS)
def test_acls_that_were_replaced_decide_as_if_they_had_been_there_from_the_start(
    before, after, client
):
    acls = acls_of(before)
    changed = {binding.pattern for binding in [*before, *after]}
    for pattern in sorted(changed):
        acls.put(pattern, [b.entry for b in after if b.pattern == pattern])
    fresh = acls_of(after)
    for name in NAMES[1:]:
        what = (DEFAULTS, client, _OP.READ, ResourceType.TOPIC, name)
        assert acls.decide(*what) == fresh.decide(*what)
    for pattern in changed:
        assert acls.entries(pattern) == fresh.entries(pattern)


@settings(max_examples=300)
@given(st.lists(BINDINGS, max_size=12), SETTINGS, CLIENTS)
def test_a_permission_for_any_resource_means_that_some_name_is_allowed(bindings, options, client):
    """Every name that an ACL can tell apart is tried, and one beyond each.

    A Deny on a longer name or prefix leaves other names free, so that one of them is allowed
    if, and only if, an Allow is not dominated. With `allow.everyone.if.no.acl.found` Kafka's rule
    is coarser, and tested below.
    """
    options = options._replace(allow_if_no_acl=False)
    acls = acls_of(bindings)
    names = [name + more for name in ("", *NAMES) for more in ("", "zz")]
    some = any(
        oracle(bindings, options, client, _OP.WRITE, ResourceType.TOPIC, name)
        for name in names
        if name and name != "*"
    )

    any_allowed = acls.allows_any(options, client, _OP.WRITE, ResourceType.TOPIC)
    assert any_allowed is some


# --------------------------------------------------------------------------- named cases


@pytest.mark.parametrize(
    ("bindings", "allowed", "rule"),
    [
        ([], False, AclRule.NO_ACL),
        ([topic("t", principal="User:b")], False, AclRule.NO_ALLOW),
        ([topic("t")], True, AclRule.ALLOW),
        ([topic("t"), topic("*", allowed=False)], False, AclRule.DENY),
        ([topic("t"), topic("t", allowed=False, host="10.9.9.9")], True, AclRule.ALLOW),
        ([topic("t", allowed=False, prefixed=True), topic("*")], False, AclRule.DENY),
        ([topic("t", _OP.ALL)], True, AclRule.ALLOW),
        ([topic("t", _OP.DESCRIBE, allowed=False), topic("t")], True, AclRule.ALLOW),
    ],
)
def test_a_decision_has_the_rule_and_the_acl_that_decided(bindings, allowed, rule):
    client = Requester("User:a", "10.0.0.1")
    decision = acls_of(bindings).decide(DEFAULTS, client, _OP.READ, ResourceType.TOPIC, "t")

    assert (decision.allowed, decision.rule) == (allowed, rule)
    assert (decision.binding in bindings) is (rule in (AclRule.ALLOW, AclRule.DENY))


def test_deny_of_read_does_not_deny_describe():
    client = Requester("User:a", "10.0.0.1")
    acls = acls_of([topic("t", _OP.WRITE), topic("t", _OP.READ, allowed=False)])

    assert acls.decide(DEFAULTS, client, _OP.DESCRIBE, ResourceType.TOPIC, "t").allowed


def test_a_super_user_needs_no_acl_and_no_deny_applies():
    options = AclSettings(frozenset({"User:a"}))
    acls = acls_of([topic("*", _OP.ALL, allowed=False, principal="User:*")])
    decision = acls.decide(options, Requester("User:a", "h"), _OP.READ, ResourceType.TOPIC, "t")

    assert decision == (True, AclRule.SUPER_USER, None)
    assert acls.allows_any(options, Requester("User:a", "h"), _OP.WRITE, ResourceType.TOPIC)


@pytest.mark.parametrize("host", ["::1", "0:0:0:0:0:0:0:1"])
def test_one_ipv6_address_in_two_forms_is_one_host(host):
    acls = acls_of([topic("t", host=host, allowed=False), topic("t")])
    decision = acls.decide(DEFAULTS, Requester("User:a", "::1"), _OP.READ, ResourceType.TOPIC, "t")

    assert decision.rule is AclRule.DENY


def test_an_ipv4_host_matches_its_mapped_form():
    acls = acls_of([topic("t", host="10.0.0.1")])
    client = Requester("User:a", "::ffff:10.0.0.1")

    assert acls.decide(DEFAULTS, client, _OP.READ, ResourceType.TOPIC, "t").allowed


@pytest.mark.parametrize(
    ("bindings", "allow_if_no_acl", "allowed"),
    [
        ([], False, False),
        ([], True, True),
        ([topic("*", _OP.WRITE, allowed=False)], True, False),
        ([topic("t", _OP.WRITE, allowed=False)], True, True),
        ([topic("t", _OP.WRITE)], False, True),
        ([topic("t", _OP.WRITE), topic("t", _OP.ALL, allowed=False)], False, False),
        ([topic("te", _OP.WRITE), topic("t", _OP.WRITE, allowed=False, prefixed=True)], False,
         False),
        ([topic("t", _OP.WRITE, prefixed=True),
          topic("te", _OP.WRITE, allowed=False, prefixed=True)], False, True),
        ([topic("*", _OP.WRITE), topic("t", _OP.WRITE, allowed=False, prefixed=True)], False,
         True),
    ],
)  # fmt: skip
def test_write_to_any_topic(bindings, allow_if_no_acl, allowed):
    options = AclSettings(allow_if_no_acl=allow_if_no_acl)
    client = Requester("User:a", "10.0.0.1")

    assert acls_of(bindings).allows_any(options, client, _OP.WRITE, ResourceType.TOPIC) is allowed


# ---------------------------------------------------------------------------- super users


def test_super_users_are_separated_by_semicolons_and_names_may_contain_colons_and_commas():
    text = "User:a; User:CN=b,OU=c ;Role:d:e;"

    assert parse_super_users(text) == {"User:a", "User:CN=b,OU=c", "Role:d:e"}
    assert parse_super_users("  ") == frozenset()


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:a;;User:b"])
def test_a_super_user_without_type_or_name_is_refused(text):
    with pytest.raises(ValueError, match="Type:name"):
        parse_super_users(text)
