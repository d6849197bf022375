"""The sentences of `odradek why denied`: the rule that decides, and what would allow the request.

The decision is made here, from the ACLs and the options that the cluster reports: the same rules as
in the brokers (`odradek.security.acls`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import odradek.client.admin.security as rights
from odradek.client.admin.security import Acl
from odradek.client.admin.topics import ConfigEntry
from odradek.model.acl import (
    WILDCARD,
    AclEntry,
    AclOperation,
    Binding,
    ResourcePattern,
    ResourceType,
    words,
)
from odradek.model.command import Command, command, flag
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import Caller
from odradek.security.acls import AclRule, Acls, AclSettings, Requester, parse_super_users

# How `kafka-acls` names a resource.
_FLAGS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.CLUSTER: "--cluster",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}
_HIDDEN: Final = ("super.users", "allow.everyone.if.no.acl.found")
OPERATIONS: Final = {words(operation).lower(): operation for operation in AclOperation}


class DeniedRequest(NamedTuple):
    """A request that may be denied. `host` is None for a host that no ACL names."""

    principal: str
    host: str | None
    operation: AclOperation
    resource: ResourcePattern

    def __str__(self) -> str:
        host = "a host that no ACL names" if self.host is None else self.host
        return (
            f"{self.principal} from {host}: {words(self.operation)} on {described(self.resource)}"
        )


def settings_of(configs: Sequence[ConfigEntry]) -> AclSettings | None:
    """The options of a broker's authorizer; None if it has no authorizer.

    Raises:
        ValueError: `super.users` cannot be parsed.
    """
    values = {config.name: config.value for config in configs}
    if not values.get("authorizer.class.name"):
        return None
    return AclSettings(
        parse_super_users(values.get("super.users") or ""),
        values.get("allow.everyone.if.no.acl.found") == "true",
    )


def hidden_in(configs: Sequence[ConfigEntry]) -> list[str]:
    """What a broker does not report: Apache Kafka hides the options of its authorizer."""
    return [
        f"does not report the value of {config.name}: the default is assumed"
        for config in configs
        if config.name in _HIDDEN and config.value is None
    ]


class Lacking(NamedTuple):
    """What a refused client lacks, and what to do about it."""

    what: str
    advice: Sentence


def lacking(refusal: Mapping[str, Any], caller: Caller) -> Lacking | None:
    """What a client lacks that a broker reports as refused; None if it lacks no permission."""
    lacks = refusal.get("lacks")
    if lacks is None:
        return None
    kind = next(k for k in ResourceType if words(k) == lacks["resource_type"])
    operation = OPERATIONS[lacks["operation"].lower()]
    resource = ResourcePattern(kind, lacks["name"])
    principal, host = lacks["principal"], refusal["host"]
    what = (
        f"{refusal['what']}: {principal} may not {words(operation)} on {described(resource)}, "
        f"because {'an ACL denies it' if lacks['is_denied'] else 'no ACL allows it'}"
    )
    if lacks["is_denied"]:
        asked = command(
            *("odradek", "why", "denied", *(caller.options or caller.server)),
            *(*flag("--principal", principal), *flag("--host", host)),
            *("--operation", words(operation), *_named(resource)),
        )
        return Lacking(what, sentence(asked, " names the ACL and the command that removes it"))
    allow = AclEntry(principal, WILDCARD, operation, allowed=True)
    return Lacking(what, sentence(acl_command(Binding(resource, allow), caller, "add")))


def bindings_of(acls: Sequence[Acl]) -> list[Binding]:
    """ACLs as the brokers have them."""
    return [
        Binding(
            ResourcePattern(
                ResourceType(acl.resource_type),
                acl.name or "",
                prefixed=acl.pattern_type == rights.PREFIXED,
            ),
            AclEntry(
                acl.principal or "",
                acl.host or "",
                AclOperation(acl.operation),
                allowed=acl.permission == rights.ALLOW,
            ),
        )
        for acl in acls
    ]


def explain_denied(
    asked: DeniedRequest,
    settings: Mapping[int, AclSettings | None],
    bindings: Sequence[Binding],
    caller: Caller,
) -> list[Sentence]:
    """The decision of each broker, with its rule; of a denial also what would allow the request."""
    lines = []
    for decided_by in dict.fromkeys(settings.values()):
        ids = [str(id_) for id_, own in settings.items() if own == decided_by]
        brokers = f"broker {', '.join(ids)}: " if len(set(settings.values())) > 1 else ""
        if decided_by is None:
            lines.append(
                sentence(
                    f"{brokers}{asked}: allowed, because authorizer.class.name is not set: every "
                    "request is allowed"
                )
            )
        else:
            explained = _explained(asked, decided_by, bindings, caller)
            lines += [sentence(brokers, explained[0]), *explained[1:]]
    return lines


def _explained(
    asked: DeniedRequest, settings: AclSettings, bindings: Sequence[Binding], caller: Caller
) -> list[Sentence]:
    # No client has an empty host, so that only ACLs of every host match it.
    requester = Requester(asked.principal, asked.host or "")
    kind, name, _ = asked.resource
    decision = _acls(bindings).decide(settings, requester, asked.operation, kind, name)
    verdict = "allowed" if decision.allowed else "denied"
    reason = _reason(decision.rule, decision.binding, settings)
    lines = [sentence(f"{asked}: {verdict}, because {reason}")]
    if decision.allowed:
        return lines
    if asked.operation is AclOperation.IDEMPOTENT_WRITE and _acls(bindings).allows_any(
        settings, requester, AclOperation.WRITE, ResourceType.TOPIC
    ):
        lines.append(
            sentence("an idempotent producer does not need it: this principal may Write to a topic")
        )
        return lines
    left = list(bindings)
    while decision.binding is not None and not decision.allowed:
        removing = acl_command(decision.binding, caller, "remove")
        lines.append(sentence("to remove that ACL: ", removing))
        left.remove(decision.binding)
        decision = _acls(left).decide(settings, requester, asked.operation, kind, name)
        if decision.rule is AclRule.DENY:
            reason = _reason(*decision[1:], settings)
            lines.append(sentence(f"then it is still denied, because {reason}"))
    if not decision.allowed:
        allow = AclEntry(asked.principal, asked.host or WILDCARD, asked.operation, allowed=True)
        adding = acl_command(Binding(asked.resource, allow), caller, "add")
        lines.append(sentence("to allow it: ", adding))
    return lines


def _acls(bindings: Sequence[Binding]) -> Acls:
    patterns: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in bindings:
        patterns.setdefault(pattern, []).append(entry)
    return Acls(patterns)


def _reason(rule: AclRule, binding: Binding | None, settings: AclSettings) -> str:
    if binding is not None:
        entry = binding.entry
        return (
            f"this ACL {'allows' if entry.allowed else 'denies'} it: {words(entry.operation)} of "
            f"{entry.principal} from host {entry.host} on {described(binding.pattern)}"
        )
    if rule is AclRule.SUPER_USER:
        return "super.users names this principal"
    if rule is AclRule.NO_ACL:
        flag = str(settings.allow_if_no_acl).lower()
        return f"no ACL is on this resource, and allow.everyone.if.no.acl.found is {flag}"
    return "ACLs are on this resource, and none of them allows this to this principal and host"


def described(pattern: ResourcePattern) -> str:
    """A resource, or those of a pattern, in words."""
    kind = words(pattern.resource_type)
    if pattern.resource_type is ResourceType.CLUSTER:
        return "the cluster"
    if pattern.prefixed:
        return f"each {kind} whose name begins with {pattern.name}"
    return f"every {kind}" if pattern.name == WILDCARD else f"{kind} {pattern.name}"


def acl_command(binding: Binding, caller: Caller, action: str) -> Command:
    """The call of `kafka-acls` that adds or removes (`action`) an ACL."""
    return acls_command(binding.pattern, [binding.entry], caller, action)


def acls_command(
    pattern: ResourcePattern, entries: Sequence[AclEntry], caller: Caller, action: str
) -> Command:
    """The same for entries that differ in their operations only."""
    entry = entries[0]
    verb = "allow" if entry.allowed else "deny"
    arguments = [f"--{action}", *flag(f"--{verb}-principal", entry.principal)]
    if entry.host != WILDCARD:
        arguments += flag(f"--{verb}-host", entry.host)
    for each in entries:
        arguments += ["--operation", words(each.operation)]
    arguments += _named(pattern)
    if pattern.prefixed:
        arguments += ["--resource-pattern-type", "prefixed"]
    return caller.kafka("kafka-acls", *arguments)


def _named(pattern: ResourcePattern) -> tuple[str, ...]:
    """A resource as an argument of `kafka-acls` and `odradek why denied`."""
    name = _FLAGS[pattern.resource_type]
    if pattern.resource_type is ResourceType.CLUSTER:
        return (name,)
    return flag(name, pattern.name)
