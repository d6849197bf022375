"""Broker options: logs, their cleaning, their replication."""

from typing import Final

from odradek.config.option import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    VERSION,
    Option,
    at_least,
    between,
    between_or,
    one_of,
)

# fmt: off
OPTIONS: Final = (
    # ----------------------------------------------------------------------------------------- logs
    Option(
        "log.dirs", STRING, None,
        doc="The directories with the logs of this broker's partitions, separated by commas; a "
            "new partition goes to the directory with the fewest. Unset: `log.dir`.",
    ),
    Option(
        "log.dir", STRING, "/tmp/kafka-logs",
        doc="The log directory if `log.dirs` is not set.",
    ),
    Option(
        "log.segment.bytes", INT, 1_073_741_824, rule=at_least(14), scope=CLUSTER_WIDE,
        doc="A log is rolled to a new segment before the active one would exceed this size.",
    ),
    Option(
        "log.roll.ms", LONG, None, scope=CLUSTER_WIDE,
        doc="A segment is rolled when its first record is this old, whatever its size. Unset: "
            "`log.roll.hours`.",
    ),
    Option(
        "log.roll.hours", INT, 168, rule=at_least(1),
        doc="`log.roll.ms` in hours.",
    ),
    Option(
        "log.roll.jitter.ms", LONG, None, scope=CLUSTER_WIDE,
        doc="A random time up to this is subtracted from the time to roll, so that not all "
            "partitions roll at once. Unset: `log.roll.jitter.hours`.",
    ),
    Option(
        "log.roll.jitter.hours", INT, 0, rule=at_least(0),
        doc="`log.roll.jitter.ms` in hours.",
    ),
    Option(
        "log.retention.ms", LONG, None, scope=CLUSTER_WIDE,
        doc="How long records are kept, at least; -1: for ever. A whole segment is deleted when "
            "its newest record is older. Unset: `log.retention.minutes`.",
    ),
    Option(
        "log.retention.minutes", INT, None,
        doc="`log.retention.ms` in minutes. Unset: `log.retention.hours`.",
    ),
    Option(
        "log.retention.hours", INT, 168,
        doc="`log.retention.ms` in hours.",
    ),
    Option(
        "log.retention.bytes", LONG, -1, scope=CLUSTER_WIDE,
        doc="The size of a partition above which its oldest segments are deleted; -1: no limit.",
    ),
    Option(
        "log.retention.check.interval.ms", LONG, 300_000, rule=at_least(1),
        doc="How often the broker checks for segments to delete.",
    ),
    Option(
        "log.cleanup.policy", LIST, ("delete",), rule=one_of("compact", "delete"),
        scope=CLUSTER_WIDE,
        doc="How old records are removed: `delete` by age and size, `compact` keeps the last "
            "record of each key, or both.",
    ),
    Option(
        "log.segment.delete.delay.ms", LONG, 60_000, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How long the renamed files of a deleted segment stay for readers that have them "
            "open.",
    ),
    Option(
        "log.index.size.max.bytes", INT, 10_485_760, rule=at_least(4), scope=CLUSTER_WIDE,
        doc="The maximum size of a segment's index; a full index rolls the segment.",
    ),
    Option(
        "log.index.interval.bytes", INT, 4_096, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The index gets an entry after this many bytes of records.",
    ),
    Option(
        "log.flush.interval.messages", LONG, LONG_MAX, rule=at_least(1), scope=CLUSTER_WIDE,
        doc="A log is flushed after this many records. By default the kernel decides: "
            "replication, not the disk, makes records durable.",
    ),
    Option(
        "log.flush.interval.ms", LONG, None, scope=CLUSTER_WIDE,
        doc="A log is flushed after this time. Unset: `log.flush.scheduler.interval.ms`.",
    ),
    Option(
        "log.flush.scheduler.interval.ms", LONG, LONG_MAX,
        doc="How often the broker checks for logs to flush.",
    ),
    Option(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, rule=at_least(0),
        doc="How often the recovery points are written; records below them are not checked again "
            "after a crash. Before that, logs without new records since the last time are flushed.",
    ),
    Option(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, rule=at_least(0),
        doc="How often the log start offsets are written, so that records deleted by request "
            "stay deleted.",
    ),
    Option(
        "log.preallocate", BOOLEAN, False, scope=CLUSTER_WIDE, effect=False,
        doc="Whether the file of a new segment is preallocated.",
    ),
    Option(
        "log.message.timestamp.type", STRING, "CreateTime", rule=one_of("CreateTime",
        "LogAppendTime"), scope=CLUSTER_WIDE,
        doc="Whose clock sets the timestamps of records: the producer's (`CreateTime`) or the "
            "leader's (`LogAppendTime`).",
    ),
    Option(
        "log.message.timestamp.before.max.ms", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE,
        doc="With `CreateTime`, how far a record's timestamp may be before the leader's clock; "
            "other records are refused.",
    ),
    Option(
        "log.message.timestamp.after.max.ms", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE,
        doc="With `CreateTime`, how far a record's timestamp may be after the leader's clock; "
            "other records are refused.",
    ),
    Option(
        "log.message.timestamp.difference.max.ms", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE,
        doc="The former name of both `log.message.timestamp.before.max.ms` and "
            "`log.message.timestamp.after.max.ms`; used for the one that is not set.",
    ),
    Option(
        "log.message.format.version", STRING, "3.0-IV1", rule=VERSION, effect=False,
        doc="Ignored, as Kafka does since 3.0: records are always written in format v2.",
    ),
    Option(
        "log.message.downconversion.enable", BOOLEAN, True, scope=CLUSTER_WIDE,
        doc="Whether records are converted for consumers older than 0.11, which read the formats "
            "v0 and v1 only. Otherwise their fetches get UNSUPPORTED_VERSION.",
    ),
    Option(
        "compression.type", STRING, "producer", rule=one_of("uncompressed", "zstd", "lz4",
        "snappy", "gzip", "producer"), scope=CLUSTER_WIDE,
        doc="How batches are compressed in the log: `producer` keeps the producer's codec; with "
            "another value the leader recompresses.",
    ),
    Option(
        "compression.gzip.level", INT, -1, rule=between_or(1, 9, -1), scope=CLUSTER_WIDE,
        doc="The level of gzip if the leader compresses; -1: gzip's own default.",
    ),
    Option(
        "compression.lz4.level", INT, 9, rule=between(1, 17), scope=CLUSTER_WIDE,
        doc="The level of lz4 if the leader compresses.",
    ),
    Option(
        "compression.zstd.level", INT, 3, rule=between(-131_072, 22), scope=CLUSTER_WIDE,
        doc="The level of zstd if the leader compresses.",
    ),
    Option(
        "message.max.bytes", INT, 1_048_588, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The largest batch that is accepted, after compression.",
    ),
    Option(
        "num.recovery.threads.per.data.dir", INT, 1, rule=at_least(1), scope=CLUSTER_WIDE,
        effect=False,
        doc="In Apache Kafka, the threads that read logs at start and flush them at stop.",
    ),
    Option(
        "log.dir.failure.timeout.ms", LONG, 30_000, rule=at_least(1), effect=False,
        doc="In KRaft, how long a broker may fail to report a failed log directory to the "
            "controller.",
    ),
    # ---------------------------------------------------------------------------------- log cleaner
    Option(
        "log.cleaner.enable", BOOLEAN, True,
        doc="Whether logs with the policy `compact` are cleaned. If false, they grow without "
            "limit, also `__consumer_offsets`.",
    ),
    Option(
        "log.cleaner.threads", INT, 1, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The maximum number of logs cleaned at the same time.",
    ),
    Option(
        "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, scope=CLUSTER_WIDE,
        doc="The memory of all cleaners together for the map of keys; each round cleans as many "
            "records as fit.",
    ),
    Option(
        "log.cleaner.io.buffer.size", INT, 524_288, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The size of the cleaner's read and write buffers.",
    ),
    Option(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, scope=CLUSTER_WIDE,
        doc="The maximum load factor of the map of keys.",
    ),
    Option(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, scope=CLUSTER_WIDE,
        doc="How many bytes all cleaners together may read and write in a second.",
    ),
    Option(
        "log.cleaner.backoff.ms", LONG, 15_000, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How long a cleaner waits if there was nothing to clean.",
    ),
    Option(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, rule=between(0, 1), scope=CLUSTER_WIDE,
        doc="The fraction of a log that must be uncleaned before the log is cleaned.",
    ),
    Option(
        "log.cleaner.min.compaction.lag.ms", LONG, 0, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How long a record stays uncompacted, at least.",
    ),
    Option(
        "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, rule=at_least(1), scope=CLUSTER_WIDE,
        doc="How long a record may stay uncompacted, whatever the ratio.",
    ),
    Option(
        "log.cleaner.delete.retention.ms", LONG, 86_400_000, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How long tombstones stay in a compacted topic, for consumers that read from the "
            "beginning.",
    ),
    # ----------------------------------------------------------------------- topics and replication
    Option(
        "num.partitions", INT, 1, rule=at_least(1),
        doc="How many partitions a topic gets if the request does not specify it.",
    ),
    Option(
        "default.replication.factor", INT, 1,
        doc="How many replicas a partition gets if the request does not specify it.",
    ),
    Option(
        "auto.create.topics.enable", BOOLEAN, True,
        doc="Whether a topic is created when a producer or consumer requests its metadata.",
    ),
    Option(
        "delete.topic.enable", BOOLEAN, True,
        doc="Whether topics can be deleted.",
    ),
    Option(
        "min.insync.replicas", INT, 1, rule=at_least(1), scope=CLUSTER_WIDE,
        doc="How many replicas must be in sync for a write with acks=all. With a larger value "
            "than the number of replicas such writes fail.",
    ),
    Option(
        "unclean.leader.election.enable", BOOLEAN, False, scope=CLUSTER_WIDE,
        doc="Whether a replica outside the ISR may lead if no in-sync replica is online. "
            "Committed records may be lost.",
    ),
    Option(
        "create.topic.policy.class.name", CLASS, None, effect=False,
        doc="In Apache Kafka, the class that decides which new topics are refused.",
    ),
    Option(
        "replica.lag.time.max.ms", LONG, 30_000,
        doc="A follower that has not caught up with the end of the leader's log for this long "
            "leaves the ISR.",
    ),
    Option(
        "replica.fetch.max.bytes", INT, 1_048_576, rule=at_least(0),
        doc="How many bytes of one partition a follower requests at a time; a larger first batch "
            "is returned whole.",
    ),
    Option(
        "replica.fetch.response.max.bytes", INT, 10_485_760, rule=at_least(0),
        doc="How many bytes of all partitions a follower requests at a time; a larger first batch "
            "is returned whole.",
    ),
    Option(
        "replica.fetch.min.bytes", INT, 1,
        doc="How many bytes must be available before a follower's fetch is answered, unless "
            "`replica.fetch.wait.max.ms` has passed.",
    ),
    Option(
        "replica.fetch.wait.max.ms", INT, 500,
        doc="How long a leader may delay the response to a follower's fetch. At most "
            "`replica.lag.time.max.ms`.",
    ),
    Option(
        "replica.fetch.backoff.ms", INT, 1_000, rule=at_least(0),
        doc="How long a follower waits after the fetch of a partition failed.",
    ),
    Option(
        "replica.socket.timeout.ms", INT, 30_000,
        doc="How long a follower waits for the response to a fetch. At least "
            "`replica.fetch.wait.max.ms`.",
    ),
    Option(
        "replica.socket.receive.buffer.bytes", INT, 65_536,
        effect=False,
        doc="The size of the kernel's receive buffer of a follower's connection (SO_RCVBUF).",
    ),
    Option(
        "num.replica.fetchers", INT, 1, scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, the threads by which a follower fetches from each leader. Here "
            "one connection carries all partitions of a leader.",
    ),
    Option(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5_000,
        doc="How often the high watermarks are written to disk.",
    ),
    Option(
        "num.replica.alter.log.dirs.threads", INT, None, effect=False,
        doc="In Apache Kafka, the threads that move replicas between log directories.",
    ),
    Option(
        "replica.selector.class", STRING, None,
        doc="The class that chooses the replica from which a consumer reads: "
            "`org.apache.kafka.common.replica.RackAwareReplicaSelector` chooses one in the "
            "consumer's rack. Unset: the leader.",
    ),
    Option(
        "fetch.max.bytes", INT, 57_671_680, rule=at_least(1_024),
        doc="The largest response to a fetch, whatever the client requests; a larger first batch "
            "is returned whole.",
    ),
    Option(
        "max.incremental.fetch.session.cache.slots", INT, 1_000, rule=at_least(0),
        doc="The number of incremental fetch sessions that this broker keeps.",
    ),
    Option(
        "max.request.partition.size.limit", INT, 2_000, rule=at_least(1),
        effect=False,
        doc="How many partitions one response to DescribeTopicPartitions contains; the client "
            "requests the rest.",
    ),
    Option(
        "fetch.purgatory.purge.interval.requests", INT, 1_000, effect=False,
        doc="In Apache Kafka, how often completed fetches are removed from the purgatory. Here "
            "they are removed when they complete.",
    ),
    Option(
        "producer.purgatory.purge.interval.requests", INT, 1_000, effect=False,
        doc="The same for produce requests.",
    ),
)
