"""The id of a broker whose configuration has none (`broker.id=-1`).

It is generated once, above `reserved.broker.max.id`, from a counter in the store, and kept in
meta.properties of the log directories, where the next start reads it.
"""

from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.config.properties import parse
from odradek.coord import layout
from odradek.coord.store import NodeExistsError, NoNodeError
from odradek.log.directories import META_FILE
from odradek.model.errors import StartupError


async def with_broker_id(config: BrokerConfig, world: World) -> BrokerConfig:
    """The configuration with an id, generated if it has none.

    Raises:
        StartupError: there is none and none may be generated, or log directories differ.
    """
    if config.broker_id >= 0:
        return config
    known = _known_ids(config, world)
    if len(known) > 1:
        raise StartupError(
            f"log.dirs belong to brokers {', '.join(map(str, sorted(known)))}; give each broker "
            "directories of its own"
        )
    if known:
        return config.with_broker_id(known.pop())
    await world.store.open()
    try:
        return config.with_broker_id(config.reserved_broker_max_id + await _count_up(world))
    finally:
        await world.store.close()


def _known_ids(config: BrokerConfig, world: World) -> set[int]:
    found = set()
    for path in config.log_dirs:
        file = f"{path}/{META_FILE}"
        data = world.disk.read_file(file) if world.disk.exists(file) else None
        text = parse(data.decode("latin-1")).get("broker.id") if data else None
        if text is not None and text.isdecimal():
            found.add(int(text))
    return found


async def _count_up(world: World) -> int:
    """The next number: the version of a node that is written for this purpose only."""
    while True:
        try:
            return (await world.store.set_data(layout.BROKER_SEQUENCE_ID, None)).version
        except NoNodeError:
            try:
                await world.store.create(layout.BROKER_SEQUENCE_ID, make_parents=True)
            except NodeExistsError:
                continue
