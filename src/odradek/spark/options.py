"""The options of Spark's connector for Kafka, parsed and refused as it does.

Names are case-insensitive, values are text, errors have the connector's text and the given value.
Options that begin with `kafka.` are properties of the Java client. docs/spark.md lists every
option; a test compares the list with this module.
"""

import difflib
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from odradek.client.consumer.settings import CONSUMER
from odradek.client.producer.settings import PRODUCER
from odradek.client.settings import COMMON, ClientSettings, read
from odradek.config.option import Option
from odradek.model.errors import OdradekError
from odradek.model.java_pattern import JavaPatternError, compile_java_pattern
from odradek.model.partition import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1

STRATEGIES: Final = ("assign", "subscribe", "subscribepattern")
# The options of reads and of writes, as they are written in the documentation.
SOURCE_OPTIONS: Final = (
    "assign", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss",
    "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "includeHeaders", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "columns", "pushDownFilters", "commitGroupId",
)  # fmt: skip
SINK_OPTIONS: Final = (
    "topic", "includeHeaders", "exactlyOnce", "transactionalIdPrefix",
)  # fmt: skip
# Options of Spark itself, which passes them to every source and sink: they are not unknown.
_SPARKS: Final = (
    "path", "checkpointlocation", "queryname", "outputmode", "__online_table_query_source",
)  # fmt: skip

# Properties of kafka-clients 3.9 that only concern the Java client: ignored without a warning.
_OF_JAVAS_CLIENTS: Final = (
    "auto.include.jmx.reporter", "client.dns.lookup", "connections.max.idle.ms",
    "enable.metrics.push", "interceptor.classes", "metadata.recovery.strategy", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "security.providers", "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms", "ssl.engine.factory.class",
    "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)  # fmt: skip
_OF_JAVAS_CONSUMER: Final = ("default.api.timeout.ms", "group.remote.assignor")
_OF_JAVAS_PRODUCER: Final = (
    "metadata.max.idle.ms", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "partitioner.class",
)  # fmt: skip
_ANY_NAME: Final = ("sasl.", "spark.")  # login classes and callbacks have many properties

_OFFSETS_LIKE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_ASSIGN_LIKE: Final = '{"topicA":[0,1],"topicB":[0,1]}'
_UNITS_MS: Final = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip

_log = logging.getLogger("odradek.spark")


class OptionError(OdradekError, ValueError):
    """An option is missing or has an invalid value; the text has its name, value and rule."""


class QueryBound(NamedTuple):
    """The start or end of a query: one for all partitions, or one for each.

    kind "offset": `everywhere` is an offset, EARLIEST or LATEST; "timestamp": milliseconds.
    """

    kind: str
    everywhere: int | None
    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of a read. They can be pickled for the workers."""

    assign: tuple[TopicPartition, ...] = ()
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    start: QueryBound
    end: QueryBound
    timestamp_strategy: str = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    records_per_partition_max: int | None = None
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = 15 * 60_000
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    push_down: bool = False
    commit_group: str | None = None
    poll_timeout_ms: int = 120_000
    offset_retries: int = 3
    offset_retry_ms: int = 1_000
    kafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """What is read, for error texts."""
        if self.pattern is not None:
            return f"reading topics like {self.pattern}"
        return f"reading {', '.join(map(str, self.assign or self.subscribe))}"

    @property
    def committed(self) -> bool:
        return self.kafka.get("isolation.level", "read_uncommitted") == "read_committed"


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of a write."""

    topic: str | None = None
    exactly_once: bool = False
    transactional_id_prefix: str = "odradek-spark"
    checkpoint: str | None = None  # of a stream
    kafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """What is written to, for error texts."""
        return f"writing to {self.topic or 'the topics of column topic'}"


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a read.

    Raises:
        OptionError: one is missing, malformed, or not for this kind of query.
    """
    options = _lower(given)
    _tell_unknown(given, SOURCE_OPTIONS)
    kafka = _kafka(given)
    _refuse_kafka(kafka, _REFUSED_OF_SOURCE)
    _need_servers(kafka, "consumer")
    client_values(CONSUMER, kafka)
    _tell_unknown_kafka(kafka, {*CONSUMER, *_OF_JAVAS_CONSUMER})
    strategy = _strategy(options)
    for name in ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp"):
        if streaming and name in options:
            raise OptionError(f"ending offset not valid in streaming queries: {name}")
    start = _place(options, "starting", LATEST if streaming else EARLIEST)
    end = _place(options, "ending", LATEST)
    if not streaming:
        _check_batch(start, end)
    timestamp_strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if timestamp_strategy not in {"error", "latest"}:
        raise OptionError(
            f"Unknown value of startingOffsetsByTimestampStrategy: {timestamp_strategy!r}; must "
            "be error or latest"
        )
    _check_triggers(options)
    return replace(
        ReadOptions(start=start, end=end),
        **strategy,
        timestamp_strategy=timestamp_strategy,
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        min_partitions=_positive(options, "minPartitions"),
        records_per_partition_max=_positive(options, "maxRecordsPerPartition"),
        offsets_per_trigger_max=_positive(options, "maxOffsetsPerTrigger"),
        offsets_per_trigger_min=_positive(options, "minOffsetsPerTrigger"),
        trigger_delay_ms_max=_duration_ms(options.get("maxtriggerdelay", "15m")),
        include_headers=_boolean(options, "includeHeaders", default=False),
        columns=_names(options.get("columns")),
        push_down=_boolean(options, "pushDownFilters", default=False),
        commit_group=options.get("commitgroupid"),
        poll_timeout_ms=_positive(options, "kafkaConsumer.pollTimeoutMs") or 120_000,
        offset_retries=_positive(options, "fetchOffset.numRetries") or 3,
        offset_retry_ms=_positive(options, "fetchOffset.retryIntervalMs") or 1_000,
        kafka=kafka,
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write.

    Raises:
        OptionError: one is missing or malformed.
    """
    options = _lower(given)
    _tell_unknown(given, SINK_OPTIONS)
    kafka = _kafka(given)
    _refuse_kafka(kafka, _REFUSED_OF_SINK)
    _need_servers(kafka, "producer")
    client_values(PRODUCER, kafka)
    _tell_unknown_kafka(kafka, {*PRODUCER, *_OF_JAVAS_PRODUCER})
    if "topic" in options and not options["topic"].strip():
        raise OptionError("option 'topic' is empty; it must name a topic, or be left out")
    return WriteOptions(
        topic=options.get("topic"),
        exactly_once=_boolean(options, "exactlyOnce", default=False),
        transactional_id_prefix=options.get("transactionalidprefix", "odradek-spark"),
        checkpoint=options.get("checkpointlocation"),
        kafka=kafka,
    )


def client_settings(kafka: Mapping[str, str], *, client_id: str) -> ClientSettings:
    """The client settings for these properties.

    Raises:
        OptionError: a property has an invalid value.
    """
    try:
        return ClientSettings.from_properties(kafka, client_id=client_id)
    except OdradekError as error:
        raise OptionError(f"option 'kafka.*': {error}") from None


def client_values(options: Mapping[str, Option], kafka: Mapping[str, str]) -> dict[str, Any]:
    """The values of client properties, with the defaults of the Java client.

    Raises:
        OptionError: a property has an invalid value; the text is Kafka's.
    """
    given = {name: text.strip() for name, text in kafka.items()}
    for name in ("acks", "compression.type"):
        if name in given:
            given[name] = given[name].lower()
    try:
        return {**read(COMMON, given), **read(options, given)}
    except OdradekError as error:
        raise OptionError(f"option 'kafka.*': {error}") from None


def number(kafka: Mapping[str, str], name: str, default: int) -> int:
    """A number among the client's properties.

    Raises:
        OptionError: the value is not a number.
    """
    text = kafka.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal():
        raise OptionError(f"kafka.{name}={text}: must be a number")
    return int(text)


# -------------------------------------------------------------------------- offsets as JSON


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """`{"topicA":{"0":23,"1":-1}}`, as the connector reads and writes it.

    Raises:
        OptionError: the text has another form.
    """
    try:
        return {
            TopicPartition(topic, int(partition)): _integer(offset)
            for topic, partitions in json.loads(text).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f"Expected e.g. {_OFFSETS_LIKE}, got {text}") from None


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    try:
        named = tuple(
            TopicPartition(topic, _integer(partition))
            for topic, partitions in json.loads(text).items()
            for partition in partitions
        )
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f"Expected e.g. {_ASSIGN_LIKE}, got {text}") from None
    if not named:
        raise OptionError(
            f"No topicpartitions to assign as specified value for option 'assign' is '{text}'"
        )
    return named


# -------------------------------------------------------------------------------- the parts

_KEYS: Final = "Use DataFrame operations to explicitly deserialize the"
_REFUSED_OF_SOURCE: Final = {
    "auto.offset.reset": (
        "is not supported.\nInstead set the source option 'startingoffsets' to 'earliest' or "
        "'latest' to specify where to start. Structured Streaming manages which offsets are "
        "consumed internally, rather than relying on the client to do it."
    ),
    "key.deserializer": f"is not supported as keys are deserialized as byte arrays. {_KEYS} keys.",
    "value.deserializer": (
        f"is not supported as values are deserialized as byte arrays. {_KEYS} values."
    ),
    "enable.auto.commit": "is not supported; option commitGroupId commits offsets for lag tools",
    "interceptor.classes": "is not supported: interceptors are Java classes",
}
_REFUSED_OF_SINK: Final = {
    "key.serializer": "is not supported as keys are serialized as byte arrays.",
    "value.serializer": "is not supported as values are serialized as byte arrays.",
    "interceptor.classes": "is not supported: interceptors are Java classes",
    "partitioner.class": "is not supported: partitioners are Java classes; name a column partition",
    "transactional.id": "is not supported: option exactlyOnce names one for each task",
}


def _lower(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _kafka(given: Mapping[str, str]) -> dict[str, str]:
    return {
        name[len("kafka.") :].lower(): value
        for name, value in given.items()
        if name.lower().startswith("kafka.")
    }


def _refuse_kafka(kafka: Mapping[str, str], refused: Mapping[str, str]) -> None:
    for name, why in refused.items():
        if name in kafka:
            raise OptionError(f"Kafka option '{name}' {why}")


def _need_servers(kafka: Mapping[str, str], whose: str) -> None:
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError(
            f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {whose}"
        )


def _tell_unknown(given: Mapping[str, str], known: Sequence[str]) -> None:
    """Warn of unknown options, which the connector ignores without a warning."""
    names = {name.lower(): name for name in known}
    for name in given:
        if name.lower() in names or name.lower() in _SPARKS or name.lower().startswith("kafka."):
            continue
        near = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f"; did you mean {names[near[0]]!r}?" if near else ""
        _log.warning("option %r is unknown to format 'odradek' and has no effect%s", name, hint)


def _tell_unknown_kafka(kafka: Mapping[str, str], known: Collection[str]) -> None:
    names = {*COMMON, *_OF_JAVAS_CLIENTS, *known}
    for name in kafka:
        if name in names or name.startswith(_ANY_NAME):
            continue
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
        hint = f"; did you mean 'kafka.{near[0]}'?" if near else ""
        _log.warning("option 'kafka.%s' is not a property of a Kafka client and has no effect%s",
                     name, hint)  # fmt: skip


def _strategy(options: Mapping[str, str]) -> dict[str, Any]:
    chosen = [name for name in STRATEGIES if name in options]
    listed = "subscribe, subscribePattern, assign"
    if not chosen:
        raise OptionError(
            f"One of the following options must be specified for Kafka source: {listed}"
        )
    if len(chosen) > 1:
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {listed}; "
            f"got {', '.join(chosen)}"
        )
    (name,) = chosen
    value = options[name]
    if name == "assign":
        return {"assign": _parse_assign(value)}
    if name == "subscribe":
        topics = tuple(topic.strip() for topic in value.split(",") if topic.strip())
        if not topics:
            raise OptionError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
            )
        return {"subscribe": topics}
    if not value.strip():
        raise OptionError("Pattern to subscribe is empty as specified value for option "
                          "'subscribePattern' is ''")  # fmt: skip
    try:
        compile_java_pattern(value)
    except JavaPatternError as error:
        raise OptionError(f"subscribePattern={value!r}: no valid pattern: {error}") from None
    return {"pattern": value}


def _place(options: Mapping[str, str], side: str, default: int) -> QueryBound:
    """The start or end; precedence as in the connector: timestamp, timestamps, then offsets."""
    text = options.get(f"{side}timestamp")
    if text is not None:
        if not text.strip().isdecimal():
            raise OptionError(f"{side}Timestamp={text}: must be a timestamp in milliseconds")
        return QueryBound("timestamp", int(text), {})
    text = options.get(f"{side}offsetsbytimestamp")
    if text is not None:
        return QueryBound("timestamp", None, parse_offsets(text))
    text = options.get(f"{side}offsets")
    if text is None:
        return QueryBound("offset", default, {})
    match text.strip().lower():
        case "earliest":
            return QueryBound("offset", EARLIEST, {})
        case "latest":
            return QueryBound("offset", LATEST, {})
        case _:
            return QueryBound("offset", None, parse_offsets(text))


def _check_batch(start: QueryBound, end: QueryBound) -> None:
    if start == QueryBound("offset", LATEST, {}):
        raise OptionError("starting offset can't be latest for batch queries on Kafka")
    if end == QueryBound("offset", EARLIEST, {}):
        raise OptionError("ending offset can't be earliest for batch queries on Kafka")
    for place, word, wrong, name in (
        (start, "starting", LATEST, "latest"),
        (end, "ending", EARLIEST, "earliest"),
    ):
        for partition, offset in place.by_partition.items():
            if place.kind == "offset" and offset == wrong:
                raise OptionError(
                    f"{word}Offsets for {partition} can't be {name} for batch queries on Kafka"
                )


def _check_triggers(options: Mapping[str, str]) -> None:
    least = _positive(options, "minOffsetsPerTrigger")
    most = _positive(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger"
            f"({most})."
        )


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) <= 0:
        raise OptionError(f"{name}={text}: {name} must be positive")
    return int(text)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise OptionError(f"{name}={text}: must be true or false")
    return text == "true"


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _duration_ms(text: str) -> int:
    """Milliseconds of `15m`, `10 s`, `500ms`: Spark's time strings."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise OptionError(f"maxTriggerDelay={text}: must be a duration, like 15m or 30s")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]
