"""Metrics that are not counted but read from the parts of a broker when they are asked for."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from odradek.broker.apis.fetch import FetchApi
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.group_gauges import GroupGauges
from odradek.broker.coordinators.leader_ends import LeaderEnds
from odradek.broker.incidents import CutRecords
from odradek.broker.replication.isr_shell import IsrShell
from odradek.broker.replication.partition import Partition
from odradek.broker.reported import ReportedParts
from odradek.broker.serving.authentication import Authentication
from odradek.broker.serving.authentication_counts import RATED, TOTALS, Latency
from odradek.broker.serving.client_quotas import CONSUMER, PRODUCER, REQUEST, ClientQuotas
from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.serving.tls_listeners import TlsListeners
from odradek.broker.storage.housekeeping import Housekeeping
from odradek.controller.controller import Controller
from odradek.controller.states import PartitionState
from odradek.coord.store import Store
from odradek.log.disk import StorageError
from odradek.log.repair.cuts import CutKind
from odradek.model.clock import MonotonicMs
from odradek.obs.metrics import BrokerMetrics, FollowerNumbers, Labels, PartitionNumbers
from odradek.replica.leader import LeaderReplica

_PROCESSOR: Final = "0"  # the one event loop is the one network processor
_STATES: Final = {"starting": 1, "recovering": 2, "running": 3, "shutting-down": 7, "stopped": 0}


class MeasuredParts(ReportedParts, Protocol):
    """The parts whose numbers are read, besides the parts of reports."""

    state: str
    tls: TlsListeners
    metrics: BrokerMetrics
    fetch: FetchApi
    metadata: MetadataCache
    purgatory: Purgatory
    housekeeping: Housekeeping
    client_quotas: ClientQuotas
    authentication: Authentication
    group_ends: LeaderEnds
    isr_changes: IsrShell


def publish(broker: MeasuredParts, store: Store) -> None:
    """Register what is read from the parts of a broker with its metrics."""
    _publish_base(broker)
    _publish_cuts(broker.metrics, broker.incidents.cuts)
    _publish_cleaner(broker)
    _publish_replication(broker)
    _publish_network(broker)
    _publish_disks(broker)
    _publish_controller(broker)
    _publish_store(broker.metrics, store)
    _publish_quotas(broker)
    _publish_authentication(broker)
    GroupGauges(broker.groups, broker.replicas, broker.group_ends).publish(broker.metrics)


def _publish_base(broker: MeasuredParts) -> None:
    metrics, replicas = broker.metrics, broker.replicas
    gauge = metrics.gauge
    version = broker.health().version
    metrics.gauges("kafka_server_app_info", lambda: [((version,), 1)])

    def led() -> Iterable[Partition]:
        return (partition for partition in replicas if partition.leader is not None)

    gauge("kafka_server_kafkaserver_brokerstate", lambda: _STATES[broker.state])
    gauge("kafka_server_replicamanager_partitioncount", lambda: len(replicas))
    gauge("kafka_server_replicamanager_leadercount", lambda: sum(1 for _ in led()))
    gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        lambda: sum(1 for partition in replicas if partition.log is None),
    )
    gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        lambda: sum(1 for partition in led() if partition.is_under_replicated),
    )
    gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        lambda: sum(1 for p in led() if p.leader is not None and p.leader.is_under_min_isr),
    )
    gauge(
        "kafka_server_replicamanager_reassigningpartitions",
        lambda: sum(1 for partition in led() if partition.adding or partition.removing),
    )
    sessions = broker.fetch.sessions
    gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", lambda: len(sessions))
    gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        lambda: sum(len(session.partitions) for session in sessions),
    )
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        lambda: sum(broker.logs.is_offline(path) for path in broker.logs.directories),
    )
    gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        lambda: int(broker.controller.term is not None),
    )
    metrics.gauges(
        "kafka_log_logmanager_logdirectoryoffline",
        lambda: [
            ((path,), float(broker.logs.is_offline(path))) for path in broker.logs.directories
        ],
    )
    gauge("odradek_housekeeping_failures", lambda: broker.housekeeping.failures)
    broker_id = broker.config.broker_id
    metrics.watch_partitions(
        lambda: replicas,
        lambda partition: _numbers(
            partition, broker_id, broker.metadata, broker.groups.now().monotonic_ms
        ),
    )


def _publish_cuts(metrics: BrokerMetrics, cuts: CutRecords) -> None:
    def by_kind(counts: Mapping[CutKind, int]) -> list[tuple[Labels, float]]:
        return [((kind.value,), count) for kind, count in counts.items()]

    metrics.counters("odradek_log_cuts", partial(by_kind, cuts.counts))
    metrics.counters("odradek_log_cut_bytes", partial(by_kind, cuts.size_bytes))


def _publish_cleaner(broker: MeasuredParts) -> None:
    metrics, cleaner = broker.metrics, broker.cleaner
    gauge = metrics.gauge
    gauge("kafka_log_logcleaner_max_buffer_utilization_percent", lambda: cleaner.map_percent)
    gauge("kafka_log_logcleaner_cleaner_recopy_percent", lambda: cleaner.recopy_percent)
    gauge("kafka_log_logcleaner_max_clean_time_secs", lambda: cleaner.round_s_max)
    gauge("kafka_log_logcleaner_max_compaction_delay_secs", lambda: cleaner.overdue_ms_max / 1000)
    gauge("kafka_log_logcleanermanager_max_dirty_percent", lambda: cleaner.dirty_percent_max)
    gauge("kafka_log_logcleanermanager_time_since_last_run_ms", lambda: cleaner.since_look_ms)
    metrics.gauges(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        lambda: [
            ((path,), float(cleaner.uncleanable_in(path)[0])) for path in broker.logs.directories
        ],
    )
    metrics.gauges(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        lambda: [
            ((path,), float(cleaner.uncleanable_in(path)[1])) for path in broker.logs.directories
        ],
    )


def _publish_replication(broker: MeasuredParts) -> None:
    metrics, replicas, fetchers = broker.metrics, broker.replicas, broker.fetchers
    metrics.gauge(
        "kafka_server_replicamanager_atminisrpartitioncount",
        lambda: sum(1 for p in replicas if p.leader is not None and p.leader.is_at_min_isr),
    )
    metrics.gauges(
        "kafka_server_replicafetchermanager_maxlag",
        lambda: [(("Replica",), max((lag for _, _, lag in fetchers.lags()), default=0))],
    )
    metrics.gauge(
        "kafka_server_replicafetchermanager_failedpartitionscount", lambda: fetchers.held_back
    )
    metrics.gauges(
        "kafka_server_fetcherlagmetrics_consumerlag",
        lambda: (
            ((f"ReplicaFetcherThread-0-{leader}", topic, str(index)), lag)
            for leader, (topic, index), lag in fetchers.lags()
        ),
    )
    metrics.counter(
        "kafka_server_brokertopicmetrics_replicationbytesin", lambda: fetchers.fetched_bytes
    )
    metrics.counter(
        "kafka_server_replicamanager_failedisrupdates", lambda: broker.isr_changes.failed
    )


_NETWORK: Final = "kafka_server_socket_server_metrics_"
_SOFTWARE_MAX: Final = 1_000  # kinds of clients that are shown; a client chooses its name


def _publish_network(broker: MeasuredParts) -> None:
    metrics, server, purgatory = broker.metrics, broker.server, broker.purgatory
    gauge = metrics.gauge
    gauge("odradek_connections_refused", lambda: server.refused_connections)
    gauge("odradek_connections_dropped", lambda: server.dropped_connections)
    gauge("odradek_connections_memory_bytes", lambda: server.memory_bytes)
    for queue in ("requestqueuesize", "responsequeuesize"):
        gauge(f"kafka_network_requestchannel_{queue}", lambda: 0)

    def rows(counts: Mapping[str, float]) -> list[tuple[Labels, float]]:
        return [((name, _PROCESSOR), counts.get(name, 0)) for name in server.created]

    def rates(kind: str, counts: Mapping[str, int]) -> list[tuple[Labels, float]]:
        found: dict[str, float] = {}
        for name in server.created:
            count = counts.get(name, 0)
            span_ms, earlier = metrics.earlier((kind, name), count, 0)
            found[name] = 1000 * (count - earlier) / span_ms if span_ms > 0 else 0.0
        return rows(found)

    metrics.gauges(f"{_NETWORK}connection_count", lambda: rows(server.by_listener()))
    for kind, counts in {"creation": server.created, "close": server.closed}.items():
        metrics.counters(f"{_NETWORK}connection_{kind}", partial(rows, counts))
        metrics.gauges(f"{_NETWORK}connection_{kind}_rate", partial(rates, kind, counts))

    def by_software() -> list[tuple[Labels, float]]:
        kinds = Counter(
            (listener, _PROCESSOR, session.software_name, session.software_version)
            for listener, session in server.sessions()
            if session is not None
        )
        return list(kinds.most_common(_SOFTWARE_MAX))

    metrics.gauges(f"{_NETWORK}connections", by_software)

    def waiting() -> list[tuple[Labels, float]]:
        found = Counter({"Produce": 0, "Fetch": 0}) + purgatory.by_operation()
        return [((name,), found[name]) for name in sorted({"Produce", "Fetch", *found})]

    for name in ("purgatorysize", "numdelayedoperations"):
        metrics.gauges(f"kafka_server_delayedoperationpurgatory_{name}", waiting)


def _publish_disks(broker: MeasuredParts) -> None:
    metrics, logs = broker.metrics, broker.logs

    def space(index: int) -> list[tuple[Labels, float]]:
        found: list[tuple[Labels, float]] = []
        for path in logs.directories:
            if not logs.is_offline(path):
                with suppress(StorageError):  # the next read or write there takes it offline
                    found.append(((path,), logs.space(path)[index]))
        return found

    metrics.gauges("odradek_log_directory_total_bytes", partial(space, 0))
    metrics.gauges("odradek_log_directory_free_bytes", partial(space, 1))
    for name in ("read_bytes", "write_bytes"):
        metrics.gauge(f"kafka_server_kafkaserver_linux_disk_{name}", partial(_disk_bytes, name))


def _disk_bytes(name: str) -> int:
    """What Linux counts for this process; 0 elsewhere."""
    try:
        with open("/proc/self/io", "rb") as counts:
            found = dict(line.split(b": ") for line in counts.read().splitlines())
    except OSError:
        return 0
    return int(found.get(name.encode(), 0))


def _publish_store(metrics: BrokerMetrics, store: Store) -> None:
    """What happens between this broker and ZooKeeper; nothing for the embedded store."""
    counts = store.counts
    if counts is None:
        return
    listener = "kafka_server_sessionexpirelistener_zookeeper"
    metrics.counter(f"{listener}disconnects", lambda: counts.disconnects)
    metrics.counter(f"{listener}syncconnects", lambda: counts.connects)
    metrics.counter(f"{listener}expires", lambda: counts.expiries)
    metrics.summary(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        lambda: counts.request_ms,
    )


def _publish_quotas(broker: MeasuredParts) -> None:
    """What clients with a quota use; no client without a quota is counted."""
    metrics = broker.metrics
    metrics.gauge("odradek_connections_delayed", lambda: broker.server.delayed_connections)
    quotas = broker.client_quotas
    for option, name in {PRODUCER: "produce", CONSUMER: "fetch", REQUEST: "request"}.items():
        rate = "request_time" if option == REQUEST else "byte_rate"
        metrics.gauges(f"kafka_server_{name}_{rate}", partial(quotas.rates, option))
        metrics.gauges(f"kafka_server_{name}_throttle_time", partial(quotas.throttle_times, option))
    metrics.gauges("kafka_server_controllermutation_tokens", quotas.tokens)
    metrics.gauges("kafka_server_controllermutation_throttle_time", quotas.mutation_throttle_times)


def _publish_authentication(broker: MeasuredParts) -> None:
    """What happened on listeners with TLS and SASL, and what waits there."""
    broker.metrics.gauges(
        "odradek_tls_handshakes_failed",
        lambda: [((name,), count) for name, count in broker.tls.failed.items()],
    )
    broker.metrics.gauges(
        "odradek_tls_certificate_expiry_seconds",
        lambda: [((name,), at_ms / 1000) for name, at_ms in broker.tls.expiries().items()],
    )
    counts, unauthenticated = broker.authentication.counts, broker.server.unauthenticated

    def read(name: str) -> list[tuple[tuple[str, ...], float]]:
        return [((listener,), getattr(each, name)) for listener, each in counts.items()]

    def rates(name: str) -> list[tuple[tuple[str, ...], float]]:
        now_ms = counts.monotonic_ms()
        return [((each,), of.rates[name].per_second(now_ms)) for each, of in counts.items()]

    def latencies(
        measure: Callable[[Latency, MonotonicMs], float | None],
    ) -> list[tuple[tuple[str, ...], float]]:
        now_ms = counts.monotonic_ms()
        found = (((each,), measure(of.latency, now_ms)) for each, of in counts.items())
        return [(label, value) for label, value in found if value is not None]

    prefix = "kafka_server_socket_server_metrics_"
    for name in TOTALS:
        broker.metrics.gauges(f"{prefix}{name}", partial(read, name))
    for name in RATED:
        broker.metrics.gauges(f"{prefix}{name}_rate", partial(rates, name))
    latency = f"{prefix}reauthentication_latency"
    broker.metrics.gauges(f"{latency}_avg", partial(latencies, Latency.average_ms))
    broker.metrics.gauges(f"{latency}_max", partial(latencies, Latency.max_ms))
    gauge = broker.metrics.gauge
    gauge("odradek_connections_unauthenticated", lambda: len(unauthenticated))
    gauge("odradek_connections_unauthenticated_bytes", lambda: unauthenticated.memory_bytes)
    gauge(
        "odradek_connections_unauthenticated_dropped", lambda: unauthenticated.dropped_connections
    )


def _publish_controller(broker: MeasuredParts) -> None:
    """The controller's gauges; 0 on brokers that are not the controller."""

    def of(number: Callable[[Controller], float]) -> Callable[[], float]:
        def read() -> float:
            machine = broker.controller.machine
            return number(machine) if machine is not None else 0

        return read

    metrics, metadata = broker.metrics, broker.metadata
    metrics.gauge(
        "kafka_controller_controllereventmanager_eventqueuesize", lambda: broker.controller.queued
    )
    metrics.gauges(
        "kafka_brokers",
        lambda: [((), len(metadata.brokers))] if broker.controller.machine is not None else [],
    )
    metrics.counter(
        "kafka_controller_controllerstats_uncleanleaderelections",
        lambda: broker.journal.unclean_elections,
    )
    metrics.summary(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        lambda: broker.controller.store_ms,
    )
    for name, number in {
        "activebrokercount": lambda _: len(metadata.brokers),
        "globaltopiccount": lambda _: len(metadata.topics),
        "globalpartitioncount": lambda _: metadata.partition_count,
        "offlinepartitionscount": _offline_partitions,
        "preferredreplicaimbalancecount": _imbalance,
        "topicstodeletecount": _to_delete,
        "topicsineligibletodeletecount": _ineligible,
    }.items():
        metrics.gauge(f"kafka_controller_kafkacontroller_{name}", of(number))


def _offline_partitions(machine: Controller) -> float:
    context = machine.context
    return sum(
        1
        for partition in context.partitions()
        if partition.state is not PartitionState.ONLINE
        and not context.is_being_deleted(partition.name)
    )


def _imbalance(machine: Controller) -> float:
    context = machine.context
    return sum(
        1
        for partition in context.partitions()
        if partition.leader != partition.assignment.replicas[0]
        and not context.is_being_deleted(partition.name)
    )


def _to_delete(machine: Controller) -> float:
    return len(machine.context.being_deleted) + len(machine.machines.deletion.waiting)


def _ineligible(machine: Controller) -> float:
    deletion = machine.machines.deletion
    return len(deletion.halted) + len(deletion.waiting)


def _numbers(
    partition: Partition, broker_id: int, metadata: MetadataCache, monotonic_ms: MonotonicMs
) -> PartitionNumbers:
    log, leader = partition.log, partition.leader
    topic, index = partition.topic_partition
    known = metadata.topic(topic) if leader and index == 0 else None
    return PartitionNumbers(
        topic,
        index,
        size_bytes=log.size_bytes if log else 0,
        segments=len(log.segments) if log else 0,
        log_start_offset=log.log_start_offset if log else -1,
        log_end_offset=log.leo if log else -1,
        replicas=len(partition.replicas) if leader else 0,
        in_sync=len(leader.isr.committed) if leader else 0,
        is_under_replicated=partition.is_under_replicated,
        is_under_min_isr=leader.is_under_min_isr if leader else False,
        high_watermark=log.high_watermark if log else -1,
        followers=_followers(leader, monotonic_ms) if leader else (),
        leader=broker_id if leader else -1,
        is_preferred=partition.replicas[:1] == (broker_id,),
        is_at_min_isr=leader.is_at_min_isr if leader else False,
        topic_partitions=len(known.partitions) if known else 0,
        last_stable_lag=log.high_watermark - log.last_stable_offset if log and leader else 0,
    )


def _followers(leader: LeaderReplica, monotonic_ms: MonotonicMs) -> tuple[FollowerNumbers, ...]:
    return tuple(
        FollowerNumbers(
            broker, max(0, leader.leo - max(0, f.leo)), (monotonic_ms - f.caught_up_ms) / 1000
        )
        for broker, f in sorted(leader.followers.items())
    )
