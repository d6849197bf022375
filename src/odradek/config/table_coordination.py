"""Broker options: the controller, groups, transactions."""

from typing import Final

from odradek.config.option import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LONG,
    SHORT,
    Option,
    at_least,
    between,
)

# fmt: off
OPTIONS: Final = (
    # ----------------------------------------------------------------------------------- controller
    Option(
        "auto.leader.rebalance.enable", BOOLEAN, True,
        doc="Whether the controller moves leadership back to preferred replicas.",
    ),
    Option(
        "leader.imbalance.check.interval.seconds", LONG, 300, rule=at_least(1),
        doc="How often the controller checks whether that is needed.",
    ),
    Option(
        "leader.imbalance.per.broker.percentage", INT, 10,
        doc="The percentage of a broker's preferred partitions that other brokers may lead before "
            "leadership moves back.",
    ),
    Option(
        "controlled.shutdown.enable", BOOLEAN, True,
        doc="Whether a stopping broker has its leaderships moved to other brokers first.",
    ),
    Option(
        "controlled.shutdown.max.retries", INT, 3,
        doc="For how long the broker tries to move its leaderships: this number less one, "
            "times "
            "`controlled.shutdown.retry.backoff.ms`.",
    ),
    Option(
        "controlled.shutdown.retry.backoff.ms", LONG, 5_000,
        doc="Sets, with `controlled.shutdown.max.retries`, only for how long a stopping broker "
            "tries to move its leaderships away (10 s by default). Within that time it asks the "
            "controller again every 250 ms; Apache Kafka waits for this time between two tries.",
    ),
    Option(
        "controller.socket.timeout.ms", INT, 30_000,
        doc="How long the controller waits for a broker's response.",
    ),
    # --------------------------------------------------------------------------- groups and offsets
    Option(
        "group.min.session.timeout.ms", INT, 6_000,
        doc="The shortest session timeout that a member may request.",
    ),
    Option(
        "group.max.session.timeout.ms", INT, 1_800_000,
        doc="The longest session timeout that a member may request.",
    ),
    Option(
        "group.max.size", INT, INT_MAX, rule=at_least(1),
        doc="The maximum number of members of a group.",
    ),
    Option(
        "group.initial.rebalance.delay.ms", INT, 3_000,
        doc="How long an empty group waits for more members before its first rebalance.",
    ),
    Option(
        "offset.metadata.max.bytes", INT, 4_096,
        doc="The maximum length of the metadata of a committed offset.",
    ),
    Option(
        "offsets.topic.num.partitions", INT, 50, rule=at_least(1),
        doc="The number of partitions of `__consumer_offsets` when it is created.",
    ),
    Option(
        "offsets.topic.replication.factor", SHORT, 3, rule=at_least(1),
        doc="How many replicas the topic gets. With fewer registered brokers it is not created "
            "yet.",
    ),
    Option(
        "offsets.topic.segment.bytes", INT, 104_857_600, rule=at_least(1),
        doc="The topic's segment size: small, so that the topic is compacted and loaded quickly.",
    ),
    Option(
        "offsets.topic.compression.codec", INT, 0, rule=between(0, 4),
        doc="The codec of the topic's batches, as a number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 "
            "zstd.",
    ),
    Option(
        "offsets.retention.minutes", INT, 10_080, rule=at_least(1),
        doc="How long the committed offsets of a group are kept after its last member has left; "
            "for a consumer without membership, after its last commit.",
    ),
    Option(
        "offsets.retention.check.interval.ms", LONG, 600_000, rule=at_least(1),
        doc="How often the coordinator checks for expired offsets.",
    ),
    Option(
        "offsets.load.buffer.size", INT, 5_242_880, rule=at_least(1), effect=False,
        doc="How much of `__consumer_offsets` is read at a time while a coordinator loads.",
    ),
    Option(
        "offsets.commit.timeout.ms", INT, 5_000, rule=at_least(1),
        doc="How long an OffsetCommit may wait for its replicas.",
    ),
    Option(
        "offsets.commit.required.acks", SHORT, -1, effect=False,
        doc="The acks of an OffsetCommit; only -1, all in-sync replicas, is safe.",
    ),
    # ------------------------------------------------------------------- transactions and producers
    Option(
        "transactional.id.expiration.ms", INT, 604_800_000, rule=at_least(1),
        doc="How long a transactional id without a transaction is kept.",
    ),
    Option(
        "transaction.max.timeout.ms", INT, 900_000, rule=at_least(1),
        doc="The longest timeout that a producer may request for its transactions.",
    ),
    Option(
        "transaction.state.log.num.partitions", INT, 50, rule=at_least(1),
        doc="The number of partitions of `__transaction_state` when it is created.",
    ),
    Option(
        "transaction.state.log.replication.factor", SHORT, 3, rule=at_least(1),
        doc="How many replicas the topic gets. With fewer registered brokers it is not created "
            "yet.",
    ),
    Option(
        "transaction.state.log.min.isr", INT, 2, rule=at_least(1),
        doc="The `min.insync.replicas` of `__transaction_state`.",
    ),
    Option(
        "transaction.state.log.segment.bytes", INT, 104_857_600, rule=at_least(1),
        doc="The topic's segment size: small, so that the topic is compacted and loaded quickly.",
    ),
    Option(
        "transaction.state.log.load.buffer.size", INT, 5_242_880, rule=at_least(1), effect=False,
        doc="How much of `__transaction_state` is read at a time while a coordinator loads.",
    ),
    Option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000,
        rule=at_least(1),
        doc="How often the coordinator checks for transactions that have timed out.",
    ),
    Option(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000,
        rule=at_least(1),
        doc="How often the coordinator checks for expired transactional ids.",
    ),
    Option(
        "transaction.partition.verification.enable", BOOLEAN, True, scope=CLUSTER_WIDE,
        doc="Whether a leader verifies with the coordinator, before a transaction's first batch, "
            "that the partition belongs to the transaction. In transactions of version 2 the "
            "leader always adds the partition.",
    ),
    Option(
        "producer.id.expiration.ms", INT, 86_400_000, rule=at_least(1), scope=CLUSTER_WIDE,
        doc="How long a partition keeps the last sequence numbers of a producer that no longer "
            "writes.",
    ),
    Option(
        "producer.id.expiration.check.interval.ms", INT, 600_000, rule=at_least(1), internal=True,
        doc="How often the broker checks for expired producers.",
    ),
)
