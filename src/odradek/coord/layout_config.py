"""Kafka's znodes for configuration: of topics, brokers, users, clients and addresses.

An entity's overrides are in `/config/<entity path>`, where the entity path is
`topics/T`, `brokers/1`, `brokers/<default>`, `users/U`, `users/U/clients/C`, `clients/C` or
`ips/I`. After each write a sequential notification below `/config/changes` names the entity, and
every broker reads it again. Names are URL-encoded, because a user or client may have any name.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from odradek.coord.znode import dump, parse

CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "config_change_"

_DEFAULT_NODE: Final = "<default>"
_NO_NAMES: Final = frozenset({"", ".", ".."})  # of nodes


def sanitize(name: str) -> str:
    """A name as it is in a path: URL-encoded, as Kafka's `Sanitizer` does."""
    return quote(name, safe="")


class ConfigEntity(NamedTuple):
    """Whose configuration: types and names, outermost first. A name of None is the default.

    `ConfigEntity((("users", "alice"), ("clients", None)))` is the default for alice's clients.
    """

    levels: tuple[tuple[str, str | None], ...]

    @property
    def entity_path(self) -> str:
        """As it is in a change notification: `users/alice/clients/<default>`."""
        return "/".join(
            f"{kind}/{_DEFAULT_NODE if name is None else sanitize(name)}"
            for kind, name in self.levels
        )

    @property
    def path(self) -> str:
        """The znode of its overrides."""
        return f"/config/{self.entity_path}"


def topic_entity(topic: str) -> ConfigEntity:
    return ConfigEntity((("topics", topic),))


def broker_entity(broker: int | None) -> ConfigEntity:
    """A broker; None: the cluster-wide default."""
    return ConfigEntity((("brokers", None if broker is None else str(broker)),))


def parse_entity_path(entity_path: str) -> ConfigEntity:
    """The inverse of `ConfigEntity.entity_path`.

    Raises:
        ValueError: the path is not made of pairs of type and name.
    """
    parts = entity_path.split("/")
    if len(parts) not in (2, 4) or not set(parts).isdisjoint(_NO_NAMES):
        raise ValueError(f"entity path {entity_path!r}, must be type/name or type/name/type/name")
    return ConfigEntity(
        tuple(
            (kind, None if name == _DEFAULT_NODE else unquote(name))
            for kind, name in zip(parts[::2], parts[1::2], strict=True)
        )
    )


def encode_config(overrides: Mapping[str, str]) -> bytes:
    """The overrides of one entity."""
    return dump({"version": 1, "config": dict(overrides)})


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """The overrides of one entity; a node without data, which is only a parent, has none."""
    return parse(path, data).text_map("config") if data else {}


def encode_config_change(entity: ConfigEntity) -> bytes:
    """A notification that this entity's overrides have changed, version 2."""
    return dump({"version": 2, "entity_path": entity.entity_path})


def decode_config_change(path: str, data: bytes | None) -> ConfigEntity:
    """The entity whose overrides have changed; versions 1 (type and name) and 2."""
    fields = parse(path, data)
    version = fields.integer("version")
    if version == 1:
        entity_path = f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    elif version == 2:
        entity_path = fields.text("entity_path")
    else:
        raise fields.wrong(f"version {version}, must be 1 or 2")
    try:
        return parse_entity_path(entity_path)
    except ValueError as error:
        raise fields.wrong(str(error)) from None
