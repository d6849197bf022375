"""Broker configuration: the values of all options from `server.properties` and dynamic changes.

Every option is declared once, in the tables that make up `BROKER_OPTIONS`; the parser,
DescribeConfigs, the check of AlterConfigs and the page of the documentation use them.

An option has the first of these values that is set:

    dynamic for this broker > dynamic for all > server.properties > default

An unknown name is kept and reported, never fatal: it may be a plug-in's, or another version's.
`listener.name.<listener>.<option>` is the option for that listener only.
"""

from collections.abc import Mapping
from typing import Any, Final

from odradek.config import (
    table_cluster,
    table_coordination,
    table_extra,
    table_inert,
    table_security,
    table_storage,
)
from odradek.config.listeners import (
    advertised,
    check_ports,
    parse_connection_limits,
    parse_listeners,
    parse_protocol_map,
)
from odradek.config.option import (
    ConfigConflictError,
    InvalidConfigError,
    Option,
    Value,
    as_number,
    table,
)
from odradek.config.topic import TopicConfig, inherited
from odradek.model.cluster import EndPoint

BROKER_OPTIONS: Final = table(
    (
        *table_cluster.OPTIONS,
        *table_storage.OPTIONS,
        *table_coordination.OPTIONS,
        *table_security.OPTIONS,
        *table_inert.OPTIONS,
        *table_extra.OPTIONS,
    )
)
_DEFAULTS: Final = {name: option.default for name, option in BROKER_OPTIONS.items()}


class BrokerOptions:
    """The options that code reads. Each is the option of that name with dots for underscores."""

    broker_id: int
    broker_id_generation_enable: bool
    reserved_broker_max_id: int
    broker_rack: str | None
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_max_in_flight_requests: int
    zookeeper_set_acl: bool
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_type: str | None
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_type: str | None
    zookeeper_ssl_keystore_password: str | None
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None
    zookeeper_ssl_endpoint_identification_algorithm: str

    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool
    delegation_token_secret_key: str | None
    delegation_token_master_key: str | None
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int

    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connection_creation_rate: int
    max_connections_per_ip: int
    connections_max_idle_ms: int

    log_retention_check_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_validate_records: str
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_backoff_ms: int

    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_alter_log_dirs_io_max_bytes_per_second: int
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    alter_log_dirs_replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_size_seconds: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    controller_socket_timeout_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int

    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_commit_timeout_ms: int
    offset_metadata_max_bytes: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_initial_rebalance_delay_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    transaction_max_timeout_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_partition_verification_enable: bool
    odradek_transaction_version_max: int
    odradek_controller_events_max_bytes: int
    request_timeout_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    odradek_store_path: str | None
    odradek_zookeeper_digest: str | None
    odradek_http_host: str
    odradek_http_port: int
    odradek_http_allowed_hosts: tuple[str, ...]
    odradek_http_token_file: str | None
    odradek_connection_responses_max_bytes: int
    odradek_connections_memory_max_bytes: int
    odradek_metadata_hold_ms: int
    odradek_unauthenticated_memory_max_bytes: int
    odradek_unauthenticated_timeout_ms: int
    odradek_flush_before_ack: bool


ATTRIBUTES: Final = tuple((name, name.replace("_", ".")) for name in BrokerOptions.__annotations__)

_REPORTED_ELSEWHERE: Final = frozenset({"node.id"})  # it means `broker.id`


class BrokerConfig(BrokerOptions):
    """A broker's configuration; immutable. A change makes a new one: `with_dynamic`."""

    # The settings as text, by their source.
    static: Mapping[str, str]
    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    # The value of every option, including those set for one listener.
    values: Mapping[str, Value]

    # Derived from more than one option.
    listeners: tuple[EndPoint, ...]
    advertised_listeners: tuple[EndPoint, ...]
    inter_broker_listener: str
    log_dirs: tuple[str, ...]
    max_connections_per_ip_overrides: Mapping[str, int]
    zookeeper_connection_timeout_ms: int
    topic_defaults: TopicConfig

    _arguments: Mapping[str, Any]

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        host_name: str,
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        generated_broker_id: int | None = None,
    ) -> None:
        """Parse and check all options. `host_name` is advertised for a listener on every interface.

        `generated_broker_id` is the id of a broker whose `broker.id` is not set.

        Raises:
            InvalidConfigError: an option does not allow its value.
            ConfigConflictError: options contradict each other.
        """
        static = _with_node_id(static)
        dynamic, dynamic_default = dynamic or {}, dynamic_default or {}
        values = {**_DEFAULTS, **parse({**static, **dynamic_default, **dynamic})}
        self.__dict__.update(
            {name: values[key] for name, key in ATTRIBUTES},
            static=static,
            dynamic=dynamic,
            dynamic_default=dynamic_default,
            values=values,
            _arguments={
                "static": static,
                "host_name": host_name,
                "dynamic": dynamic,
                "dynamic_default": dynamic_default,
                "generated_broker_id": generated_broker_id,
            },
            **_network(values, host_name),
            log_dirs=_log_dirs(values),
            zookeeper_connection_timeout_ms=_first(
                values, "zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms"
            ),
            topic_defaults=inherited(values),
        )
        _check_together(self)
        if generated_broker_id is not None:
            self.__dict__["broker_id"] = generated_broker_id

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a configuration is replaced, not changed")

    def with_dynamic(
        self, *, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]
    ) -> "BrokerConfig":
        """The configuration with these dynamic settings.

        Raises:
            InvalidConfigError: an option does not allow its value.
            ConfigConflictError: options contradict each other.
        """
        return self._with(dynamic=dynamic, dynamic_default=dynamic_default)

    def with_overrides(self, overrides: Mapping[str, str]) -> "BrokerConfig":
        """The configuration with other values than those in `server.properties`.

        Raises:
            InvalidConfigError: an option does not allow its value.
            ConfigConflictError: options contradict each other.
        """
        return self._with(static={**self.static, **overrides})

    def with_broker_id(self, broker_id: int) -> "BrokerConfig":
        """The configuration of a broker with this generated id."""
        return self._with(generated_broker_id=broker_id)

    def _with(self, **changed: Any) -> "BrokerConfig":
        return BrokerConfig(**{**self._arguments, **changed})

    def topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The configuration of a topic with these overrides.

        Raises:
            InvalidConfigError: an option does not allow its value.
        """
        return self.topic_defaults.with_overrides(overrides)

    def for_listener(self, listener: str, name: str) -> Value:
        """The value of an option for one listener: the listener's, or else the general one."""
        return self.values.get(f"{LISTENER_PREFIX}{listener.lower()}.{name}", self.values[name])

    def number(self, name: str) -> int:
        """The value of an option that is always a number."""
        return as_number(self.values[name], name)

    def unknown(self) -> list[str]:
        """The names that are set and not known."""
        return sorted(name for name in self._set_names() if find(name) is None)

    def without_effect(self) -> list[str]:
        """The options that are set and have no effect here."""
        return sorted(
            name
            for name in self._set_names()
            if (option := find(name)) is not None
            and not option.effect
            and self.values[name] != option.default
            and name not in _REPORTED_ELSEWHERE
        )

    def _set_names(self) -> set[str]:
        return self.static.keys() | self.dynamic.keys() | self.dynamic_default.keys()


# ------------------------------------------------------------------------------------- names

LISTENER_PREFIX: Final = "listener.name."
# These also exist by mechanism: listener.name.<listener>.<mechanism>.<option>.
_MECHANISM_OPTIONS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def base_name(name: str) -> str | None:
    """The option in `listener.name.<listener>.<option>`; None without that prefix."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, dot, base = name.removeprefix(LISTENER_PREFIX).partition(".")
    if not dot:
        return None
    return next((option for option in _MECHANISM_OPTIONS if base.endswith(option)), base)


def find(name: str) -> Option | None:
    """The option of a name, with or without a listener's prefix; None if it is unknown."""
    option = BROKER_OPTIONS.get(name)
    if option is None and (base := base_name(name)):
        return BROKER_OPTIONS.get(base)
    return option


def parse(properties: Mapping[str, str]) -> dict[str, Value]:
    """The values of these options, each checked by itself; unknown names are left out.

    Raises:
        InvalidConfigError: an option does not allow its value.
    """
    return {
        name: option.parse(text)
        for name, text in properties.items()
        if (option := find(name)) is not None
    }


# ------------------------------------------------------------ values of more than one option


def _with_node_id(static: Mapping[str, str]) -> Mapping[str, str]:
    """`node.id`, KRaft's name, sets `broker.id` too, so that a file with either is usable."""
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in static and other not in static:
            return {**static, other: static[name]}
    return static


def _network(values: Mapping[str, Value], host_name: str) -> dict[str, object]:
    text = str(values["listeners"])
    protocols = parse_protocol_map(str(values["listener.security.protocol.map"]))
    bound = parse_listeners(text, protocols)
    check_ports(bound, text)
    advertised_text = values["advertised.listeners"]
    advertised_points = advertised(
        None if advertised_text is None else str(advertised_text),
        bound,
        protocols,
        host_name=host_name,
    )
    between_brokers = values["inter.broker.listener.name"]
    if between_brokers is None:
        between_brokers = values["security.inter.broker.protocol"]
    return {
        "listeners": bound,
        "advertised_listeners": advertised_points,
        "inter_broker_listener": str(between_brokers).upper(),
        "max_connections_per_ip_overrides": parse_connection_limits(
            str(values["max.connections.per.ip.overrides"])
        ),
    }


def _log_dirs(values: Mapping[str, Value]) -> tuple[str, ...]:
    text = str(_first(values, "log.dirs", "log.dir"))
    return tuple(path for path in (word.strip() for word in text.split(",")) if path)


def _first(values: Mapping[str, Value], *names: str) -> Value:
    return next((values[name] for name in names if values[name] is not None), None)


def _check_together(config: BrokerConfig) -> None:
    for must, holds in _demands(config).items():
        if not holds:
            raise ConfigConflictError(must)


def _demands(config: BrokerConfig) -> Mapping[str, bool]:
    """The conditions between options, with Kafka's text for each that is violated."""
    values, topic, number = config.values, config.topic_defaults, config.number
    advertised_points = [end_point.listener for end_point in config.advertised_listeners]
    generated = config.broker_id_generation_enable
    return {
        "process.roles is for KRaft, and zookeeper.connect for a cluster with ZooKeeper; this "
        "broker has no KRaft: remove process.roles, or the file is another broker's.": not (
            values["process.roles"] and values["zookeeper.connect"]
        ),
        "You must set `node.id` to the same value as `broker.id`.": (
            values["node.id"] == config.broker_id
        ),
        "broker.id must be greater than or equal to -1 and not greater than "
        "reserved.broker.max.id": (
            not generated or -1 <= config.broker_id <= config.reserved_broker_max_id
        ),
        "broker.id must be greater than or equal to 0": generated or config.broker_id >= 0,
        "log.roll.ms must be greater than or equal to 1": topic.segment_ms >= 1,
        "log.roll.jitter.ms must be greater than or equal to 0": topic.segment_jitter_ms >= 0,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1": (
            topic.retention_ms != 0
        ),
        "log.flush.interval.ms must be greater than or equal to 0": topic.flush_ms >= 0,
        "At least one log directory must be defined via log.dirs or log.dir.": bool(
            config.log_dirs
        ),
        "log.dirs must not name a directory twice.": (
            len(set(config.log_dirs)) == len(config.log_dirs)
        ),
        "log.cleaner.threads must be at least 1": number("log.cleaner.threads") >= 1,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.": (
            number("log.cleaner.dedupe.buffer.size") > 1_048_576 * number("log.cleaner.threads")
        ),
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to "
        "prevent unnecessary socket timeouts": (
            number("replica.fetch.wait.max.ms") <= number("replica.socket.timeout.ms")
        ),
        "replica.fetch.wait.max.ms should always be less than or equal to "
        "replica.lag.time.max.ms to prevent frequent changes in ISR": (
            number("replica.fetch.wait.max.ms") <= config.replica_lag_time_max_ms
        ),
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be "
        "set.": not {"inter.broker.listener.name", "security.inter.broker.protocol"}
        <= config.static.keys(),
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
        "The valid options based on currently configured listeners are "
        + ",".join(advertised_points): config.inter_broker_listener in advertised_points,
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes": (
            not 0 < number("queued.max.request.bytes") < config.socket_request_max_bytes
        ),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
        "property is set.": (
            config.max_connections_per_ip > 0 or bool(config.max_connections_per_ip_overrides)
        ),
    }


__all__ = ["BROKER_OPTIONS", "BrokerConfig", "ConfigConflictError", "InvalidConfigError"]
