"""The settings of partitions on this broker, which follow from topic and broker options.

One object serves all topics that have no options of their own. A change of the options, of the
broker or of a topic, makes new objects and notifies the replicas.
"""

from collections.abc import Callable, Mapping

from odradek.broker.replication.replica_manager import TopicSettings
from odradek.config.broker import BrokerConfig
from odradek.config.topic import TopicConfig
from odradek.log.log_config import LogConfig
from odradek.record.batch import TimestampType
from odradek.record.compression import Codec, Levels
from odradek.record.validate import ValidationRules
from odradek.replica.throttle import Throttles, throttled_here

_CODECS: Mapping[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class TopicSettingsBook:
    """The settings of all topics."""

    def __init__(
        self, config: BrokerConfig, *, changed: Callable[[str], None] = lambda _topic: None
    ) -> None:
        """`changed` is called with the name of a topic whose own options have changed."""
        self._config = config
        self._changed = changed
        self._defaults = settings_of(config.topic_defaults, config)
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._own: dict[str, TopicSettings] = {}
        # Why stored options of topics have no effect: by topic, then by option.
        self.invalid: dict[str, Mapping[str, str]] = {}

    def topic(self, name: str) -> TopicSettings:
        """The present settings of a topic; one object for all topics without own options."""
        if name not in self._overrides:
            return self._defaults
        own = self._own.get(name)
        if own is None:
            own = self._own[name] = self._made_of(self._overrides[name])
        return own

    def set_topic(self, name: str, overrides: Mapping[str, str]) -> None:
        """Set a topic's own options.

        Raises:
            InvalidConfigError: they are invalid; the former ones stay.
        """
        if dict(self._overrides.get(name, {})) == dict(overrides):
            return
        if overrides:
            self._own[name] = self._made_of(overrides)
            self._overrides[name] = overrides
        else:
            self._own.pop(name, None)
            self._overrides.pop(name, None)
        self._changed(name)

    def set_broker(self, config: BrokerConfig) -> None:
        """Set the broker's options."""
        self._config = config
        self._defaults = settings_of(config.topic_defaults, config)
        self._own.clear()

    def _made_of(self, overrides: Mapping[str, str]) -> TopicSettings:
        return settings_of(self._config.topic(overrides), self._config)


def settings_of(topic: TopicConfig, broker: BrokerConfig) -> TopicSettings:
    """The settings of log, validation and leader, from the options."""
    return TopicSettings(
        log_config=LogConfig(
            cleanup_policy=topic.cleanup_policy,
            segment_bytes=topic.segment_bytes,
            segment_ms=topic.segment_ms,
            segment_jitter_ms=topic.segment_jitter_ms,
            segment_index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            retention_bytes=topic.retention_bytes,
            retention_ms=topic.retention_ms,
            max_message_bytes=topic.max_message_bytes,
            flush_messages=1 if broker.odradek_flush_before_ack else topic.flush_messages,
            flush_ms=topic.flush_ms,
            message_downconversion_enable=topic.message_downconversion_enable,
            file_delete_delay_ms=topic.file_delete_delay_ms,
            delete_retention_ms=topic.delete_retention_ms,
            min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=topic.min_compaction_lag_ms,
            max_compaction_lag_ms=topic.max_compaction_lag_ms,
        ),
        rules=ValidationRules(
            message_bytes_max=topic.max_message_bytes,
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME
                if topic.message_timestamp_type == "LogAppendTime"
                else TimestampType.CREATE_TIME
            ),
            timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
            timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
            compacted="compact" in topic.cleanup_policy,
            codec=_CODECS[topic.compression_type],
            levels=Levels(
                gzip=topic.compression_gzip_level,
                lz4=topic.compression_lz4_level,
                zstd=topic.compression_zstd_level,
            ),
            full=broker.log_validate_records == "full",
        ),
        isr_min=topic.min_insync_replicas,
        throttles=Throttles(
            led=throttled_here(topic.leader_replication_throttled_replicas, broker.broker_id),
            followed=throttled_here(
                topic.follower_replication_throttled_replicas, broker.broker_id
            ),
        ),
    )
