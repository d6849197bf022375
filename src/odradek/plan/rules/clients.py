"""The doctor's rules on transactions, groups and records."""

from collections.abc import Iterator
from typing import Final

from odradek.model.command import flag
from odradek.model.partition import TopicPartition
from odradek.model.sentence import sentence
from odradek.plan.facts import ClusterFacts, Finding, OpenProducer, Severity, named
from odradek.plan.quantities import counted

# As kafka-transactions find-hanging: five minutes beyond the largest transaction timeout.
HANGING_SLACK_MS: Final = 300_000
FUTURE_MS: Final = 3_600_000
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")


def _transactions(facts: ClusterFacts) -> Iterator[Finding]:
    oldest_ms = facts.wall_ms - facts.transaction_max_timeout_ms - HANGING_SLACK_MS
    for partition, producers in sorted(facts.open_transactions.items()):
        for producer in producers:
            if producer.coordinated:
                if 0 <= producer.started_ms < facts.wall_ms - facts.patience_ms:
                    yield _open(facts, partition, producer)
            elif producer.last_timestamp < oldest_ms:
                yield _hanging(facts, partition, producer)


def _hanging(facts: ClusterFacts, partition: TopicPartition, producer: OpenProducer) -> Finding:
    return Finding(
        Severity.CRITICAL,
        "hanging",
        str(partition),
        f"a transaction of producer {producer.producer_id} is open since offset "
        f"{producer.first_offset}, its last write was at {facts.clock(producer.last_timestamp)}, "
        "and no coordinator has it: it never ends by itself, read_committed consumers wait "
        "there, and the log is not cleaned",
        sentence(facts.caller.abort(partition, producer.first_offset)),
    )


def _open(facts: ClusterFacts, partition: TopicPartition, producer: OpenProducer) -> Finding:
    ends_ms = producer.started_ms + producer.timeout_ms
    return Finding(
        Severity.WARNING,
        "open-transaction",
        str(partition),
        f"the transaction of transactional.id {producer.transactional_id} is open"
        f"{facts.since(producer.started_ms)}: read_committed consumers wait at offset "
        f"{producer.first_offset}",
        sentence(
            "commit or abort it in that producer; the coordinator aborts it at "
            f"{facts.clock(ends_ms)} (transaction.timeout.ms); more: ",
            facts.caller.kafka(
                "kafka-transactions",
                *("describe", *flag("--transactional-id", producer.transactional_id)),
            ),
        ),
    )


# ----------------------------------------------------------------------------------------- groups


def _groups(facts: ClusterFacts) -> Iterator[Finding]:
    lag = {group.name: group.lag for group in facts.groups}
    oldest_ms = facts.wall_ms - facts.patience_ms
    for group in sorted(facts.coordinated, key=lambda g: str(g["group"])):
        name, since_ms = group["group"], group["since_ms"]
        if since_ms > oldest_ms:
            continue
        if group["state"] in _REBALANCING:
            awaited = ", ".join(group["awaited"][:3]) or "more members"
            reason = group["rebalance_reason"]
            yield Finding(
                Severity.WARNING,
                "group-stuck",
                f"group {name}",
                f"it has been rebalancing{facts.since(since_ms)}, and no member consumes: it "
                f"waits for {awaited}{f'; it began because {reason}' if reason else ''}",
                sentence(
                    "end or restart that consumer: it neither joins nor leaves "
                    "(max.poll.interval.ms bounds the wait); more: ",
                    facts.caller.why("group", name),
                ),
            )
        elif group["state"] == "Stable" and group["member_count"] and lag.get(name, 0):
            last_ms = group["last_commit_ms"]
            if last_ms is not None and last_ms < oldest_ms:
                yield Finding(
                    Severity.WARNING,
                    "group-no-commit",
                    f"group {name}",
                    f"{_waiting(lag[name])} for it and no offset is committed since "
                    f"{facts.clock(last_ms)}, though {_members(group['member_count'])} active: "
                    "they are stuck in processing, or do not commit",
                    sentence(
                        "see the consumers' own logs; which partition waits: ",
                        facts.caller.kafka(
                            "kafka-consumer-groups", "--describe", *flag("--group", name)
                        ),
                    ),
                )


def _members(count: int) -> str:
    return "1 member is" if count == 1 else f"{count} members are"


def _waiting(count: int) -> str:
    return "1 record waits" if count == 1 else f"{count} records wait"


def _lagging(facts: ClusterFacts) -> Iterator[Finding]:
    for group in sorted(facts.groups, key=lambda each: each.name):
        if group.lag > 0 and group.state in ("Empty", "Dead"):
            yield Finding(
                Severity.NOTE,
                "lag",
                f"group {group.name}",
                f"{_waiting(group.lag)}, and it has no members",
                sentence(
                    "start its consumers; or, if it is not used any more: ",
                    facts.caller.kafka(
                        "kafka-consumer-groups", "--delete", *flag("--group", group.name)
                    ),
                ),
            )


def _deleted(facts: ClusterFacts) -> Iterator[Finding]:
    for group in sorted(facts.groups, key=lambda each: each.name):
        if not group.deleted:
            continue
        count = sum(group.deleted.values())
        topic = min(group.deleted).topic
        yield Finding(
            Severity.WARNING,
            "deleted-unread",
            f"group {group.name}",
            f"{counted(count, 'record')} of {named(group.deleted)} between its committed offset "
            f"and the log start offset {'is' if count == 1 else 'are'} deleted: it never reads "
            "them, and auto.offset.reset decides where it continues",
            sentence(
                "read faster than retention deletes, or keep records for longer: ",
                facts.caller.set_option("topics", topic, "retention.ms=N"),
                "; tools of Kafka count these records as lag",
            ),
        )


def _future(facts: ClusterFacts) -> Iterator[Finding]:
    future = {
        partition: timestamp
        for partition, timestamp in facts.newest_timestamps.items()
        if timestamp > facts.wall_ms + FUTURE_MS
    }
    for topic in sorted({partition.topic for partition in future}):
        partitions = [partition for partition in future if partition.topic == topic]
        hours = (max(future[partition] for partition in partitions) - facts.wall_ms) / 3_600_000
        yield Finding(
            Severity.WARNING,
            "retention",
            named(partitions),
            f"records with timestamps up to {counted(round(hours), 'hour')} ahead: retention by "
            "time uses the largest of a segment, and so does not delete them until then",
            sentence(
                facts.caller.set_option("topics", topic, "message.timestamp.after.max.ms=3600000"),
                "; delete the existing by retention.bytes, or kafka-delete-records",
            ),
        )


CLIENT_RULES: Final = (_transactions, _groups, _lagging, _deleted, _future)
