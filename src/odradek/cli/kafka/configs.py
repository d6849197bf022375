"""`kafka-configs`: describe and alter options of topics and brokers, quotas, SCRAM credentials.

Behaviour, flags and texts follow Kafka 3.9's `ConfigCommand`. A broker's options are changed one
by one (KIP-339), so that an unknown key does not block every later change, as it does in
Kafka. Quotas and credentials are in `odradek.cli.kafka.support.configs_quotas`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import odradek.client.admin.topics as admin
from odradek.cli.connect import NoBrokerError, properties_of, with_cluster
from odradek.cli.failures import (
    FORMAT,
    FORMAT_WARNING,
    IllegalArgumentError,
    InvalidConfigurationError,
    ToolError,
    java_text,
)
from odradek.cli.kafka.support.configs_quotas import (
    alter_clients,
    alter_ips,
    describe_clients,
    describe_ips,
)
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser, UsageError
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.names import topic_name_problem
from odradek.model.printable import printable

_TYPES: Final = ("topics", "clients", "users", "brokers", "ips", "broker-loggers", "client-metrics")
_ZOOKEEPER_TYPES: Final = ("users", "brokers")
# Options that stand for --entity-type and --entity-name: option, entity type.
_NAMED: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
}
_DEFAULTS: Final = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
_RESOURCES: Final = {
    "topics": (admin.TOPIC, "DYNAMIC_TOPIC_CONFIG"),
    "brokers": (admin.BROKER, "DYNAMIC_BROKER_CONFIG"),
    "broker-loggers": (admin.BROKER_LOGGER, None),
    "client-metrics": (admin.CLIENT_METRICS, "DYNAMIC_CLIENT_METRICS_CONFIG"),
}


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments)
    try:
        _check(parser, flags)
        if flags.has("zookeeper"):
            return _zookeeper(flags)
        properties = properties_of(flags.value("command-config"))
        servers = flags.text("bootstrap-server") or flags.text("bootstrap-controller")
        return with_cluster(
            servers, properties, lambda cluster: _run(cluster, flags), call="describeConfigs"
        )
    except UsageError:
        raise
    except (IllegalArgumentError, InvalidConfigurationError, FlagError) as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
    except (OdradekError, OSError) as error:
        if isinstance(error, NoBrokerError) and flags.has("describe"):
            _print_heading(flags)
        sys.stdout.flush()
        given = " ".join(arguments)
        print(f"Error while executing config command with args '{given}'", file=sys.stderr)
        print(java_text(error), file=sys.stderr)
    return 1


def command_line() -> Parser:
    parser = Parser(
        "This tool helps to manipulate and describe entity config for a topic, client, user, "
        "broker, ip or client-metrics"
    )
    parser.value("zookeeper", metavar="host:port", help="ZooKeeper, while no broker runs.")
    parser.connection(controllers=True)
    parser.flag("alter", help="Change options of an entity.")
    parser.flag("describe", help="Show options of entities.")
    parser.flag("all", help="With --describe: all options, not only those set dynamically.")
    parser.value(
        "entity-type",
        metavar="type",
        help="topics, clients, users, brokers, ips, broker-loggers or client-metrics.",
    )
    parser.value("entity-name", metavar="name", help="The entity: a name, or a broker's id.")
    parser.flag("entity-default", help="The default entity of clients, users, brokers or ips.")
    parser.value(
        "add-config",
        metavar="k1=v1,k2=[v1,v2]",
        help="Options to set; in [ ] a value may have commas.",
    )
    parser.value("add-config-file", metavar="file", help="Options to set, one key=value a line.")
    parser.value("delete-config", metavar="k1,k2", help="Options to remove.", separator=",")
    parser.flag("force", help="Accepted for compatibility, without effect.")
    for name, kind in _NAMED.items():
        parser.value(name, metavar="name", help=f"Short for --entity-type {kind} --entity-name.")
    for name, kind in _DEFAULTS.items():
        parser.flag(name, help=f"Short for --entity-type {kind} --entity-default.")
    parser.value("zk-tls-config-file", metavar="file", help="TLS properties for --zookeeper.")
    parser.common()
    return parser


# ------------------------------------------------------------------------------------ which


def entity_types(flags: Flags) -> list[str]:
    """The entity types, in the order given."""
    short = [kind for name, kind in (_NAMED | _DEFAULTS).items() if flags.has(name)]
    return flags.values("entity-type") + short


def entity_names(flags: Flags) -> list[str]:
    """The entity names, in the order given; "" is the default entity."""
    names = iter(flags.values("entity-name"))
    given = [
        next(names) if "entity-name" in option.names else ""
        for option in flags.order
        if "entity-name" in option.names or "entity-default" in option.names
    ]
    given += [flags.text(name) for name in _NAMED if flags.has(name)]
    return given + [""] * sum(map(flags.has, _DEFAULTS))


def _check(parser: Parser, flags: Flags) -> None:
    if flags.has("alter") == flags.has("describe"):
        parser.fail("Command must include exactly one action: --describe, --alter")
    parser.refuse(flags, "describe", ["alter", "add-config", "delete-config"])
    types = entity_types(flags)
    _check_types(flags, types)
    _check_connection(flags)
    _check_names(types, entity_names(flags))
    if flags.has("describe"):
        if "broker-loggers" in types and not any(entity_names(flags)):
            raise IllegalArgumentError(
                f"an entity name must be specified with --describe of {','.join(types)}"
            )
        return
    _check_alter(flags, types, entity_names(flags))


def _check_types(flags: Flags, types: Sequence[str]) -> None:
    twice = [kind for at, kind in enumerate(types) if kind in types[:at]]
    if twice:
        raise IllegalArgumentError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    allowed: tuple[str, ...] = _TYPES
    connection = "--bootstrap-server or --bootstrap-controller"
    if not flags.has("bootstrap-server") and not flags.has("bootstrap-controller"):
        allowed, connection = _ZOOKEEPER_TYPES, "--zookeeper"
    for kind in types:
        if kind not in allowed:
            raise IllegalArgumentError(
                f"Invalid entity type {kind}, the entity type must be one of "
                f"{', '.join(allowed)} with a {connection} argument"
            )
    if not types:
        raise IllegalArgumentError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise IllegalArgumentError(
            "Only 'users' and 'clients' entity types may be specified together"
        )
    general = ("entity-name", "entity-type", "entity-default")
    if any(map(flags.has, general)) and any(map(flags.has, (*_NAMED, *_DEFAULTS))):
        raise IllegalArgumentError(
            "--entity-{type,name,default} should not be used in conjunction with specific "
            "entity flags"
        )


def _check_connection(flags: Flags) -> None:
    ways = sum(map(flags.has, ("bootstrap-server", "bootstrap-controller", "zookeeper")))
    if ways > 1:
        raise IllegalArgumentError(
            # Kafka's spelling, because scripts search for this message.
            "Only one of --bootstrap-server, --boostrap-controller, and --zookeeper can be "
            "specified"
        )
    if ways == 0:
        raise IllegalArgumentError(
            "One of the required --bootstrap-server, --bootstrap-controller, or --zookeeper "
            "arguments must be specified"
        )
    if flags.has("all") and flags.has("zookeeper"):
        raise IllegalArgumentError("--bootstrap-server must be specified for --all")
    if flags.has("zk-tls-config-file") and not flags.has("zookeeper"):
        raise IllegalArgumentError(
            "Only the --zookeeper option can be used with the --zk-tls-config-file option."
        )


def _check_names(types: Sequence[str], names: Sequence[str]) -> None:
    for name in filter(None, names):
        if types[0] in ("brokers", "broker-loggers") and not _is_id(name):
            raise IllegalArgumentError(
                f"The entity name for {types[0]} must be a valid integer broker id, "
                f"but it is: {name}"
            )
        if types[0] == "ips" and not _is_host(name):
            raise IllegalArgumentError(
                f"The entity name for {types[0]} must be a valid IP or resolvable host, "
                f"but it is: {name}"
            )


def _is_id(name: str) -> bool:
    digits = name[1:] if name[:1] in ("-", "+") else name
    return digits.isascii() and digits.isdecimal()


def _is_host(name: str) -> bool:
    import socket  # noqa: PLC0415 - for entity type ips only

    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def _check_alter(flags: Flags, types: Sequence[str], names: Sequence[str]) -> None:
    if {"users", "clients", "brokers", "ips"} & set(types):
        if not names:
            raise IllegalArgumentError(
                "an entity-name or default entity must be specified with --alter of "
                "users, clients, brokers or ips"
            )
    elif not any(names):
        raise IllegalArgumentError(
            f"an entity name must be specified with --alter of {', '.join(types)}"
        )
    if len(names) != len(types):
        raise IllegalArgumentError("An entity name must be specified for every entity type")
    if flags.has("add-config") and flags.has("add-config-file"):
        raise IllegalArgumentError(
            "Only one of --add-config or --add-config-file must be specified"
        )
    if not any(map(flags.has, ("add-config", "add-config-file", "delete-config"))):
        raise IllegalArgumentError(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with --alter"
        )


# ------------------------------------------------------------------------------ what to change


def to_add(flags: Flags) -> dict[str, str]:
    """The options to set, from --add-config and --add-config-file.

    Raises:
        IllegalArgumentError: a word is not of the form key=value.
        OSError, InvalidConfigError: the file cannot be read.
    """
    added: dict[str, str] = {}
    file = flags.value("add-config-file")
    if file is not None:
        added |= properties_of(file)
    if flags.has("add-config"):
        pairs = _split(flags.text("add-config"), ",")
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()  # `String.split` drops an empty end
        for pair in pairs:
            parts = _split(pair, "=")
            if len(parts) != 2:
                raise IllegalArgumentError(
                    "requirement failed: Invalid entity config: all configs to be added must be in "
                    'the format "key=val".'
                )
            added[parts[0].strip()] = parts[1].replace("[", "").replace("]", "").strip()
    _check_keys(added)
    if FORMAT in added:
        print(FORMAT_WARNING.format(added[FORMAT]))
    return added


def to_delete(flags: Flags) -> list[str]:
    deleted = [name.strip() for name in flags.values("delete-config")]
    _check_keys(deleted)
    return deleted


def _split(text: str, separator: str) -> list[str]:
    """Split at separators that are not inside of brackets."""
    parts, begin = [], 0
    for at, letter in enumerate(text):
        if letter == separator:
            ahead = text[at + 1 :]
            closing, opening = ahead.find("]"), ahead.find("[")
            if closing < 0 or 0 <= opening < closing:
                parts.append(text[begin:at])
                begin = at + 1
    return [*parts, text[begin:]]


def _check_keys(keys: Sequence[str] | Mapping[str, str]) -> None:
    for key in keys:
        bare = key.replace(".", "").replace("_", "").replace("-", "")
        if bare and not (bare.isascii() and bare.isalnum()):
            raise IllegalArgumentError(f"Invalid character found for config key: {key}")


# ---------------------------------------------------------------------------------------- act


async def _run(cluster: Cluster, flags: Flags) -> int:
    types, names = entity_types(flags), entity_names(flags)
    if flags.has("alter"):
        await _alter(cluster, types, names, flags)
    elif types[0] in _RESOURCES:
        name = names[0] if names else None
        await _describe(cluster, types[0], name, everything=flags.has("all"))
    elif types[0] == "ips":
        await describe_ips(cluster, names)
    else:
        await describe_clients(cluster, types, names)
    return 0


async def _alter(
    cluster: Cluster, types: Sequence[str], names: Sequence[str], flags: Flags
) -> None:
    added, deleted = to_add(flags), to_delete(flags)
    if types[0] in _RESOURCES:
        await _alter_resource(cluster, types[0], names[0], added, deleted)
    elif types[0] == "ips":
        await alter_ips(cluster, names, added, deleted)
    else:
        await alter_clients(cluster, types, names, added, deleted)
    if names[0]:
        print(f"Completed updating config for {types[0][:-1]} {names[0]}.")
    else:
        print(f"Completed updating default config for {types[0]} in the cluster.")


async def _alter_resource(
    cluster: Cluster, kind: str, name: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    known = {entry.name for entry in await _entries(cluster, kind, name)}
    if kind == "broker-loggers":
        invalid = [logger for logger in (*deleted, *added) if logger not in known]
        if invalid:
            raise InvalidConfigurationError(f"Invalid broker logger(s): {','.join(invalid)}")
    invalid = [option for option in deleted if option not in known]
    if invalid:
        raise InvalidConfigurationError(f"Invalid config(s): {','.join(invalid)}")
    changes = [admin.Alteration(option, "", admin.DELETE) for option in deleted]
    changes += [admin.Alteration(option, value) for option, value in added.items()]
    resource = (_RESOURCES[kind][0], name)
    error = (await admin.alter_configs(cluster, {resource: changes})).get(resource)
    if error is not None:
        raise error


async def _describe(cluster: Cluster, kind: str, name: str | None, *, everything: bool) -> None:
    names = list(await _all_of(cluster, kind)) if name is None else [name]
    for entity in names:
        print(_heading(kind, entity, everything=everything))
        entries = await _entries(cluster, kind, entity, synonyms=True, everything=everything)
        for entry in entries:
            synonyms = ", ".join(f"{s}:{n}={_text(v)}" for s, n, v in entry.synonyms)
            print(
                f"  {entry.name}={_text(entry.value)} "
                f"sensitive={'true' if entry.is_sensitive else 'false'} synonyms={{{synonyms}}}"
            )


def _heading(kind: str, entity: str, *, everything: bool) -> str:
    if not entity:
        return f"Default configs for {kind} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {entity} are:"


def _print_heading(flags: Flags) -> None:
    """The line that Kafka's tool has printed before a request can time out."""
    types, names = entity_types(flags), entity_names(flags)
    if types[0] in _RESOURCES and names:
        print(_heading(types[0], names[0], everything=flags.has("all")))


def _text(value: str | None) -> str:
    return "null" if value is None else printable(value)


async def _all_of(cluster: Cluster, kind: str) -> Sequence[str]:
    if kind == "topics":
        return await admin.list_topics(cluster)
    if kind == "client-metrics":
        # KIP-714 (Kafka 3.7): only in KRaft mode.
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The broker does not support LIST_CLIENT_METRICS_RESOURCES",
        )
    state = await admin.describe_cluster(cluster)
    return [*(str(node.id) for node in sorted(state.nodes)), ""]


async def _entries(
    cluster: Cluster, kind: str, name: str, *, synonyms: bool = False, everything: bool = False
) -> list[admin.ConfigEntry]:
    """The dynamic options of an entity, or with --all every option in effect; by name."""
    if kind == "topics":
        problem = topic_name_problem(name)
        if problem is not None:
            raise InvalidTopicError(f"Topic name is invalid: {problem}")
    resource_type, source = _RESOURCES[kind]
    if kind == "brokers" and not name:
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    resource = (resource_type, name)
    described = (await admin.describe_configs(cluster, [resource], synonyms=synonyms))[resource]
    if isinstance(described, ApiError):
        raise described
    wanted = [e for e in described if everything or source is None or e.source == source]
    return sorted(wanted, key=lambda entry: entry.name)


class InvalidTopicError(ToolError):
    """The name is invalid for a topic."""

    exception = "org.apache.kafka.common.errors.InvalidTopicException"


def _zookeeper(flags: Flags) -> int:
    from odradek.cli.kafka.support.configs_zookeeper import run  # noqa: PLC0415 - deprecated, and rarely used

    return run(flags, entity_types(flags), entity_names(flags), to_add, to_delete)
