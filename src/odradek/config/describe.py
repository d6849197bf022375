"""DescribeConfigs: every option of a topic or broker, its value, and its source.

The synonyms of an option are all the settings that it can take its value from, the one in effect
first: a topic's own, then for each source, most specific first, the broker's options in
their order of precedence. As Kafka does, those before the option that is described are left
out, and so `retention.ms` has none where only `log.retention.hours` is set.

An unknown name that is set may be a password: its value is not returned.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.config.broker import BROKER_OPTIONS, BrokerConfig, base_name, find
from odradek.config.option import Option, Type, Value
from odradek.config.topic import SYNONYMS, TOPIC_OPTIONS, TopicConfig


class ConfigSource(IntEnum):
    """The source of a value, with the codes of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class SynonymEntry(NamedTuple):
    """One setting that an option can take its value from."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedOption(NamedTuple):
    """One option in a DescribeConfigs response."""

    name: str
    value: str | None  # None: unset, or sensitive
    read_only: bool
    source: ConfigSource
    sensitive: bool
    synonyms: tuple[SynonymEntry, ...]
    type: Type
    documentation: str


# Options that set the same thing, in their order of precedence.
_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: family for family in _FAMILIES for name in family},
    # In one direction only: the scheduler's interval is an option of its own.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


def describe_topic(
    config: TopicConfig, broker: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedOption]:
    own = config.overrides
    return [
        _topic_entry(name, config, broker)
        for name in _asked_for({**TOPIC_OPTIONS, **own}, names, lambda _: True)
    ]


def describe_broker(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedOption]:
    known = {**BROKER_OPTIONS, **broker.static, **broker.dynamic_default, **broker.dynamic}

    def listed(name: str) -> bool:
        option = BROKER_OPTIONS.get(name)
        return option is None or not option.internal or _is_set(broker, name)

    return [
        _broker_entry(name, broker, tuple(_broker_synonyms(broker, name)))
        for name in _asked_for(known, names, listed)
    ]


def describe_broker_default(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedOption]:
    """The dynamic default options of all brokers, or only those in `names`."""
    entries = []
    for name in _asked_for(broker.dynamic_default, names, lambda _: True):
        synonyms = tuple(
            synonym
            for synonym in _broker_synonyms(broker, name)
            if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
        )
        entry = _broker_entry(name, broker, synonyms)
        # A value set for this broker only is not the default's.
        own = None if entry.sensitive else broker.dynamic_default[name]
        entries.append(entry._replace(value=own))
    return entries


def _asked_for(
    known: Collection[str], names: Collection[str] | None, listed: Callable[[str], bool]
) -> Iterator[str]:
    wanted = None if names is None else frozenset(names)
    return (name for name in known if (wanted is None or name in wanted) and listed(name))


def _is_set(broker: BrokerConfig, name: str) -> bool:
    return name in broker.static or name in broker.dynamic or name in broker.dynamic_default


def _topic_entry(name: str, config: TopicConfig, broker: BrokerConfig) -> DescribedOption:
    option = TOPIC_OPTIONS.get(name)
    value = None if option is None else option.render(config.values[name])
    synonyms: list[SynonymEntry] = []
    if name in config.overrides:
        synonyms.append(SynonymEntry(name, value, ConfigSource.TOPIC))
    if name in SYNONYMS:
        synonyms += _broker_synonyms(broker, SYNONYMS[name][0].name)
    return DescribedOption(
        name=name,
        value=value,
        read_only=False,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        sensitive=option is None or option.is_sensitive,
        synonyms=tuple(synonyms),
        type=Type.UNKNOWN if option is None else option.type,
        documentation="" if option is None else document(option),
    )


def _broker_entry(
    name: str, broker: BrokerConfig, synonyms: tuple[SynonymEntry, ...]
) -> DescribedOption:
    option = find(name)
    sensitive = option is None or option.is_sensitive
    declared = BROKER_OPTIONS.get(name)
    return DescribedOption(
        name=name,
        value=None if option is None or sensitive else _value(option, name, broker),
        # The throttles are dynamic, but Kafka reports options outside its table as read-only.
        read_only=declared is None or not declared.is_dynamic or declared.internal,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        sensitive=sensitive,
        synonyms=synonyms,
        type=Type.UNKNOWN if option is None else option.type,
        documentation="" if option is None else document(option),
    )


def _value(option: Option, name: str, broker: BrokerConfig) -> str | None:
    return option.render(broker.values[name])


def _broker_synonyms(broker: BrokerConfig, name: str) -> Iterator[SynonymEntry]:
    """The synonyms of a broker's option, from the first setting under its own name on."""
    behind = _BROKER_SYNONYMS.get(name, (name,))
    if (base := base_name(name)) is not None:
        behind = (name, base)
    option = find(name)
    sensitive = option is None or option.is_sensitive
    begun = False
    for source, settings in (
        (ConfigSource.DYNAMIC_BROKER, broker.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.dynamic_default),
        (ConfigSource.STATIC_BROKER, broker.static),
        (ConfigSource.DEFAULT, _DEFAULT_TEXTS),
    ):
        for other in behind:
            text = settings.get(other)
            begun = begun or (other == name and text is not None)
            if begun and text is not None:
                yield SynonymEntry(other, None if sensitive else text, source)


def document(option: Option) -> str:
    """The documentation of an option, and whether it has no effect here."""
    if option.effect:
        return option.doc
    return f"{option.doc} It has no effect on this broker.".lstrip()


def _text(option: Option, value: Value) -> str | None:
    return None if option.internal else option.render(value)


_DEFAULT_TEXTS: Final[Mapping[str, str]] = {
    name: text
    for name, option in BROKER_OPTIONS.items()
    if (text := _text(option, option.default)) is not None
}
