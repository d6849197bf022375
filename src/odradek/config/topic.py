"""Topic configuration: the table of options, and a topic's values with those of its broker.

A topic's option has the first of these values that is set:

    the topic's own > dynamic for this broker > dynamic for all > server.properties > default

All but the first belong to the broker, under other names (`SYNONYMS`), some in coarser units:
`retention.ms` is the first one set of `log.retention.ms`,
`log.retention.minutes` and `log.retention.hours`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.config.option import (
    BOOLEAN,
    LIST,
    LONG,
    LONG_MAX,
    ConfigConflictError,
    Option,
    Rule,
    Value,
    as_number,
    as_words,
    at_least,
    table,
)
from odradek.config.table_storage import OPTIONS


class Synonym(NamedTuple):
    """A broker's option that a topic's inherits from, and the factor between their units."""

    name: str
    factor: int = 1


class TopicConfig:
    """The values of a topic's options on one broker.

    Immutable. Each attribute is the option of that name with dots for underscores. Topics
    without overrides share one object: the `topic_defaults` of the broker's configuration.
    """

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    follower_replication_throttled_replicas: tuple[str, ...]
    leader_replication_throttled_replicas: tuple[str, ...]
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    # The topic's overrides as they are stored, and the value of every option.
    overrides: Mapping[str, str]
    values: Mapping[str, Value]

    def __init__(self, values: Mapping[str, Value], overrides: Mapping[str, str]) -> None:
        attributes: dict[str, object] = {name: values[key] for name, key in _ATTRIBUTES}
        attributes["cleanup_policy"] = frozenset(as_words(values["cleanup.policy"]))
        difference_ms = values["message.timestamp.difference.max.ms"]
        for name in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
            if attributes[name] == LONG_MAX:
                attributes[name] = difference_ms
        self.__dict__.update(attributes, values=values, overrides=overrides)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a configuration is replaced, not changed")

    def with_overrides(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """The configuration of a topic with these overrides; `self` is the broker's default.

        An unknown name is kept and has no effect: it may be another version's.

        Raises:
            InvalidConfigError: an option does not allow its value.
        """
        if not overrides:
            return self
        return TopicConfig({**self.values, **parse(overrides)}, overrides)


_OVERALL: Final = frozenset({"overrides", "values"})
_ATTRIBUTES: Final = tuple(
    (name, name.replace("_", ".")) for name in TopicConfig.__annotations__ if name not in _OVERALL
)


def parse(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a topic's overrides, each checked by itself.

    Raises:
        InvalidConfigError: an option does not allow its value.
    """
    return {
        name: TOPIC_OPTIONS[name].parse(text)
        for name, text in overrides.items()
        if name in TOPIC_OPTIONS
    }


def inherited(broker_values: Mapping[str, Value]) -> TopicConfig:
    """The configuration of a topic without overrides."""
    values = {name: option.default for name, option in TOPIC_OPTIONS.items()}
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            value = broker_values[synonym.name]
            if value is not None:
                if synonym.factor != 1:
                    value = as_number(value, synonym.name) * synonym.factor
                values[name] = value
                break
    retention_ms = as_number(values["retention.ms"], "retention.ms")
    values["retention.ms"] = max(-1, retention_ms)  # below zero is unlimited, in any unit
    return TopicConfig(values, {})


def check_names(overrides: Mapping[str, str]) -> None:
    """Refuse an option that topics do not have.

    Raises:
        ConfigConflictError: in Kafka's words.
    """
    for name in overrides:
        if name not in TOPIC_OPTIONS:
            raise ConfigConflictError(f"Unknown topic config name: {name}")


def check_together(config: TopicConfig) -> None:
    """Refuse options that contradict each other.

    Raises:
        ConfigConflictError: in Kafka's words.
    """
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if low > high:
        raise ConfigConflictError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) "
            f"> max.compaction.lag.ms ({high})"
        )


# --------------------------------------------------------------------------------- the table


def _throttled(value: Value) -> tuple[object, str] | None:
    if value == ("*",):
        return None
    for word in as_words(value):
        partition, _, broker = word.partition(":")
        if not (partition.isdecimal() and broker.isdecimal()):
            return value, (
                "{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
    return None


THROTTLED: Final = Rule("partition:broker,partition:broker,... or *", _throttled)

# fmt: off
SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.downconversion.enable": (Synonym("log.message.downconversion.enable"),),
    "message.format.version": (Synonym("log.message.format.version"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.difference.max.ms": (Synonym("log.message.timestamp.difference.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", 60_000),
        Synonym("log.retention.hours", 3_600_000),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", 3_600_000),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", 3_600_000)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}

_OWN: Final = (
    Option(
        "follower.replication.throttled.replicas", LIST, (), rule=THROTTLED,
        doc="The followers whose replication is throttled: `partition:broker`, separated by "
            "commas, or `*` for all.",
    ),
    Option(
        "leader.replication.throttled.replicas", LIST, (), rule=THROTTLED,
        doc="The leaders whose replication is throttled: `partition:broker`, separated by "
            "commas, or `*` for all.",
    ),
    Option(
        "local.retention.bytes", LONG, -2, rule=at_least(-2), effect=False,
        doc="With tiered storage, the maximum size of the local part of a partition; -2: as "
            "`retention.bytes`. Odradek has no tiered storage.",
    ),
    Option(
        "local.retention.ms", LONG, -2, rule=at_least(-2), effect=False,
        doc="With tiered storage, how long records stay local; -2: as `retention.ms`. Odradek has "
            "no tiered storage.",
    ),
    Option(
        "remote.log.copy.disable", BOOLEAN, False, effect=False,
        doc="Tiered storage, which Odradek does not have.",
    ),
    Option(
        "remote.log.delete.on.disable", BOOLEAN, False, effect=False,
        doc="Tiered storage, which Odradek does not have.",
    ),
    Option(
        "remote.storage.enable", BOOLEAN, False, effect=False,
        doc="Tiered storage, which Odradek does not have.",
    ),
)
# fmt: on
_RULES: Final = {  # of options whose units or None the broker's rules do not fit
    "flush.ms": at_least(0),
    "retention.ms": at_least(-1),
    "segment.jitter.ms": at_least(0),
    "segment.ms": at_least(1),
}


def _derived(name: str, synonyms: Sequence[Synonym]) -> Option:
    """The topic's option with type, default and text of the broker's option."""
    brokers = [(_BROKER[synonym.name], synonym.factor) for synonym in synonyms]
    first, _ = brokers[0]
    option, factor = next((each for each in brokers if each[0].default is not None), brokers[0])
    default = option.default
    if factor != 1:
        default = as_number(default, name) * factor
    text = first.doc.partition(" Unset: ")[0].replace("`log.", "`")
    rule = _RULES.get(name, first.rule)
    return Option(name, first.type, default, text, rule=rule, effect=first.effect)


_BROKER: Final = {option.name: option for option in OPTIONS}
_OWN_NAMES: Final = {option.name for option in _OWN}
TOPIC_OPTIONS: Final = table(
    sorted(
        [*_OWN, *(_derived(n, s) for n, s in SYNONYMS.items() if n not in _OWN_NAMES)],
        key=lambda option: option.name,
    )
)
