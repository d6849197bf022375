"""The deprecated part of `kafka-configs`: changes the coordination store itself, by `--zookeeper`.

For brokers that do not run yet: their options, which they read when they start, and the SCRAM
credentials with which brokers authenticate each other.
Rules and texts are those of Kafka 3.9's `ConfigCommand`.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.cli.connect import properties_of
from odradek.cli.failures import (
    ConfigError,
    IllegalArgumentError,
    InvalidConfigurationError,
    log_line,
)
from odradek.cli.kafka.support.configs_quotas import credential_of
from odradek.cli.kafka.support.flags import Flags
from odradek.cli.kafka.support.java import hash_order, string_hash
from odradek.cli.store import opened_store
from odradek.client.admin.security import SCRAM_MECHANISMS
from odradek.coord.layout import broker_path
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    decode_config,
    encode_config,
    encode_config_change,
    parse_entity_path,
)
from odradek.coord.store import NoNodeError, Store
from odradek.security.sasl.scram import ITERATIONS_MAX

_WARNING: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to."
)
_NOT_CHECKED: Final = "Setting entity configs without any checks on the controller."
_ONLY_SCRAM: Final = (
    "User configuration updates using ZooKeeper are only supported for SCRAM credential updates."
)
_NOT_RUNNING: Final = (
    "Broker configuration operations using ZooKeeper are only supported if the affected "
    "broker(s) are not running."
)
_MANY_ITERATIONS: Final = (
    "{}: brokers of Odradek refuse a credential of {} iterations: set one of at most "
    f"{ITERATIONS_MAX}."
)
_TYPE_NAMES: Final = {"users": "user-principal", "brokers": "brokers"}


def run(
    flags: Flags,
    types: Sequence[str],
    names: Sequence[str],
    to_add: Callable[[Flags], dict[str, str]],
    to_delete: Callable[[Flags], list[str]],
) -> int:
    """Describe or alter options of a broker, or credentials of a user. Returns the exit code."""
    print(_WARNING, flush=True)
    tls = properties_of(flags.value("zk-tls-config-file"))
    (kind,) = types
    if kind == "brokers" and not names:
        raise IllegalArgumentError(
            "Error parsing broker . The broker's Entity Name must be a single integer value"
        )
    altering = flags.has("alter")
    added = to_add(flags) if altering else {}
    deleted = to_delete(flags) if altering else []

    async def work() -> None:
        where = flags.text("zookeeper")
        async with opened_store(where, tls=tls, creates=altering) as store:
            if altering:
                await _alter(store, _entity(kind, names[0]), added, deleted)
            else:
                await _describe(store, kind, names)

    asyncio.run(work())
    return 0


def _entity(kind: str, name: str) -> ConfigEntity:
    return ConfigEntity(((kind, name or None),))


def _whose(entity: ConfigEntity) -> str:
    ((kind, name),) = entity.levels
    return f"default {_TYPE_NAMES[kind]}" if name is None else f"{_TYPE_NAMES[kind]} '{name}'"


async def _check_not_running(store: Store, name: str | None, message: str) -> None:
    try:
        live = await store.children(broker_path(0).rpartition("/")[0])
    except NoNodeError:
        live = []
    if name is not None and name in live:
        raise IllegalArgumentError(
            f"requirement failed: {message} - broker {name} is running. {_NOT_RUNNING}"
        )
    if name is None and live:
        raise IllegalArgumentError(
            f"requirement failed: {message} - {len(live)} brokers are running. {_NOT_RUNNING}"
        )


async def _read(store: Store, entity: ConfigEntity) -> tuple[dict[str, str], int | None]:
    (node,) = await store.get_many([entity.path])
    if node is None:
        return {}, None
    return decode_config(entity.path, node[0]), node[1].version


# ------------------------------------------------------------------------------------ describe


async def _describe(store: Store, kind: str, names: Sequence[str]) -> None:
    entities = [_entity(kind, name) for name in names]
    if not names:
        entities = [parse_entity_path(f"users/{node}") for node in await _users(store)]
    for entity in entities:
        if kind == "brokers":
            message = "--bootstrap-server option must be specified to describe brokers"
            await _check_not_running(store, entity.levels[0][1], message)
        options, _ = await _read(store, entity)
        if options or names:
            values = ",".join(f"{key}={options[key]}" for key in hash_order(options, string_hash))
            print(f"Configs for {_whose(entity)} are {values}")


async def _users(store: Store) -> list[str]:
    try:
        return sorted(await store.children("/config/users"))
    except NoNodeError:
        return []


# --------------------------------------------------------------------------------------- alter


async def _alter(
    store: Store, entity: ConfigEntity, added: dict[str, str], deleted: Sequence[str]
) -> None:
    ((kind, name),) = entity.levels
    message = (
        f"--bootstrap-server option must be specified to update {kind} configs: "
        f"{{add: {_map(added)}, delete: {_list(deleted)}}}"
    )
    if kind == "users":
        added = _credentials(name, added, deleted, message)
    else:
        await _check_not_running(store, name, message)
        _check_options(added)
    options, version = await _read(store, entity)
    invalid = [key for key in deleted if key not in options]
    if invalid:
        raise InvalidConfigurationError(f"Invalid config(s): {','.join(invalid)}")
    changed = {key: value for key, value in (options | added).items() if key not in deleted}
    if changed:
        print(log_line("WARN", _NOT_CHECKED, "kafka.zk.KafkaZkClient"), file=sys.stderr)
    data = encode_config(changed)
    if version is None:
        await store.create(entity.path, data, make_parents=True)
    else:
        await store.set_data(entity.path, data, version)
    notice = encode_config_change(entity)
    path = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
    await store.create(path, notice, sequential=True, make_parents=True)
    print(f"Completed updating config for entity: {_whose(entity)}.")


def _credentials(
    user: str | None, added: Mapping[str, str], deleted: Sequence[str], message: str
) -> dict[str, str]:
    """The stored form of the credentials with these passwords."""
    if any(key not in SCRAM_MECHANISMS for key in (*added, *deleted)):
        raise IllegalArgumentError(f"requirement failed: {message}. {_ONLY_SCRAM}")
    if user is None:
        raise IllegalArgumentError(
            "requirement failed: Unknown Dynamic Configuration: "
            f"HashSet({', '.join((*added, *deleted))})."
        )
    from odradek.broker.admin.clients import scram_credential  # noqa: PLC0415 - for credentials only

    stored = {}
    for mechanism, text in added.items():
        made = credential_of(mechanism, text, printed=mechanism.replace("-", "_"))
        if made.iterations > ITERATIONS_MAX:
            warning = _MANY_ITERATIONS.format(mechanism, made.iterations)
            print(log_line("WARN", warning, "odradek.cli"), file=sys.stderr)
        number = SCRAM_MECHANISMS[mechanism]
        stored[mechanism] = scram_credential(
            number, made.salt, made.salted_password, made.iterations
        )
    return stored


def _check_options(added: Mapping[str, str]) -> None:
    """Refuse invalid values of known options; unknown options are stored unchecked."""
    from odradek.config.broker import BROKER_OPTIONS, find  # noqa: PLC0415
    from odradek.config.option import InvalidConfigError  # noqa: PLC0415

    fixed = [key for key in added if key in BROKER_OPTIONS and not BROKER_OPTIONS[key].is_dynamic]
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    for key, text in added.items():
        option = find(key)
        try:
            if option is not None:
                option.parse(text)
        except InvalidConfigError as error:
            raise ConfigError(str(error)) from None


def _map(options: Mapping[str, str]) -> str:
    values = ", ".join(f"{key}={options[key]}" for key in hash_order(options, string_hash))
    return f"{{{values}}}"


def _list(keys: Sequence[str]) -> str:
    return f"ArrayBuffer({', '.join(keys)})" if keys else "List()"
