"""`kafka-acls`: adds, removes and lists ACLs.

Behaviour, flags and texts follow Kafka 3.9's `AclCommand`. ACLs are changed by the brokers, or,
deprecated, in the coordination store itself (`odradek.cli.kafka.support.acls_zookeeper`).
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import odradek.client.admin.security as rights
from odradek.cli.connect import ClientError, NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import IllegalArgumentError, ToolError, java_text
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser, UsageError
from odradek.client.admin.security import Acl
from odradek.client.admin.topics import Outcome
from odradek.client.cluster import Cluster
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, OdradekError
from odradek.model.printable import printable

_ACTIONS: Final = ("add", "remove", "list")
_PATTERNS: Final = {name.lower(): code for name, code in rights.PATTERN_TYPES.items()}
_PATTERN_NAMES: Final = {code: name for name, code in rights.PATTERN_TYPES.items()}
# The option that names a resource, and its type.
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
_OP: Final = AclOperation
_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        _OP.READ, _OP.ALL, _OP.ALTER_CONFIGS, _OP.DESCRIBE_CONFIGS, _OP.DELETE, _OP.WRITE,
        _OP.ALTER, _OP.CREATE, _OP.DESCRIBE,
    ),
    ResourceType.GROUP: (_OP.READ, _OP.DESCRIBE, _OP.DELETE, _OP.ALL),
    ResourceType.CLUSTER: (
        _OP.ALL, _OP.ALTER_CONFIGS, _OP.DESCRIBE_CONFIGS, _OP.IDEMPOTENT_WRITE, _OP.ALTER,
        _OP.CLUSTER_ACTION, _OP.CREATE, _OP.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_OP.DESCRIBE, _OP.WRITE, _OP.ALL),
    ResourceType.DELEGATION_TOKEN: (_OP.DESCRIBE, _OP.ALL),
    ResourceType.USER: (_OP.CREATE_TOKENS, _OP.DESCRIBE_TOKENS, _OP.ALL),
}  # fmt: skip


class Pattern(NamedTuple):
    """Kafka's `ResourcePattern` or a filter for such; printed as Kafka prints it."""

    resource_type: int
    name: str
    pattern_type: int

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={ResourceType(self.resource_type).name}, "
            f"name={printable(self.name)}, patternType={_PATTERN_NAMES[self.pattern_type]})"
        )


class PrintedAcl(NamedTuple):
    """Kafka's `AccessControlEntry`, which is printed as Kafka prints it."""

    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        permission = "ALLOW" if self.permission == rights.ALLOW else "DENY"
        return (
            f"(principal={printable(self.principal)}, host={printable(self.host)}, "
            f"operation={AclOperation(self.operation).name}, permissionType={permission})"
        )


Wanted = dict[Pattern, list[PrintedAcl]]


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments, uncaught=True)
    _check(parser, flags)
    try:
        if flags.has("authorizer-properties"):
            from odradek.cli.kafka.support import acls_zookeeper  # noqa: PLC0415 - few calls need it

            acls_zookeeper.warn()
            if flags.has("command-config"):
                parser.fail(
                    "The --command-config option can only be used with --bootstrap-server option"
                )
            return acls_zookeeper.run(flags, _Work(parser, flags))
        servers = flags.value("bootstrap-server") or flags.text("bootstrap-controller")
        properties = properties_of(flags.value("command-config"))
        return _on_cluster(servers, properties, _Work(parser, flags), flags)
    except UsageError:
        raise
    except ClientError as error:
        summary, _, more = str(error).partition("\n")
        print(f"Error while executing ACL command: {summary}\n", flush=True)
        print(more, file=sys.stderr)
    except (ApiError, NoBrokerError) as error:
        print(f"Error while executing ACL command: {java_text(error)}\n")
    except (OdradekError, ConnectionError) as error:
        print(f"Error while executing ACL command: {error}\n")
    return 1


def _on_cluster(servers: str, properties: Mapping[str, str], work: "_Work", flags: Flags) -> int:
    call = next(call for flag, call in _CALLS.items() if flags.has(flag))
    try:
        return with_cluster(
            servers, properties, lambda cluster: work(ClusterRights(cluster)), call=call
        )
    except NoBrokerError:
        work.announce()
        raise


# The first call of Kafka's tool for each action: its error message names that call.
_CALLS: Final = {"add": "createAcls", "remove": "deleteAcls", "list": "describeAcls"}


def command_line() -> Parser:
    parser = Parser("This tool helps to manage acls on kafka.")
    parser.connection(controllers=True)
    parser.value("authorizer", metavar="class", help="Kafka's AclAuthorizer (deprecated).")
    parser.value(
        "authorizer-properties", metavar="zookeeper.connect=host:port",
        help="Change the coordination store without a broker (deprecated).",
    )  # fmt: skip
    parser.value(
        "zk-tls-config-file", metavar="file",
        help="With --authorizer-properties: zookeeper.ssl.*, one key=value a line.",
    )  # fmt: skip
    parser.flag("add", help="Add ACLs.")
    parser.flag("remove", help="Remove ACLs.")
    parser.flag("list", help="List ACLs, of some resources or of all.")
    parser.value("topic", metavar="name", help="A topic; * for all.")
    parser.flag("cluster", help="The cluster.")
    parser.value("group", metavar="name", help="A consumer group; * for all.")
    parser.value("transactional-id", metavar="id", help="A transactional id; * for all.")
    parser.value("delegation-token", metavar="id", help="A delegation token; * for all.")
    parser.value("user-principal", metavar="principal", help="A user; * for all.")
    parser.flag("idempotent", help="With --producer: allow idempotent writes.")
    parser.value(
        "resource-pattern-type", metavar="type",
        help="literal (default) or prefixed; to list and remove also any or match.",
    )  # fmt: skip
    parser.value("operation", metavar="operation", help="Read, Write, ...; default: All.")
    parser.value("allow-principal", metavar="User:name", help="Principals to allow; * for all.")
    parser.value("deny-principal", metavar="User:name", help="Principals to deny; * for all.")
    parser.value("allow-host", metavar="address", help="Addresses for --allow-principal.")
    parser.value("deny-host", metavar="address", help="Addresses for --deny-principal.")
    parser.value("principal", metavar="User:name", help="With --list: only ACLs of these.")
    parser.flag("producer", help="The ACLs that a producer of a topic needs.")
    parser.flag("consumer", help="The ACLs that a consumer of a topic and group needs.")
    parser.flag("force", help="Do not ask.")
    parser.common()
    return parser


def _check(parser: Parser, flags: Flags) -> None:
    _check_where(parser, flags)
    if sum(map(flags.has, _ACTIONS)) != 1:
        parser.fail("Command must include exactly one action: --list, --add, --remove. ")
    principals = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    parser.refuse(flags, "list", ["producer", "consumer", *principals])
    for role in ("producer", "consumer"):
        parser.refuse(flags, role, ["operation", "deny-principal", "deny-host"])
    if flags.has("principal") and not flags.has("list"):
        parser.fail("The --principal option is only available if --list is set")
    if flags.has("producer") and not flags.has("topic"):
        parser.fail("With --producer you must specify a --topic")
    if flags.has("idempotent") and not flags.has("producer"):
        parser.fail("The --idempotent option is only available if --producer is set")
    others = not flags.has("producer") and (flags.has("cluster") or flags.has("transactional-id"))
    if flags.has("consumer") and (not flags.has("topic") or not flags.has("group") or others):
        parser.fail(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )


def _check_where(parser: Parser, flags: Flags) -> None:
    if flags.has("bootstrap-server") and flags.has("bootstrap-controller"):
        parser.fail("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if flags.has("bootstrap-server") or flags.has("bootstrap-controller"):
        if flags.has("authorizer"):
            parser.fail("Only one of --bootstrap-server or --authorizer must be specified")
        if flags.has("authorizer-properties"):
            parser.fail(
                "The --authorizer-properties option can only be used with --authorizer option"
            )
    else:
        parser.require(flags, "authorizer-properties")


def _pattern_type(flags: Flags) -> int | None:
    return _PATTERNS.get(flags.text("resource-pattern-type", "literal").lower())


# ------------------------------------------------------------------------------------ what is meant


def _patterns(parser: Parser, flags: Flags, *, needed: bool = True) -> list[Pattern]:
    pattern_type = _pattern_type(flags)
    assert pattern_type is not None
    found = [
        Pattern(kind, name.strip(), pattern_type)
        for option, kind in _RESOURCES.items()
        for name in flags.values(option)
    ]
    if pattern_type == rights.LITERAL and (flags.has("cluster") or flags.has("idempotent")):
        found.append(_CLUSTER)
    if not found and needed:
        parser.fail(
            "You must provide at least one resource: --topic <topic> or --cluster or "
            "--group <group> or --delegation-token <Delegation Token ID>"
        )
    return list(dict.fromkeys(found))


_CLUSTER: Final = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, rights.LITERAL)


def _wanted(parser: Parser, flags: Flags) -> Wanted:
    """The entries to add or remove, by resource."""
    patterns = _patterns(parser, flags)
    wanted: Wanted = {}

    def want(kind: ResourceType, *operations: int) -> None:
        for pattern in patterns:
            if pattern.resource_type == kind:
                entries = wanted.setdefault(pattern, [])
                entries += [e for e in _entries(flags, operations) if e not in entries]

    if flags.has("producer"):
        want(ResourceType.TOPIC, _OP.CREATE, _OP.DESCRIBE, _OP.WRITE)
        want(ResourceType.TRANSACTIONAL_ID, _OP.DESCRIBE, _OP.WRITE)
        if flags.has("idempotent"):
            want(ResourceType.CLUSTER, _OP.IDEMPOTENT_WRITE)
    if flags.has("consumer"):
        want(ResourceType.TOPIC, _OP.READ, _OP.DESCRIBE)
        want(ResourceType.GROUP, _OP.READ)
    if not flags.has("producer") and not flags.has("consumer"):
        operations = [_operation(text) for text in flags.values("operation")] or [_OP.ALL]
        entries = list(_entries(flags, dict.fromkeys(operations)))
        wanted = dict.fromkeys(patterns, entries)
    _check_operations(parser, wanted)
    return wanted


def _entries(flags: Flags, operations: Iterable[int]) -> Iterator[PrintedAcl]:
    operations = list(operations)
    for verb, permission in (("allow", rights.ALLOW), ("deny", rights.DENY)):
        principals = [_principal(text) for text in flags.values(f"{verb}-principal")]
        hosts = [host.strip() for host in flags.values(f"{verb}-host")] or ["*"]
        for operation in operations:
            for principal in dict.fromkeys(principals):
                for host in dict.fromkeys(hosts):
                    yield PrintedAcl(principal, host, operation, permission)


def _principal(text: str) -> str:
    kind, colon, name = text.strip().partition(":")
    if not kind or not colon:
        raise IllegalArgumentError(
            f"expected a string in format principalType:principalName but got {text}"
        )
    return f"{kind}:{name}"


def _operation(text: str) -> int:
    plain = text.strip().replace("_", "").lower()
    if plain == "any":
        raise IllegalArgumentError("operation must not be ANY")
    for operation in AclOperation:
        if operation.name.replace("_", "").lower() == plain:
            return operation
    return AclOperation.UNKNOWN


def _check_operations(parser: Parser, wanted: Mapping[Pattern, Sequence[PrintedAcl]]) -> None:
    for pattern, entries in wanted.items():
        kind = ResourceType(pattern.resource_type)
        if any(entry.operation not in _OPERATIONS[kind] for entry in entries):
            names = ", ".join(
                "".join(word.capitalize() for word in operation.name.split("_"))
                for operation in _OPERATIONS[kind]
            )
            parser.fail(f"ResourceType {kind.name} only supports operations {names}")


# ---------------------------------------------------------------------------------------------- act


class _Work:
    """The requested action, which runs after the whole command line has been checked."""

    def __init__(self, parser: Parser, flags: Flags) -> None:
        self._flags = flags
        if _pattern_type(flags) is None:
            raise FlagError(
                f"Cannot parse argument '{flags.value('resource-pattern-type')}' of option "
                "resource-pattern-type"
            )
        self._principals = [_principal(text) for text in flags.values("principal")]
        if flags.has("list"):
            self._patterns = _patterns(parser, flags, needed=False)
            return
        if flags.has("add") and _pattern_type(flags) not in (rights.LITERAL, rights.PREFIXED):
            name = _PATTERN_NAMES[_pattern_type(flags) or rights.ANY]
            parser.fail(
                f"A '--resource-pattern-type' value of '{name}' is not valid when adding acls."
            )
        self._wanted = _wanted(parser, flags)
        if flags.has("add") and not all(self._wanted.values()):
            parser.fail(
                "You must specify one of: --allow-principal, --deny-principal when trying to add "
                "ACLs."
            )

    async def __call__(self, held: "Rights") -> int:
        if self._flags.has("add"):
            await self._add(held)
        elif self._flags.has("remove"):
            await self._remove(held)
        else:
            await self._list(held)
        return 0

    def announce(self) -> None:
        """Print the ACLs to add, as Kafka's tool does before its first request."""
        if self._flags.has("add"):
            pattern, entries = next(iter(self._wanted.items()))
            print(f"Adding ACLs for resource `{pattern}`: \n {_lines(entries)} \n")

    async def _add(self, held: "Rights") -> None:
        for pattern, entries in self._wanted.items():
            print(f"Adding ACLs for resource `{pattern}`: \n {_lines(entries)} \n")
            for error in await held.create([_acl(pattern, e) for e in entries]):
                if error is not None:
                    raise error

    async def _remove(self, held: "Rights") -> None:
        for pattern, entries in self._wanted.items():
            if entries:
                question = (
                    f"Are you sure you want to remove ACLs: \n {_lines(entries)} \n "
                    f"from resource filter `{pattern}`? (y/n)"
                )
            else:
                question = (
                    "Are you sure you want to delete all ACLs for resource filter "
                    f"`{pattern}`? (y/n)"
                )
            if self._flags.has("force") or _confirmed(question):
                filters = [_acl(pattern, entry) for entry in entries] or [_everything(pattern)]
                await held.delete(filters)

    async def _list(self, held: "Rights") -> None:
        filters = [_everything(pattern) for pattern in self._patterns] or [_ALL]
        found: Wanted = {}
        for wanted in filters:
            for acl in await held.describe(wanted):
                pattern = Pattern(acl.resource_type, acl.name or "", acl.pattern_type)
                entry = PrintedAcl(
                    acl.principal or "", acl.host or "", acl.operation, acl.permission
                )
                entries = found.setdefault(pattern, [])
                if entry not in entries:
                    entries.append(entry)
        if not self._principals:
            _print(found)
        for principal in self._principals:
            print(f"ACLs for principal `{principal}`")
            _print({p: [e for e in entries if e.principal == principal]
                    for p, entries in found.items()})  # fmt: skip


class Rights(Protocol):
    """Where ACLs are kept: at the brokers, or in the coordination store."""

    async def describe(self, wanted: Acl) -> list[Acl]:
        """The ACLs that match the filter."""

    async def create(self, acls: Sequence[Acl]) -> list[Outcome]:
        """Add ACLs; of each, its error or None."""

    async def delete(self, filters: Sequence[Acl]) -> object:
        """Remove the ACLs that match one of the filters."""


class ClusterRights:
    """The ACLs of a cluster, through requests to its brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self, wanted: Acl) -> list[Acl]:
        return await rights.describe_acls(self._cluster, wanted)

    async def create(self, acls: Sequence[Acl]) -> list[Outcome]:
        return await rights.create_acls(self._cluster, acls)

    async def delete(self, filters: Sequence[Acl]) -> object:
        return await rights.delete_acls(self._cluster, filters)


_ALL: Final = Acl(ResourceType.ANY, None, rights.ANY, None, None, AclOperation.ANY, rights.ANY)


def _everything(pattern: Pattern) -> Acl:
    return _ALL._replace(
        resource_type=pattern.resource_type, name=pattern.name, pattern_type=pattern.pattern_type
    )


def _acl(pattern: Pattern, entry: PrintedAcl) -> Acl:
    return Acl(
        pattern.resource_type, pattern.name, pattern.pattern_type, entry.principal, entry.host,
        entry.operation, entry.permission,
    )  # fmt: skip


def _print(found: Mapping[Pattern, Sequence[PrintedAcl]]) -> None:
    for pattern, entries in found.items():
        if entries:
            print(f"Current ACLs for resource `{pattern}`: \n {_lines(entries)} \n")


def _lines(entries: Iterable[PrintedAcl]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)


def _confirmed(question: str) -> bool:
    print(question, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise ToolError("no answer (end of input); with --force the tool does not ask")
    return answer.strip().lower() == "y"
