"""The options that a test passes to the kit: each exists, and allows its value.

A broker keeps an option that it does not know, as Kafka does, because a plug-in may read it. A test
whose option has no effect would test something else than it says, so the kit refuses it.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from odradek.config.broker import BROKER_OPTIONS, find, parse
from odradek.config.topic import TOPIC_OPTIONS
from odradek.testkit.errors import KitError

_PORTS: Final = "each broker has free ports, and `bootstrap` names them"
_FILES: Final = "the files are in a folder that is removed at the end"
_STORE: Final = "the brokers have a coordination store of their own"
_OWN: Final = {
    "broker.id": "brokers are numbered from 0",
    "node.id": "brokers are numbered from 0",
    "listeners": _PORTS,
    "odradek.http.host": _PORTS,
    "odradek.http.port": _PORTS,
    "log.dir": _FILES,
    "log.dirs": _FILES,
    "odradek.store.path": _STORE,
    "zookeeper.connect": _STORE,
}


def broker_options(properties: Mapping[str, object]) -> dict[str, str]:
    """Options of brokers as texts.

    Raises:
        KitError: an option does not exist, or is set by the kit.
        InvalidConfigError: an option does not allow its value.
    """
    for name in properties:
        if name in _OWN:
            raise KitError(f"{name}: it is set by the kit: {_OWN[name]}")
        if find(name) is None:
            raise KitError(f"{name}: there is no such broker option{_meant(name, BROKER_OPTIONS)}")
    texts = {name: _text(value) for name, value in properties.items()}
    parse(texts)
    return texts


def topic_options(configs: Mapping[str, object]) -> dict[str, str]:
    """Options of a topic as texts, by Kafka's names; their values are checked by the broker.

    Raises:
        KitError: an option does not exist.
    """
    texts = {name.replace("_", "."): _text(value) for name, value in configs.items()}
    for name in texts:
        if name not in TOPIC_OPTIONS:
            raise KitError(f"{name}: there is no such topic option{_meant(name, TOPIC_OPTIONS)}")
    return texts


def _meant(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _text(value: object) -> str:
    """A value as in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
