"""`kafka-e2e-latency`: measures the time of single records from producer to consumer.

    kafka-e2e-latency BROKERS TOPIC MESSAGES ACKS BYTES [[--command-config] PROPERTIES-FILE]

Texts follow Kafka 3.9's `EndToEndLatency`.
"""

import asyncio
import random
import sys
import time
from collections.abc import Sequence
from typing import Final

from odradek.cli.connect import properties_of
from odradek.cli.failures import (
    FileError,
    IllegalArgumentError,
    NoSuchFileError,
    ToolError,
    show_log,
    to_int,
)
from odradek.cli.kafka.clients.client_flags import logged
from odradek.client.admin.topics import NewTopic, create_topics
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms

USAGE: Final = (
    "USAGE: java org.apache.kafka.tools.EndToEndLatency broker_list topic num_messages "
    "producer_acks message_size_bytes [optional] properties_file"
)
_POLL_MS: Final = 60_000
_REPORT_EVERY: Final = 1_000


class RunError(ToolError):
    """The received record is not the sent one, or no record was received."""


def main(arguments: Sequence[str]) -> int:
    show_log()
    arguments = [word for word in arguments if word != "--command-config"]
    if len(arguments) not in (5, 6):
        print(USAGE, file=sys.stderr)
        return 1
    try:
        servers, topic, count, acks, size = arguments[:5]
        if acks not in ("1", "all"):
            raise IllegalArgumentError(
                "Latency testing requires synchronous acknowledgement. Please use 1 or all"
            )
        properties = _properties(arguments[5] if len(arguments) == 6 else None)
        properties["bootstrap.servers"] = servers
        return asyncio.run(_measure(properties, topic, to_int(count), acks, to_int(size)))
    except (OdradekError, ConnectionError) as error:
        return logged(error, str(error))


def _properties(file: str | None) -> dict[str, str]:
    try:
        return properties_of(file)
    except FileError:
        raise NoSuchFileError(file or "") from None


async def _measure(properties: dict[str, str], topic: str, count: int, acks: str, size: int) -> int:
    consumer = await Consumer.open(
        ConsumerSettings.from_properties(
            {
                **properties,
                "group.id": f"test-group-{real_wall_ms()}",
                "enable.auto.commit": "false",
                "auto.offset.reset": "latest",
                "fetch.max.wait.ms": "0",  # a wait at the broker would be measured, too
            }
        )
    )
    async with consumer:
        producer = await Producer.open(
            ProducerSettings.from_properties(
                {**properties, "linger.ms": "0", "max.block.ms": str((1 << 63) - 1), "acks": acks}
            )
        )
        async with producer:
            await _prepare(consumer, topic)
            latencies = [
                await _there_and_back(producer, consumer, topic, number, size)
                for number in range(count)
            ]
        _print_result(latencies)
        await consumer.commit()
    return 0


async def _prepare(consumer: Consumer, topic: str) -> None:
    """Seek to the end of all partitions; create the topic if it does not exist."""
    if not await consumer.partitions_for(topic, creating=False):
        print(
            f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and '
            "replication factor = 1",
            flush=True,
        )
        await create_topics(consumer.cluster, [NewTopic(topic, 1, 1)])
    partitions: list[TopicPartition] = []
    while not partitions:
        partitions = await consumer.partitions_for(topic, creating=False)
    consumer.assign(partitions)
    consumer.seek_to_end(partitions)
    for partition in partitions:
        await consumer.position(partition)


async def _there_and_back(
    producer: Producer, consumer: Consumer, topic: str, number: int, size: int
) -> int:
    message = bytes(65 + random.randrange(26) for _ in range(size))
    begun_ns = time.perf_counter_ns()
    await (await producer.send(topic, message))
    records = await consumer.poll(_POLL_MS)
    elapsed_ns = time.perf_counter_ns() - begun_ns
    if not records:
        raise RunError(f"poll() timed out before finding a result (timeout:[{_POLL_MS}ms])")
    read = records[0].value or b""
    if read != message:
        raise RunError(
            f"The message read [{read.decode('utf-8', 'replace')}] did not match the message sent "
            f"[{message.decode()}]"
        )
    if len(records) != 1:
        raise RunError(f"Only one result was expected during this test. We found [{len(records)}]")
    if number % _REPORT_EVERY == 0:
        print(f"{number}\t{elapsed_ns / 1e6}", flush=True)
    return elapsed_ns


def _print_result(latencies_ns: Sequence[int]) -> None:
    if not latencies_ns:
        print("Avg latency: NaN ms")
        return
    print(f"Avg latency: {sum(latencies_ns) / len(latencies_ns) / 1e6:.4f} ms")
    ordered = sorted(latency // 1_000_000 for latency in latencies_ns)
    p50, p99, p999 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99, 0.999))
    print(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")
