"""The deprecated part of `kafka-configs`: options written where no broker is up to be asked.

For brokers that are not running, so that they find them when they start. Users' credentials are
created by the brokers' API: with `--bootstrap-server`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from odradek.cli.failures import IllegalArgumentError
from odradek.cli.flags import Flags
from odradek.cli.store import opened_store
from odradek.coord.layout import broker_path
from odradek.coord.layout_config import broker_entity, decode_config, encode_config
from odradek.coord.store import NoNodeError, Store

_WARNING: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to."
)


def run(
    flags: Flags,
    types: Sequence[str],
    names: Sequence[str],
    to_add: Callable[[Flags], dict[str, str]],
    to_delete: Callable[[Flags], list[str]],
) -> int:
    """Describe or alter the options of a broker that does not run. Returns the exit code."""
    print(_WARNING, flush=True)
    if types != ["brokers"]:
        raise IllegalArgumentError(
            f"{', '.join(types)}: only the configuration of brokers can be reached through "
            "ZooKeeper; use --bootstrap-server"
        )
    where = flags.text("zookeeper")
    altering = flags.has("alter")
    added = to_add(flags) if altering else {}
    deleted = to_delete(flags) if altering else []
    asyncio.run(_run(where, names, added, deleted, altering=altering))
    return 0


async def _run(
    where: str,
    names: Sequence[str],
    added: dict[str, str],
    deleted: Sequence[str],
    *,
    altering: bool,
) -> None:
    async with opened_store(where) as store:
        for name in names or [""]:
            await _check_not_running(store, name, "alter" if altering else "describe")
            if altering:
                await _alter(store, name, added, deleted)
            else:
                await _describe(store, name)


async def _check_not_running(store: Store, name: str, verb: str) -> None:
    try:
        live = await store.children(broker_path(0).rpartition("/")[0])
    except NoNodeError:
        live = []
    message = f"requirement failed: --bootstrap-server option must be specified to {verb} brokers"
    only = (
        "Broker configuration operations using ZooKeeper are only supported if the affected "
        "broker(s) are not running."
    )
    if name and name in live:
        raise IllegalArgumentError(f"{message} - broker {name} is running. {only}")
    if not name and live:
        raise IllegalArgumentError(f"{message} - brokers are running. {only}")


async def _read(store: Store, name: str) -> tuple[dict[str, str], int | None]:
    path = broker_entity(int(name) if name else None).path
    (node,) = await store.get_many([path])
    if node is None:
        return {}, None
    return decode_config(path, node[0]), node[1].version


async def _describe(store: Store, name: str) -> None:
    options, _ = await _read(store, name)
    whose = f"brokers '{name}'" if name else "the default brokers"
    told = ",".join(f"{key}={value}" for key, value in options.items())
    print(f"Configs for {whose} are {told}")


async def _alter(store: Store, name: str, added: dict[str, str], deleted: Sequence[str]) -> None:
    options, version = await _read(store, name)
    invalid = [key for key in deleted if key not in options]
    if invalid:
        raise IllegalArgumentError(f"Invalid config(s): {','.join(invalid)}")
    changed = {key: value for key, value in (options | added).items() if key not in deleted}
    path = broker_entity(int(name) if name else None).path
    data = encode_config(changed)
    if version is None:
        await store.create(path, data, make_parents=True)
    else:
        await store.set_data(path, data, version)
    whose = f"broker: {name}" if name else "the default broker"
    print(f"Completed updating config for entity: {whose}.")
