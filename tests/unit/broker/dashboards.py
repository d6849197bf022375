"""Queries of published dashboards and alert rules for Kafka, and which of them have no data here.

Expressions are facts about what a dashboard asks for; labels that a scrape adds (job, instance,
namespace ...) are left out. `relabelled` are the rules of docs/metrics.md for dashboards whose
exporter uses other names; `without_data` says of each missing metric why.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

JVM = "there is no Java virtual machine"
KUBERNETES = "of Kubernetes, not of the broker"
ZOOKEEPER = "of brokers with ZooKeeper; the one of these tests has none"
RECORDED = "a second name for the same counter, which a recording rule of docs/metrics.md gives"
OTHER_RULES = "a rate of Java's, which Kafka's documentation advises against: use the counter"


class Dashboard(NamedTuple):
    """A dashboard, and what is known about its queries."""

    name: str
    expressions: tuple[str, ...]
    relabelled: tuple[tuple[str, str], ...] = ()
    without_data: Mapping[str, str] = MappingProxyType({})


NO_RULES = ()
# Of docs/metrics.md: a regular expression for a whole name, and what is made of it.
CONFLUENT_RULES = (
    (r"kafka_(.*_(?:requestmetrics|brokertopicmetrics|replicamanager|controllerstats)_.*)_total",
     r"kafka_${1}persec"),
    (r"kafka_(.*)idle_percent", r"kafka_${1}idlepercent"),
    (r"kafka_server_socket_server_metrics_(.*)", r"kafka_server_socketservermetrics_${1}"),
)  # fmt: skip
SNAKE_RULES = (
    (r"kafka_server_replicamanager_(.*)", r"kafka_server_replica_manager_${1}"),
    (r"kafka_controller_kafkacontroller_(.*)", r"kafka_controller_${1}"),
    (r"kafka_network_socketserver_networkprocessoravgidle_percent",
     r"kafka_network_socket_server_processor_avg_idle_percent"),
)  # fmt: skip

_PHASES = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
_GROUP_STATES = ("stable", "preparingrebalance", "dead", "completingrebalance", "empty")

DASHBOARDS = (
    Dashboard(
        "Grafana 7589, Kafka Exporter Overview",
        (
            'sum(rate(kafka_topic_partition_current_offset{topic=~"$topic"}[2m])) by (topic)',
            'sum(kafka_consumergroup_lag{topic=~"$topic"}) by (consumergroup, topic)',
            'sum(delta(kafka_topic_partition_current_offset{topic=~"$topic"}[5m])/5) by (topic)',
            "sum(kafka_consumergroup_lag) by (consumergroup)",
            (
                'sum(delta(kafka_consumergroup_current_offset{topic=~"$topic"}[5m])/5)'
                " by (consumergroup, topic)"
            ),
            'sum by(topic) (kafka_topic_partitions{topic=~"$topic"})',
        ),
    ),
    Dashboard(
        "Strimzi Kafka Exporter",
        (
            'count(kafka_topic_partitions{topic=~"$topic"})',
            'sum(kafka_topic_partition_replicas{topic=~"$topic"})',
            'sum(kafka_topic_partition_in_sync_replica{topic=~"$topic"})',
            'sum(kafka_topic_partition_under_replicated_partition{topic=~"$topic"})',
            'sum(kafka_cluster_partition_atminisr{topic=~"$topic"})',
            'sum(kafka_cluster_partition_underminisr{topic=~"$topic"})',
            'sum(kafka_topic_partition_leader_is_preferred{topic=~"$topic"} < bool 1)',
        ),
    ),
    Dashboard(
        "Strimzi Kafka",
        (
            "count(kafka_server_replicamanager_leadercount)",
            "sum(kafka_controller_kafkacontroller_activecontrollercount)",
            "sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total[5m]))",
            "sum(kafka_server_replicamanager_partitioncount)",
            "sum(kafka_server_replicamanager_underreplicatedpartitions)",
            "sum(kafka_cluster_partition_atminisr)",
            "sum(kafka_cluster_partition_underminisr)",
            "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
            "sum(rate(container_cpu_usage_seconds_total[5m])) by (pod)",
            "kubelet_volume_stats_available_bytes",
            "process_open_fds",
            "sum(jvm_memory_bytes_used)",
            "sum(rate(jvm_gc_collection_seconds_sum[5m]))",
            "sum(rate(jvm_gc_collection_seconds_count[5m]))",
            "jvm_threads_current",
            *(
                f'sum(irate(kafka_server_brokertopicmetrics_{what}_total{{topic!=""}}[1m]))'
                for what in (
                    "bytesin",
                    "bytesout",
                    "messagesin",
                    "totalproducerequests",
                    "failedproducerequests",
                    "totalfetchrequests",
                    "failedfetchrequests",
                )
            ),
            "kafka_network_socketserver_networkprocessoravgidle_percent*100",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent*100",
            "irate(kafka_server_kafkaserver_linux_disk_write_bytes[1m])",
            "irate(kafka_server_kafkaserver_linux_disk_read_bytes[1m])",
            "sum(kafka_server_socket_server_metrics_connection_count) by (listener)",
            "kafka_log_log_size",
        ),
        without_data={
            "container_cpu_usage_seconds_total": KUBERNETES,
            "kubelet_volume_stats_available_bytes": KUBERNETES,
            "jvm_memory_bytes_used": JVM,
            "jvm_gc_collection_seconds_sum": JVM,
            "jvm_gc_collection_seconds_count": JVM,
            "jvm_threads_current": JVM,
        },
    ),
    Dashboard(
        "Strimzi, alert rules of Kafka and its exporter",
        (
            "kubelet_volume_stats_available_bytes * 100 / kubelet_volume_stats_capacity_bytes < 15",
            "kafka_server_replicamanager_underreplicatedpartitions > 0",
            "sum(kafka_controller_kafkacontroller_activecontrollercount) != 1",
            "sum(kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
            "kafka_server_replicamanager_underminisrpartitioncount > 0",
            "kafka_log_logmanager_offlinelogdirectorycount > 0",
            "kafka_topic_partition_under_replicated_partition > 0",
            "kafka_consumergroup_lag > 1000",
            "changes(kafka_topic_partition_current_offset[10m]) == 0",
        ),
        without_data=dict.fromkeys(
            ("kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"),
            KUBERNETES,
        ),
    ),
    Dashboard(
        "Grafana Labs, Kafka observability library (for the JMX exporter and kafka_exporter)",
        (
            "sum(kafka_controller_kafkacontroller_activecontrollercount)",
            "count(kafka_server_kafkaserver_brokerstate)",
            "sum(rate(kafka_server_brokertopicmetrics_messagesin_total[5m]))",
            "sum(rate(kafka_server_brokertopicmetrics_bytesin_total[5m]))",
            "sum(rate(kafka_server_brokertopicmetrics_bytesout_total[5m]))",
            "sum by (instance) (rate(kafka_server_replicamanager_isrshrinks_total[5m]))",
            "sum by (instance) (rate(kafka_server_replicamanager_isrexpands_total[5m]))",
            "sum(kafka_server_replicamanager_partitioncount)",
            "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
            "sum(kafka_cluster_partition_underreplicated)",
            "sum(kafka_cluster_partition_underminisr)",
            "sum(rate(kafka_controller_controllerstats_uncleanleaderelections_total[5m]))",
            "sum(kafka_controller_kafkacontroller_preferredreplicaimbalancecount)",
            "sum by (topic) (rate(kafka_topic_partition_current_offset[5m]))",
            "sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesinpersec_count[5m]))",
            "sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesoutpersec_count[5m]))",
            "max by (topic, partition) (kafka_log_log_logstartoffset)",
            "max by (topic, partition) (kafka_log_log_logendoffset)",
            "max by (topic, partition) (kafka_log_log_size)",
            "sum by (consumergroup, topic) (kafka_consumergroup_lag)",
            "sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset[5m]))",
            *(
                f'kafka_network_requestmetrics_{phase}timems{{quantile="0.95",request="{request}"}}'
                for phase in _PHASES
                for request in ("Produce", "Fetch", "FetchFollower")
            ),
            "rate(kafka_server_brokertopicmetrics_producemessageconversions_total[5m])",
            "rate(kafka_server_brokertopicmetrics_fetchmessageconversions_total[5m])",
            'avg(kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms{quantile="0.95"})',
            *(
                f"rate(kafka_server_sessionexpirelistener_zookeeper{what}_total[5m])"
                for what in ("syncconnects", "expires", "disconnects", "authfailures")
            ),
            "jvm_memory_used_bytes",
            "process_cpu_seconds_total",
            "process_open_fds",
        ),
        without_data={
            "jvm_memory_used_bytes": JVM,
            "kafka_server_brokertopicmetrics_bytesinpersec_count": RECORDED,
            "kafka_server_brokertopicmetrics_bytesoutpersec_count": RECORDED,
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms": ZOOKEEPER,
            "kafka_server_sessionexpirelistener_zookeepersyncconnects_total": ZOOKEEPER,
            "kafka_server_sessionexpirelistener_zookeeperexpires_total": ZOOKEEPER,
            "kafka_server_sessionexpirelistener_zookeeperdisconnects_total": ZOOKEEPER,
            "kafka_server_sessionexpirelistener_zookeeperauthfailures_total": (
                "not counted: the panel of connections has three other lines"
            ),
        },
    ),
    Dashboard(
        "Confluent, Kafka cluster (jmx-monitoring-stacks)",
        (
            "count(kafka_server_replicamanager_leadercount)",
            "kafka_controller_kafkacontroller_activecontrollercount > 0",
            "sum(kafka_controller_kafkacontroller_preferredreplicaimbalancecount)",
            "sum(kafka_controller_kafkacontroller_globaltopiccount)",
            "sum(rate(kafka_network_requestmetrics_requestspersec[5m]))",
            "sum(kafka_log_log_size)",
            "sum(kafka_server_replicamanager_partitioncount)",
            "sum(kafka_server_replicamanager_underreplicatedpartitions)",
            "sum(kafka_cluster_partition_underminisr)",
            "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
            "sum(rate(kafka_server_brokertopicmetrics_bytesinpersec[5m]))",
            "sum(rate(kafka_server_brokertopicmetrics_bytesoutpersec[5m]))",
            "irate(process_cpu_seconds_total[5m])",
            "sum without(area)(jvm_memory_bytes_used)",
            "sum without(gc)(irate(jvm_gc_collection_seconds_sum[5m]))",
            "sum without(topic) (rate(kafka_server_brokertopicmetrics_messagesinpersec[5m]))",
            "1-kafka_network_socketserver_networkprocessoravgidlepercent",
            "1-kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
            'rate(kafka_network_requestmetrics_errorspersec{error!="NONE"}[5m])',
            "sum(kafka_server_socketservermetrics_connection_count) by (listener)",
            "sum(kafka_server_socketservermetrics_connection_creation_rate) by (listener)",
            "sum(kafka_server_socketservermetrics_connection_close_rate) by (listener)",
            "rate(kafka_server_replicamanager_isrshrinkspersec[5m])",
            "rate(kafka_server_replicamanager_isrexpandspersec[5m])",
            *(
                f'kafka_network_requestmetrics_{phase}timems{{quantile=~"0.99",request="{request}"}}'
                for phase in _PHASES
                for request in ("Produce", "Fetch", "FetchFollower")
            ),
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            *(
                f"sum(kafka_coordinator_group_groupmetadatamanager_numgroups{state})"
                for state in _GROUP_STATES
            ),
            "sum(kafka_server_brokertopicmetrics_producemessageconversionspersec)",
            "sum(kafka_server_brokertopicmetrics_fetchmessageconversionspersec)",
            (
                "sum(kafka_server_socketservermetrics_connections)"
                " by (clientSoftwareName,clientSoftwareVersion)"
            ),
        ),
        relabelled=CONFLUENT_RULES,
        without_data={
            "jvm_memory_bytes_used": JVM,
            "jvm_gc_collection_seconds_sum": JVM,
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total": (
                "a name of one version of its rules; the same number is in ...idlepercent"
            ),
        },
    ),
    Dashboard(
        "Grafana 721, Kafka Overview (a copy with `persec` names: health and system)",
        (
            "sum(kafka_controller_kafkacontroller_activecontrollercount)",
            "count(kafka_server_replicamanager_leadercount)",
            "sum(kafka_controller_controllerstats_uncleanleaderelectionspersec)",
            "sum(kafka_controller_kafkacontroller_preferredreplicaimbalancecount)",
            'sum(rate(kafka_server_brokertopicmetrics_bytesinpersec{topic!=""}[1m]))',
            'sum(rate(kafka_server_brokertopicmetrics_bytesoutpersec{topic!=""}[1m]))',
            "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
            "sum(kafka_server_replicamanager_underreplicatedpartitions)",
            "sum(kafka_cluster_partition_underminisr)",
            "sum(kafka_server_replicamanager_partitioncount)",
            "irate(process_cpu_seconds_total[1m])*100",
        ),
        relabelled=CONFLUENT_RULES,
    ),
    Dashboard(
        "Grafana 11962, Kafka Metrics (a copy: cluster health and latency)",
        (
            "sum(kafka_server_replica_manager_leadercount)",
            "sum(kafka_controller_activecontrollercount{})",
            "sum(kafka_controller_globaltopiccount{})",
            "sum(kafka_server_replica_manager_underreplicatedpartitions{})",
            "sum(kafka_server_replica_manager_partitioncount{})",
            "sum(kafka_controller_offlinepartitionscount{})",
            "sum(rate(kafka_server_broker_topic_metrics_messagesinpersec_rate{}[1m]))",
            "count(kafka_cluster_partition_replicascount <= 1)",
            "100 - (kafka_network_socket_server_processor_avg_idle_percent{}*100)",
            "100 - rate(kafka_server_request_handler_avg_idle_percent[1m]) / 10000000",
            'avg(kafka_network_request_metrics_time_ms{request="Produce"}) by (request)',
        ),
        relabelled=SNAKE_RULES,
        without_data={
            "kafka_server_broker_topic_metrics_messagesinpersec_rate": OTHER_RULES,
            "kafka_server_request_handler_avg_idle_percent": (
                "it computes with nanoseconds of a counter; here the share is a gauge"
            ),
            "kafka_network_request_metrics_time_ms": (
                "one metric with a label `aggregate` for all of Java's averages and percentiles"
            ),
        },
    ),
)
