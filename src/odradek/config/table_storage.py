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
            "new partition goes where the fewest are. Unset: `log.dir`.",
    ),
    Option(
        "log.dir", STRING, "/tmp/kafka-logs",
        doc="The one directory for logs, where `log.dirs` is not set.",
    ),
    Option(
        "log.segment.bytes", INT, 1_073_741_824, rule=at_least(14), scope=CLUSTER_WIDE,
        doc="A log is rolled to a new segment before its active one would grow above this size.",
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
        doc="Up to this much is taken, at random, from the time to roll, so that not all "
            "partitions roll at once. Unset: `log.roll.jitter.hours`.",
    ),
    Option(
        "log.roll.jitter.hours", INT, 0, rule=at_least(0),
        doc="`log.roll.jitter.ms` in hours.",
    ),
    Option(
        "log.retention.ms", LONG, None, scope=CLUSTER_WIDE,
        doc="How long records are kept, at least; -1 for ever. Whole segments go, once their "
            "newest record is older. Unset: `log.retention.minutes`.",
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
        doc="How large each partition may grow before its oldest segments go; -1 sets no limit.",
    ),
    Option(
        "log.retention.check.interval.ms", LONG, 300_000, rule=at_least(1),
        doc="How often it is looked for segments that may go.",
    ),
    Option(
        "log.cleanup.policy", LIST, ("delete",), rule=one_of("compact", "delete"),
        scope=CLUSTER_WIDE,
        doc="What becomes of old records: `delete` by age and size, `compact` to the last of "
            "each key, or both.",
    ),
    Option(
        "log.segment.delete.delay.ms", LONG, 60_000, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How long the files of a deleted segment stay, renamed, for readers that have them "
            "open.",
    ),
    Option(
        "log.index.size.max.bytes", INT, 10_485_760, rule=at_least(4), scope=CLUSTER_WIDE,
        doc="How large the index of a segment may grow; a full one rolls the segment.",
    ),
    Option(
        "log.index.interval.bytes", INT, 4_096, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="After how many bytes of records the index gets an entry.",
    ),
    Option(
        "log.flush.interval.messages", LONG, LONG_MAX, rule=at_least(1), scope=CLUSTER_WIDE,
        doc="After how many records a log is forced to disk. By default the kernel decides: "
            "replication, not the disk, keeps records safe.",
    ),
    Option(
        "log.flush.interval.ms", LONG, None, scope=CLUSTER_WIDE,
        doc="After what time a log is forced to disk. Unset: `log.flush.scheduler.interval.ms`.",
    ),
    Option(
        "log.flush.scheduler.interval.ms", LONG, LONG_MAX,
        doc="How often it is looked for logs that are due to be forced to disk.",
    ),
    Option(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, rule=at_least(0),
        doc="How often the recovery points are written: what lies below them is not read again "
            "after a crash.",
    ),
    Option(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, rule=at_least(0),
        doc="How often the log start offsets are written, so that records deleted by request "
            "stay deleted.",
    ),
    Option(
        "log.preallocate", BOOLEAN, False, scope=CLUSTER_WIDE, effect=False,
        doc="Whether the file of a new segment is given its full size at once.",
    ),
    Option(
        "log.message.timestamp.type", STRING, "CreateTime", rule=one_of("CreateTime",
        "LogAppendTime"), scope=CLUSTER_WIDE,
        doc="Whose clock stamps the records: the producer's (`CreateTime`) or the leader's "
            "(`LogAppendTime`).",
    ),
    Option(
        "log.message.timestamp.before.max.ms", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE,
        doc="How far the timestamp of a record may lie before the leader's clock, with "
            "`CreateTime`; a record beyond is refused.",
    ),
    Option(
        "log.message.timestamp.after.max.ms", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE,
        doc="How far the timestamp of a record may lie after the leader's clock, with "
            "`CreateTime`; a record beyond is refused.",
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
        "log.message.downconversion.enable", BOOLEAN, True, scope=CLUSTER_WIDE, effect=False,
        doc="Whether Apache Kafka converts records to formats of before 0.11 for old consumers. "
            "These are not served here.",
    ),
    Option(
        "compression.type", STRING, "producer", rule=one_of("uncompressed", "zstd", "lz4",
        "snappy", "gzip", "producer"), scope=CLUSTER_WIDE,
        doc="How batches are compressed in the log: `producer` keeps what the producer chose, "
            "anything else is applied by the leader.",
    ),
    Option(
        "compression.gzip.level", INT, -1, rule=between_or(1, 9, -1), scope=CLUSTER_WIDE,
        doc="The level of gzip, where the leader compresses; -1 is gzip's own default.",
    ),
    Option(
        "compression.lz4.level", INT, 9, rule=between(1, 17), scope=CLUSTER_WIDE,
        doc="The level of lz4, where the leader compresses.",
    ),
    Option(
        "compression.zstd.level", INT, 3, rule=between(-131_072, 22), scope=CLUSTER_WIDE,
        doc="The level of zstd, where the leader compresses.",
    ),
    Option(
        "message.max.bytes", INT, 1_048_588, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The largest batch that is taken, after compression.",
    ),
    Option(
        "num.recovery.threads.per.data.dir", INT, 1, rule=at_least(1), scope=CLUSTER_WIDE,
        effect=False,
        doc="In Apache Kafka, the threads that read logs at start and flush them at stop.",
    ),
    Option(
        "log.dir.failure.timeout.ms", LONG, 30_000, rule=at_least(1), effect=False,
        doc="In KRaft, how long a failed log directory may remain unknown to the controller.",
    ),
    # ---------------------------------------------------------------------------------- log cleaner
    Option(
        "log.cleaner.enable", BOOLEAN, True,
        doc="Whether logs with the policy `compact` are cleaned; without it they grow for ever, "
            "`__consumer_offsets` among them.",
    ),
    Option(
        "log.cleaner.threads", INT, 1, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How many logs are cleaned at a time, at most.",
    ),
    Option(
        "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, scope=CLUSTER_WIDE,
        doc="How many bytes all cleaners together have for the map of keys; each round takes as "
            "many records as fit.",
    ),
    Option(
        "log.cleaner.io.buffer.size", INT, 524_288, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The buffers by which the cleaner reads and writes.",
    ),
    Option(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, scope=CLUSTER_WIDE,
        doc="How full the map of keys may become, as a fraction.",
    ),
    Option(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, scope=CLUSTER_WIDE,
        doc="How much cleaners may read and write in a second, together.",
    ),
    Option(
        "log.cleaner.backoff.ms", LONG, 15_000, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How long a cleaner waits when there was nothing to clean.",
    ),
    Option(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, rule=between(0, 1), scope=CLUSTER_WIDE,
        doc="Which part of a log has to be uncleaned before it is worth a cleaning.",
    ),
    Option(
        "log.cleaner.min.compaction.lag.ms", LONG, 0, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="For how long a record stays uncompacted, at least.",
    ),
    Option(
        "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, rule=at_least(1), scope=CLUSTER_WIDE,
        doc="For how long a record may stay uncompacted, whatever the ratio.",
    ),
    Option(
        "log.cleaner.delete.retention.ms", LONG, 86_400_000, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How long the markers of deleted keys stay, for consumers that read from the "
            "beginning.",
    ),
    # ----------------------------------------------------------------------- topics and replication
    Option(
        "num.partitions", INT, 1, rule=at_least(1),
        doc="How many partitions a topic gets when nobody says how many.",
    ),
    Option(
        "default.replication.factor", INT, 1,
        doc="How many replicas a partition gets when nobody says how many.",
    ),
    Option(
        "auto.create.topics.enable", BOOLEAN, True,
        doc="Whether a topic that a producer or consumer asks for is created.",
    ),
    Option(
        "delete.topic.enable", BOOLEAN, True,
        doc="Whether topics can be deleted.",
    ),
    Option(
        "min.insync.replicas", INT, 1, rule=at_least(1), scope=CLUSTER_WIDE,
        doc="How many replicas have to be in sync for a write with acks=all to be taken. More "
            "than there are replicas: such writes fail.",
    ),
    Option(
        "unclean.leader.election.enable", BOOLEAN, False, scope=CLUSTER_WIDE,
        doc="Whether a replica that is not in sync may lead when no other lives. Committed "
            "records may be lost.",
    ),
    Option(
        "create.topic.policy.class.name", CLASS, None, effect=False,
        doc="In Apache Kafka, a class that may refuse new topics.",
    ),
    Option(
        "replica.lag.time.max.ms", LONG, 30_000,
        doc="A follower that has not caught up with the end of the leader's log for this long "
            "leaves the ISR.",
    ),
    Option(
        "replica.fetch.max.bytes", INT, 1_048_576, rule=at_least(0),
        doc="How many bytes of one partition a follower asks for at a time; a larger first "
            "batch comes whole.",
    ),
    Option(
        "replica.fetch.response.max.bytes", INT, 10_485_760, rule=at_least(0),
        doc="How many bytes of all partitions a follower asks for at a time; a larger first "
            "batch comes whole.",
    ),
    Option(
        "replica.fetch.min.bytes", INT, 1,
        doc="How many bytes have to be there before a follower is answered, unless "
            "`replica.fetch.wait.max.ms` is over.",
    ),
    Option(
        "replica.fetch.wait.max.ms", INT, 500,
        doc="How long a leader may keep a follower waiting. At most `replica.lag.time.max.ms`.",
    ),
    Option(
        "replica.fetch.backoff.ms", INT, 1_000, rule=at_least(0),
        doc="How long a follower waits after a partition's fetch failed.",
    ),
    Option(
        "replica.socket.timeout.ms", INT, 30_000,
        doc="How long a follower waits for the answer to a fetch. At least "
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
        doc="What chooses the replica a consumer reads from: "
            "`org.apache.kafka.common.replica.RackAwareReplicaSelector` for the nearest by "
            "rack. Unset: the leader.",
    ),
    Option(
        "fetch.max.bytes", INT, 57_671_680, rule=at_least(1_024),
        doc="The largest answer to a fetch, whatever the client asks for; a larger first batch "
            "comes whole.",
    ),
    Option(
        "max.incremental.fetch.session.cache.slots", INT, 1_000, rule=at_least(0),
        doc="For how many fetchers this broker remembers what they have, so that only changes "
            "travel.",
    ),
    Option(
        "max.request.partition.size.limit", INT, 2_000, rule=at_least(1),
        effect=False,
        doc="How many partitions one answer to DescribeTopicPartitions holds; the client asks on.",
    ),
    Option(
        "fetch.purgatory.purge.interval.requests", INT, 1_000, effect=False,
        doc="In Apache Kafka, how often fetches that are done are removed from those that wait. "
            "Here they are removed when done.",
    ),
    Option(
        "producer.purgatory.purge.interval.requests", INT, 1_000, effect=False,
        doc="The same for produce requests.",
    ),
)
