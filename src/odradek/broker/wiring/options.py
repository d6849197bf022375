"""Options in the form in which parts of a broker take them, and options that prevent its start."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from odradek.broker.admin.acls import ACL_AUTHORIZER
from odradek.broker.incidents import Incidents
from odradek.broker.replication.replica_fetcher import FetchOptions
from odradek.broker.serving.client_quotas import ClientQuotas
from odradek.broker.serving.tls_listeners import TlsListeners
from odradek.broker.world import World
from odradek.config.broker import BROKER_OPTIONS, LISTENER_PREFIX, BrokerConfig
from odradek.group.options import GroupOptions
from odradek.log.disk import StorageError
from odradek.log.log_config import LogHost
from odradek.model.errors import StartupError
from odradek.net.connection import FrameHandler
from odradek.net.server import ConnectionLimits, Server
from odradek.net.together import Together
from odradek.net.turns import Turns
from odradek.obs.metrics import BrokerMetrics
from odradek.quota.connections import UNLIMITED, ConnectionRates
from odradek.replica.selector import LEADER, RACK_AWARE
from odradek.replica.throttle import ReplicationQuota

_PRINCIPAL_BUILDER: Final = "principal.builder.class"
CREATION_RATE: Final = "max.connection.creation.rate"


class CurrentControllerOptions:
    """The options of the controller, with their present values."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config

    @property
    def deletion_enabled(self) -> bool:
        return self._config().delete_topic_enable

    @property
    def isr_min(self) -> int:
        return self._config().topic_defaults.min_insync_replicas

    @property
    def unclean_allowed(self) -> bool:
        return self._config().topic_defaults.unclean_leader_election_enable

    @property
    def rebalance_enabled(self) -> bool:
        return self._config().auto_leader_rebalance_enable

    @property
    def rebalance_interval_seconds(self) -> int:
        return self._config().leader_imbalance_check_interval_seconds

    @property
    def rebalance_percentage(self) -> int:
        return self._config().leader_imbalance_per_broker_percentage


class Observers(Protocol):
    """Where a broker counts what it does, and records what went wrong."""

    metrics: BrokerMetrics
    incidents: Incidents


def log_host_of(
    config: BrokerConfig,
    world: World,
    observers: Observers,
    failed: Callable[[StorageError], None],
) -> LogHost:
    """What the logs need from the broker; `failed` takes a log directory offline."""
    return LogHost(
        disk=world.disk,
        clock=world.clock,
        call_later=world.loop.call_later,
        failed=failed,
        cut=observers.incidents.cuts.note,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        flush_ms=observers.metrics.flush_ms,
    )


def client_quotas_of(config: BrokerConfig, world: World) -> ClientQuotas:
    """Quotas of clients with the windows of the options, without limits."""
    return ClientQuotas(
        monotonic_ms=world.clock.monotonic_ms,
        processor_ns=world.processor_ns,
        windows=config.quota_window_num,
        window_ms=config.quota_window_size_seconds * 1000,
        mutation_windows=config.controller_quota_window_num,
        mutation_window_ms=config.controller_quota_window_size_seconds * 1000,
    )


def replication_quotas_of(
    config: BrokerConfig,
) -> tuple[ReplicationQuota, ReplicationQuota, ReplicationQuota]:
    """The quotas of leaders, of followers, and of moves between log directories."""
    windows = config.replication_quota_window_num
    window_ms = config.replication_quota_window_size_seconds * 1000
    return (
        ReplicationQuota(windows=windows, window_ms=window_ms),
        ReplicationQuota(windows=windows, window_ms=window_ms),
        ReplicationQuota(
            windows=config.alter_log_dirs_replication_quota_window_num,
            window_ms=config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        ),
    )


def security_protocols_of(config: BrokerConfig) -> dict[str, str]:
    """The security protocol of each listener."""
    return {point.listener: point.security_protocol for point in config.listeners}


def group_options_of(config: BrokerConfig) -> GroupOptions:
    """The options of group coordinators."""
    return GroupOptions(
        session_timeout_ms_min=config.group_min_session_timeout_ms,
        session_timeout_ms_max=config.group_max_session_timeout_ms,
        size_max=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        offset_metadata_chars_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
    )


def fetch_options_of(config: BrokerConfig) -> FetchOptions:
    """The options of replica fetchers."""
    return FetchOptions(
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        partition_bytes_max=config.replica_fetch_max_bytes,
        response_bytes_max=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        timeout_ms=config.replica_socket_timeout_ms,
    )


def server_of(
    config: BrokerConfig,
    world: World,
    handler: FrameHandler,
    turns: Turns,
    tls: TlsListeners,
) -> Server:
    """The server of a broker's listeners, which are not open yet."""
    server = Server(
        world.network,
        handler,
        limits_of(config, world.connections_max),
        monotonic_ms=world.clock.monotonic_ms,
        soon=turns.soon,
        call_later=world.loop.call_later,
        rates=ConnectionRates(
            windows=config.quota_window_num, window_ms=config.quota_window_size_seconds * 1000
        ),
        around=tls.around,
        together=Together(world.loop, world.is_alone),
    )
    tls.unauthenticated = server.unauthenticated
    return server


def limits_of(config: BrokerConfig, files_max: int) -> ConnectionLimits:
    """The limits for connections and for the bytes they may hold."""
    inside = config.inter_broker_listener
    return ConnectionLimits(
        connections_max=config.max_connections,
        per_ip_max=config.max_connections_per_ip,
        per_ip_overrides=config.max_connections_per_ip_overrides,
        idle_ms_max=config.connections_max_idle_ms,
        frame_bytes_max=config.socket_request_max_bytes,
        queued_bytes_max=config.queued_max_request_bytes,
        waiting_bytes_max=config.odradek_connection_responses_max_bytes,
        memory_bytes_max=config.odradek_connections_memory_max_bytes,
        unauthenticated_bytes_max=config.odradek_unauthenticated_memory_max_bytes,
        unauthenticated_ms_max=config.odradek_unauthenticated_timeout_ms,
        files_max=files_max,
        rates=_connection_rates(config),
        per_listener_max=_of_listeners(config, "max.connections"),
        protected_listener=inside if len(config.listeners) > 1 else None,
    )


def _connection_rates(config: BrokerConfig) -> Mapping[str | None, int]:
    rates: dict[str | None, int] = {None: config.max_connection_creation_rate}
    rates.update(_of_listeners(config, CREATION_RATE).items())
    return {listener: rate for listener, rate in rates.items() if rate < UNLIMITED}


def _of_listeners(config: BrokerConfig, option: str) -> dict[str, int]:
    """The values of an option that are set for single listeners."""
    found = {}
    for point in config.listeners:
        value = config.values.get(f"{LISTENER_PREFIX}{point.listener.lower()}.{option}")
        if isinstance(value, int):
            found[point.listener] = value
    return found


def refuse_unsupported(config: BrokerConfig) -> None:
    """Refuse options that this version does not support.

    Raises:
        StartupError: an option is set to something unsupported.
    """
    builder = config.values[_PRINCIPAL_BUILDER]
    if builder not in (None, BROKER_OPTIONS[_PRINCIPAL_BUILDER].default):
        raise StartupError(
            f"{_PRINCIPAL_BUILDER}={builder}: classes of Java are not loaded here, and other "
            "principals than it says would get permissions: remove it"
        )
    selector = config.replica_selector_class
    if selector not in (None, "", LEADER, RACK_AWARE):
        raise StartupError(
            f"replica.selector.class={selector}: must be unset, {LEADER} or {RACK_AWARE}"
        )
    if config.authorizer_class_name not in ("", ACL_AUTHORIZER):
        raise StartupError(
            f"authorizer.class.name={config.authorizer_class_name}: must be unset, or "
            f"{ACL_AUTHORIZER}"
        )
