"""`kafka-verifiable-consumer`: logs the assignment, reads and commits of a group member as JSON.

Arguments and events follow Kafka 3.9's `VerifiableConsumer`.
"""

import asyncio
import sys
from collections.abc import Collection, Mapping, Sequence

from odradek.cli.connect import properties_of
from odradek.cli.failures import NoSuchFileError, show_log
from odradek.cli.kafka.clients.client_flags import uncaught
from odradek.cli.kafka.clients.verifiable import add_connection, emit, text_of
from odradek.cli.kafka.support.arguments import CommandLine, Namespace, integer
from odradek.cli.signals import Stopping
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.client.consumer.settings import RANGE, ConsumerSettings
from odradek.client.errors import WakeUpError
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition

_POLL_MS = 60_000


def main(arguments: Sequence[str]) -> int:
    show_log()
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    chosen = parser.read(arguments)
    try:
        settings = ConsumerSettings.from_properties(_properties(chosen))
        return asyncio.run(_consume(settings, chosen))
    except NoSuchFileError as error:
        print(f"verifiable-consumer: error: {error}", file=sys.stderr)
        return 1
    except (OdradekError, ConnectionError) as error:
        return uncaught(error, "consumer")


def _properties(chosen: Namespace) -> dict[str, str]:
    properties = properties_of(chosen.consumer_config)
    properties |= {
        "bootstrap.servers": chosen.bootstrap_server or chosen.broker_list,
        # Kafka's tool treats every other value as classic.
        "group.protocol": "consumer" if chosen.group_protocol.lower() == "consumer" else "classic",
        "group.id": chosen.group_id,
        "enable.auto.commit": str(chosen.enable_autocommit).lower(),
        "auto.offset.reset": chosen.reset_policy,
        "session.timeout.ms": str(chosen.session_timeout),
        "partition.assignment.strategy": chosen.assignment_strategy,
    }
    if chosen.group_instance_id is not None:
        properties["group.instance.id"] = chosen.group_instance_id
    return properties


def command_line() -> CommandLine:
    parser = CommandLine(
        "verifiable-consumer",
        "Reads a topic, and logs its assignment, reads and commits as JSON.",
    )
    add, flag = parser.value, parser.flag
    add("topic", required=True, metavar="TOPIC", help="the topic to read")
    add("group-protocol", default="classic", metavar="GROUP_PROTOCOL", help="classic")
    add("group-remote-assignor", metavar="GROUP_REMOTE_ASSIGNOR", help="accepted, without effect")
    add("group-id", required=True, metavar="GROUP_ID", help="the consumer group")
    add("group-instance-id", metavar="GROUP_INSTANCE_ID", help="be a static member")
    add("max-messages", read=integer, default=-1, metavar="MAX-MESSAGES", help="-1: unlimited")
    add("session-timeout", read=integer, default=30_000, metavar="TIMEOUT_MS", help="in ms")
    flag("verbose", help="log each record")
    flag("enable-autocommit", help="commit automatically, every few seconds")
    add(
        "reset-policy",
        default="earliest",
        metavar="RESETPOLICY",
        help="where to begin without a committed offset: earliest, latest or none",
    )
    add("assignment-strategy", default=RANGE, metavar="ASSIGNMENTSTRATEGY", help="a Java name")
    add("consumer.config", "command-config", metavar="CONFIG_FILE", help="properties")
    add_connection(parser)
    return parser


class _Listener:
    """Logs assigned and revoked partitions."""

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        emit("partitions_assigned", partitions=_shown(partitions))

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        emit("partitions_revoked", partitions=_shown(partitions))

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        await self.revoked(partitions)


def _shown(partitions: Collection[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": p.topic, "partition": p.partition} for p in partitions]


async def _consume(settings: ConsumerSettings, chosen: Namespace) -> int:
    consumer = await Consumer.open(settings, wait_ms=settings.client.api_timeout_ms)
    stopping = Stopping(consumer.wake_up)
    emit("startup_complete")
    left = chosen.max_messages
    try:
        consumer.subscribe([chosen.topic], _Listener())
        while left:
            records = await consumer.poll(_POLL_MS)
            if not records:
                continue
            taken = records if left < 0 else records[:left]
            left -= len(taken) if left > 0 else 0
            offsets = _log_records(records, taken, verbose=chosen.verbose)
            for partition, committed in offsets.items():
                consumer.seek(partition, committed.offset)
            if not chosen.enable_autocommit:
                await _commit(consumer, offsets)
    except WakeUpError:
        pass  # SIGINT and SIGTERM end it
    finally:
        await consumer.close()
        emit("shutdown_complete")
    return stopping.code


def _log_records(
    records: Sequence[ConsumerRecord], taken: Sequence[ConsumerRecord], *, verbose: bool
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Log what was read. Returns the offsets to commit."""
    by_partition: dict[TopicPartition, list[int]] = {}
    for record in taken:
        by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(
            record.offset
        )
        if verbose:
            emit(
                "record_data",
                key=text_of(record.key),
                value=text_of(record.value),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )
    emit(
        "records_consumed",
        count=len(records),
        partitions=[
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "count": len(offsets),
                "minOffset": offsets[0],
                "maxOffset": offsets[-1],
            }
            for partition, offsets in by_partition.items()
        ],
    )
    return {
        partition: OffsetAndMetadata(offsets[-1] + 1) for partition, offsets in by_partition.items()
    }


async def _commit(consumer: Consumer, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    shown = [
        {"topic": p.topic, "partition": p.partition, "offset": committed.offset}
        for p, committed in offsets.items()
    ]
    try:
        await consumer.commit(offsets)
    except OdradekError as error:
        emit("offsets_committed", offsets=shown, success=False, error=str(error))
    else:
        emit("offsets_committed", offsets=shown, success=True)
