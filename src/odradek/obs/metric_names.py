"""The names of the metrics that parts of a broker register, and what each says."""

from collections.abc import Mapping
from typing import Final

GAUGES: Final[Mapping[str, str]] = {
    "kafka_server_kafkaserver_brokerstate": (
        "0 not running, 1 starting, 2 recovering, 3 running, 6 controlled shutdown, 7 shutting down"
    ),
    "kafka_server_replicamanager_partitioncount": "Partitions with a replica on this broker.",
    "kafka_server_replicamanager_leadercount": "Partitions that this broker leads.",
    "kafka_server_replicamanager_offlinereplicacount": "Replicas in log directories that failed.",
    "kafka_server_replicamanager_underreplicatedpartitions": (
        "Partitions that this broker leads with replicas out of sync."
    ),
    "kafka_server_replicamanager_underminisrpartitioncount": (
        "Partitions that this broker leads with fewer in-sync replicas than min.insync.replicas."
    ),
    "kafka_server_replicamanager_atminisrpartitioncount": (
        "Partitions that this broker leads with exactly min.insync.replicas in-sync replicas."
    ),
    "kafka_server_replicamanager_reassigningpartitions": (
        "Partitions that this broker leads and that are being reassigned."
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": ("Incremental fetch sessions."),
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached": (
        "Partitions in all incremental fetch sessions."
    ),
    "kafka_server_replicafetchermanager_failedpartitionscount": (
        "Partitions that followers here do not fetch because of an error."
    ),
    "kafka_server_kafkaserver_linux_disk_read_bytes": "Bytes that this process read from disks.",
    "kafka_server_kafkaserver_linux_disk_write_bytes": "Bytes that this process wrote to disks.",
    "kafka_network_requestchannel_requestqueuesize": (
        "Always 0: a request is handled in the callback that receives it."
    ),
    "kafka_network_requestchannel_responsequeuesize": (
        "Always 0: a response is sent in the callback that completes it."
    ),
    **{
        f"kafka_coordinator_group_groupmetadatamanager_{name}": f"{what} of this coordinator."
        for name, what in {
            "numgroups": "Groups",
            "numoffsets": "Committed offsets",
            "numgroupsempty": "Groups without members",
            "numgroupspreparingrebalance": "Groups whose members join",
            "numgroupscompletingrebalance": "Groups that wait for the leader's assignment",
            "numgroupsstable": "Groups whose members have their assignment",
            "numgroupsdead": "Groups that are removed",
        }.items()
    },
    "kafka_log_logmanager_offlinelogdirectorycount": "Log directories that failed.",
    "odradek_connections_refused": (
        "Connections refused since the start: max.connections, max.connections.per.ip, open files."
    ),
    "odradek_connections_delayed": (
        "Connections above a rate since the start: served later, or closed after a throttle time."
    ),
    "odradek_connections_dropped": (
        "Connections closed since the start for odradek.connections.memory.max.bytes."
    ),
    "odradek_connections_memory_bytes": (
        "Memory that requests and responses take, of connections with more than 64 KiB each."
    ),
    "odradek_connections_unauthenticated": (
        "Connections not logged in yet, or whose TLS handshake is not complete."
    ),
    "odradek_connections_unauthenticated_bytes": (
        "What they count for odradek.unauthenticated.memory.max.bytes."
    ),
    "odradek_connections_unauthenticated_dropped": (
        "Connections closed since the start for odradek.unauthenticated.*."
    ),
    "odradek_housekeeping_failures": (
        "Failures of periodic work (retention, checkpoints ...) since the start; each is logged."
    ),
    "kafka_log_logcleaner_max_buffer_utilization_percent": (
        "How full the cleaner's offset map was in the last cleaning."
    ),
    "kafka_log_logcleaner_cleaner_recopy_percent": (
        "What the last cleaning wrote, in percent of what it read."
    ),
    "kafka_log_logcleaner_max_clean_time_secs": "The longest cleaning.",
    "kafka_log_logcleaner_max_compaction_delay_secs": (
        "The longest time by which a record has exceeded max.compaction.lag.ms."
    ),
    "kafka_log_logcleanermanager_max_dirty_percent": "Of the dirtiest log, the dirty part.",
    "kafka_log_logcleanermanager_time_since_last_run_ms": (
        "Milliseconds since the cleaner last looked for logs to clean."
    ),
    "kafka_controller_kafkacontroller_activecontrollercount": "1 on the controller, else 0.",
    "kafka_controller_kafkacontroller_activebrokercount": "Brokers that are registered.",
    "kafka_controller_kafkacontroller_globaltopiccount": "Topics of the cluster.",
    "kafka_controller_kafkacontroller_globalpartitioncount": "Partitions of the cluster.",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "Partitions without a leader.",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": (
        "Partitions whose leader is not the preferred replica."
    ),
    "kafka_controller_kafkacontroller_topicstodeletecount": "Topics whose deletion goes on.",
    "kafka_controller_kafkacontroller_topicsineligibletodeletecount": (
        "Topics whose deletion waits for a broker that does not run or for a reassignment."
    ),
    "kafka_controller_controllereventmanager_eventqueuesize": ("Events in the controller's queue."),
}

COUNTERS: Final[Mapping[str, str]] = {
    "kafka_server_replicamanager_isrshrinks": "ISRs that became smaller.",
    "kafka_server_replicamanager_isrexpands": "ISRs that became larger.",
    "kafka_server_replicamanager_failedisrupdates": (
        "Changes of an ISR that the controller refused."
    ),
    "kafka_server_brokertopicmetrics_replicationbytesin": "Bytes that followers here fetched.",
    "kafka_server_brokertopicmetrics_replicationbytesout": (
        "Bytes that followers fetched from here."
    ),
    "kafka_controller_controllerstats_uncleanleaderelections": (
        "Elections that may have lost committed records."
    ),
    "kafka_server_sessionexpirelistener_zookeeperdisconnects": (
        "How often the connection to ZooKeeper was lost."
    ),
    "kafka_server_sessionexpirelistener_zookeepersyncconnects": (
        "How often a connection to ZooKeeper was made."
    ),
    "kafka_server_sessionexpirelistener_zookeeperexpires": (
        "How often the session with ZooKeeper expired."
    ),
}

LABELLED_COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "kafka_server_socket_server_metrics_connection_creation": (
        "Connections made.",
        ("listener", "networkProcessor"),
    ),
    "kafka_server_socket_server_metrics_connection_close": (
        "Connections closed.",
        ("listener", "networkProcessor"),
    ),
    "odradek_log_cuts": (
        "How often records left a log, but not by retention or DeleteRecords, since the start.",
        ("kind",),
    ),
    "odradek_log_cut_bytes": (
        "Bytes that left a log, but not by retention or DeleteRecords, since the start.",
        ("kind",),
    ),
}

SUMMARIES: Final[Mapping[str, str]] = {
    "kafka_controller_controllerstats_leaderelectionrateandtimems": (
        "Milliseconds in which the controller stored the outcome of elections."
    ),
    "kafka_log_logflushstats_logflushrateandtimems": "Milliseconds of a log's flush to disk.",
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms": (
        "Milliseconds from a request to ZooKeeper to its response."
    ),
}

_OF_GROUP: Final = ("consumergroup", "topic", "partition")

LABELLED_GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "kafka_server_app_info": ("Always 1, with the version.", ("version",)),
    "kafka_brokers": ("Brokers that are registered; only the controller has this metric.", ()),
    "kafka_server_socket_server_metrics_connection_count": (
        "Connections, by listener.",
        ("listener", "networkProcessor"),
    ),
    "kafka_server_socket_server_metrics_connection_creation_rate": (
        "Connections made in a second, in the last minute.",
        ("listener", "networkProcessor"),
    ),
    "kafka_server_socket_server_metrics_connection_close_rate": (
        "Connections closed in a second, in the last minute.",
        ("listener", "networkProcessor"),
    ),
    "kafka_server_socket_server_metrics_connections": (
        "Connections, by what the client says that it is (KIP-511).",
        ("listener", "networkProcessor", "clientSoftwareName", "clientSoftwareVersion"),
    ),
    "kafka_server_delayedoperationpurgatory_numdelayedoperations": (
        "Requests that wait for a condition.",
        ("delayedOperation",),
    ),
    "kafka_server_fetcherlagmetrics_consumerlag": (
        "Records below the leader's high watermark that the follower here does not have.",
        ("clientId", "topic", "partition"),
    ),
    "kafka_consumergroup_current_offset": (
        "The committed offset, of the groups whose coordinator this broker is.",
        _OF_GROUP,
    ),
    "kafka_consumergroup_lag": (
        "Records between the committed offset and the high watermark of the partition's leader.",
        _OF_GROUP,
    ),
    "kafka_consumergroup_current_offset_sum": (
        "The sum of the committed offsets of a topic.",
        ("consumergroup", "topic"),
    ),
    "kafka_consumergroup_lag_sum": (
        "The sum of the lags of a topic.",
        ("consumergroup", "topic"),
    ),
    "kafka_consumergroup_members": ("Members of a group.", ("consumergroup",)),
    "odradek_log_directory_total_bytes": (
        "Bytes of the file system of a log directory.",
        ("logDirectory",),
    ),
    "odradek_log_directory_free_bytes": (
        "Bytes of the file system of a log directory that are free.",
        ("logDirectory",),
    ),
    **{
        f"kafka_server_socket_server_metrics_{what}": (text, ("listener",))
        for what, text in {
            "successful_authentication_total": "Clients that have logged in by SASL or TLS.",
            "successful_authentication_rate": "Clients a second that log in.",
            "successful_authentication_no_reauth_total": (
                "Clients that have logged in and cannot do it again: older than Kafka 2.2, or TLS."
            ),
            "failed_authentication_total": "Clients that failed to log in.",
            "failed_authentication_rate": "Clients a second that fail to log in.",
            "successful_reauthentication_rate": "Sessions a second that are prolonged.",
            "failed_reauthentication_rate": "Sessions a second that a failed log-in ends.",
            "reauthentication_latency_avg": "Milliseconds to log in again, in the last minute.",
            "reauthentication_latency_max": "The longest of these times, in milliseconds.",
            "successful_reauthentication_total": "Sessions that were prolonged (KIP-368).",
            "failed_reauthentication_total": "Sessions that a failed log-in has ended.",
            "expired_connections_killed_count": "Connections closed because their session expired.",
        }.items()
    },
    "odradek_tls_certificate_expiry_seconds": (
        "Until when the certificate of a listener is valid, in seconds since the epoch.",
        ("listener",),
    ),
    "odradek_tls_handshakes_failed": (
        "TLS handshakes that failed since the start, by listener.",
        ("listener",),
    ),
    "kafka_server_delayedoperationpurgatory_purgatorysize": (
        "Requests in the purgatory.",
        ("delayedOperation",),
    ),
    "kafka_log_logmanager_logdirectoryoffline": (
        "1 for a log directory that failed, else 0.",
        ("logDirectory",),
    ),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": (
        "Logs that the cleaner skips because they are damaged.",
        ("logDirectory",),
    ),
    "kafka_log_logcleanermanager_uncleanable_bytes": (
        "Bytes of these logs that are not cleaned.",
        ("logDirectory",),
    ),
    **{
        f"kafka_server_{quota}": (text, ("user", "client_id"))
        for quota, text in {
            "produce_byte_rate": "Bytes a second produced, of clients with a quota.",
            "produce_throttle_time": "Their latest throttle time, ms.",
            "fetch_byte_rate": "Bytes a second consumed, of clients with a quota.",
            "fetch_throttle_time": "Their latest throttle time, ms.",
            "request_request_time": "Percent of the event loop's time, of clients with a quota.",
            "request_throttle_time": "Their latest throttle time, ms.",
            "controllermutation_tokens": (
                "Partitions that clients with a quota may create or delete at once; negative: none."
            ),
            "controllermutation_throttle_time": "Their latest throttle time, ms.",
        }.items()
    },
    "kafka_server_replicafetchermanager_maxlag": (
        "The largest lag of a follower on this broker, in records.",
        ("clientId",),
    ),
}
