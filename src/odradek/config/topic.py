"""Topic configuration: the table of options, and a topic's values with those of its broker.

A topic's option has the first of these values that is set:

    the topic's own > dynamic for this broker > dynamic for all > server.properties > default

All but the first belong to the broker, under other names (`SYNONYMS`), some in coarser units:
`retention.ms` is the first one set of `log.retention.ms`,
`log.retention.minutes` and `log.retention.hours`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.config.option import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    VERSION,
    ConfigConflictError,
    Option,
    Rule,
    Value,
    at_least,
    between,
    between_or,
    one_of,
    table,
)


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
        policy = values["cleanup.policy"]
        assert isinstance(policy, tuple)
        attributes["cleanup_policy"] = frozenset(policy)
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
                    assert isinstance(value, int)
                    value *= synonym.factor
                values[name] = value
                break
    retention_ms = values["retention.ms"]
    assert isinstance(retention_ms, int)
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
    assert isinstance(value, tuple)
    if value == ("*",):
        return None
    for word in value:
        partition, _, broker = word.partition(":")
        if not (partition.isdecimal() and broker.isdecimal()):
            return value, (
                "{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
    return None


THROTTLED: Final = Rule("partition:broker,partition:broker,... or *", _throttled)

# fmt: off
TOPIC_OPTIONS: Final = table((
    Option(
        "cleanup.policy", LIST, ("delete",), rule=one_of("compact", "delete"),
        doc="How old records are removed: `delete` by age and size, `compact` keeps the last "
            "record of each key, or both.",
    ),
    Option(
        "compression.gzip.level", INT, -1, rule=between_or(1, 9, -1),
        doc="The level of gzip if the leader compresses; -1: gzip's own default.",
    ),
    Option(
        "compression.lz4.level", INT, 9, rule=between(1, 17),
        doc="The level of lz4 if the leader compresses.",
    ),
    Option(
        "compression.type", STRING, "producer", rule=one_of("uncompressed", "zstd", "lz4",
        "snappy", "gzip", "producer"),
        doc="How batches are compressed in the log: `producer` keeps the producer's codec; with "
            "another value the leader recompresses.",
    ),
    Option(
        "compression.zstd.level", INT, 3, rule=between(-131_072, 22),
        doc="The level of zstd if the leader compresses.",
    ),
    Option(
        "delete.retention.ms", LONG, 86_400_000, rule=at_least(0),
        doc="How long tombstones stay in a compacted topic, for consumers that read from the "
            "beginning.",
    ),
    Option(
        "file.delete.delay.ms", LONG, 60_000, rule=at_least(0),
        doc="How long the renamed files of a deleted segment stay for readers that have them "
            "open.",
    ),
    Option(
        "flush.messages", LONG, LONG_MAX, rule=at_least(1),
        doc="The log is flushed after this many records. By default the kernel decides: "
            "replication, not the disk, makes records durable.",
    ),
    Option(
        "flush.ms", LONG, LONG_MAX, rule=at_least(0),
        doc="The log is flushed after this time.",
    ),
    Option(
        "follower.replication.throttled.replicas", LIST, (), rule=THROTTLED,
        doc="The followers whose replication is throttled: `partition:broker`, separated by "
            "commas, or `*` for all.",
    ),
    Option(
        "index.interval.bytes", INT, 4_096, rule=at_least(0),
        doc="The index gets an entry after this many bytes of records.",
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
        "max.compaction.lag.ms", LONG, LONG_MAX, rule=at_least(1),
        doc="How long a record may stay uncompacted, whatever the ratio.",
    ),
    Option(
        "max.message.bytes", INT, 1_048_588, rule=at_least(0),
        doc="The largest batch that is accepted, after compression.",
    ),
    Option(
        "message.downconversion.enable", BOOLEAN, True, effect=False,
        doc="Whether Apache Kafka converts records to formats older than 0.11 for old consumers. "
            "Odradek does not support such consumers.",
    ),
    Option(
        "message.format.version", STRING, "3.0-IV1", rule=VERSION, effect=False,
        doc="Ignored, as Kafka does since 3.0: records are always written in format v2.",
    ),
    Option(
        "message.timestamp.after.max.ms", LONG, LONG_MAX, rule=at_least(0),
        doc="With `CreateTime`, how far a record's timestamp may be after the leader's clock; "
            "other records are refused.",
    ),
    Option(
        "message.timestamp.before.max.ms", LONG, LONG_MAX, rule=at_least(0),
        doc="With `CreateTime`, how far a record's timestamp may be before the leader's clock; "
            "other records are refused.",
    ),
    Option(
        "message.timestamp.difference.max.ms", LONG, LONG_MAX, rule=at_least(0),
        doc="The former name of both `message.timestamp.before.max.ms` and "
            "`message.timestamp.after.max.ms`; used for the one that is not set.",
    ),
    Option(
        "message.timestamp.type", STRING, "CreateTime", rule=one_of("CreateTime",
        "LogAppendTime"),
        doc="Whose clock sets the timestamps of records: the producer's (`CreateTime`) or the "
            "leader's (`LogAppendTime`).",
    ),
    Option(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, rule=between(0, 1),
        doc="The fraction of the log that must be uncleaned before the log is cleaned.",
    ),
    Option(
        "min.compaction.lag.ms", LONG, 0, rule=at_least(0),
        doc="How long a record stays uncompacted, at least.",
    ),
    Option(
        "min.insync.replicas", INT, 1, rule=at_least(1),
        doc="How many replicas must be in sync for a write with acks=all. With a larger value "
            "than the number of replicas such writes fail.",
    ),
    Option(
        "preallocate", BOOLEAN, False, effect=False,
        doc="Whether the file of a new segment is preallocated.",
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
    Option(
        "retention.bytes", LONG, -1,
        doc="The size of a partition above which its oldest segments are deleted; -1: no limit.",
    ),
    Option(
        "retention.ms", LONG, 604_800_000, rule=at_least(-1),
        doc="How long records are kept, at least; -1: for ever. A whole segment is deleted when "
            "its newest record is older.",
    ),
    Option(
        "segment.bytes", INT, 1_073_741_824, rule=at_least(14),
        doc="The log is rolled to a new segment before the active one would exceed this size.",
    ),
    Option(
        "segment.index.bytes", INT, 10_485_760, rule=at_least(4),
        doc="The maximum size of a segment's index; a full index rolls the segment.",
    ),
    Option(
        "segment.jitter.ms", LONG, 0, rule=at_least(0),
        doc="A random time up to this is subtracted from the time to roll, so that not all "
            "partitions roll at once.",
    ),
    Option(
        "segment.ms", LONG, 604_800_000, rule=at_least(1),
        doc="A segment is rolled when its first record is this old, whatever its size.",
    ),
    Option(
        "unclean.leader.election.enable", BOOLEAN, False,
        doc="Whether a replica outside the ISR may lead if no in-sync replica is online. "
            "Committed records may be lost.",
    ),
))

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
# fmt: on
