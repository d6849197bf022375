"""What is not counted but asked for: the numbers that the parts of a broker know of themselves."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.broker.partition import Partition
from odradek.obs.metrics import PartitionNumbers

if TYPE_CHECKING:
    from odradek.broker.server import Broker

_STATES: Final = {"starting": 1, "recovering": 2, "running": 3, "shutting-down": 7, "stopped": 0}


def publish(broker: "Broker") -> None:
    """Have the metrics of a broker read these."""
    metrics, replicas = broker.metrics, broker.replicas
    gauge = metrics.gauge

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
        lambda: int(broker.controller.reign is not None),
    )
    gauge(
        "kafka_controller_kafkacontroller_activebrokercount", lambda: len(broker.metadata.brokers)
    )
    gauge("kafka_controller_kafkacontroller_globaltopiccount", lambda: len(broker.metadata.topics))
    gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        lambda: sum(len(topic.partitions) for topic in broker.metadata.topics.values()),
    )
    metrics.gauges(
        "kafka_server_socket_server_metrics_connection_count",
        lambda: [((name,), count) for name, count in broker.server.by_listener().items()],
    )
    metrics.gauges(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        lambda: [(("all",), broker.purgatory.size)],
    )
    metrics.gauges(
        "kafka_log_logmanager_logdirectoryoffline",
        lambda: [
            ((path,), float(broker.logs.is_offline(path))) for path in broker.logs.directories
        ],
    )
    cleaner = broker.cleaner
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
    metrics.watch_partitions(lambda: replicas, _numbers)


def _numbers(partition: Partition) -> PartitionNumbers:
    log, leader = partition.log, partition.leader
    topic, index = partition.topic_partition
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
    )
