"""The client program of aiokafka, driven by a plan; see rounds.py."""

import asyncio
import pathlib
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from program import SECURITY, headers_in, main, record_out, ssl_context, to_bytes, token


class Token(AbstractTokenProvider):
    async def token(self) -> str:
        return token()


def servers(bootstrap: str) -> dict[str, Any]:
    """Where and how a client of a round trip connects."""
    if not SECURITY:
        return {"bootstrap_servers": bootstrap}
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": SECURITY["protocol"],
        "ssl_context": ssl_context(),
        "sasl_mechanism": SECURITY.get("mechanism", "PLAIN"),
        "sasl_plain_username": SECURITY.get("user"),
        "sasl_plain_password": SECURITY.get("password"),
        "sasl_oauth_token_provider": Token(),
    }


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    async def one_by_one() -> list[dict[str, Any]]:
        return [await round_trip(bootstrap, each) for each in plan["rounds"]]

    return {"rounds": asyncio.run(one_by_one())}


async def round_trip(bootstrap: str, asked: dict[str, Any]) -> dict[str, Any]:
    topic, partitions = asked["topic"], asked["partitions"]
    admin = AIOKafkaAdminClient(**servers(bootstrap))
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()
    sent = await produce(bootstrap, asked)
    return {"topic": topic, "sent": sent, **await consume(bootstrap, topic, partitions, len(sent))}


async def produce(bootstrap: str, asked: dict[str, Any]) -> list[list[int | None]]:
    producer = AIOKafkaProducer(
        **servers(bootstrap),
        compression_type=None if asked["codec"] == "none" else asked["codec"],
        acks=asked["acks"] if asked["acks"] == "all" else int(asked["acks"]),
        enable_idempotence=asked["idempotent"],
        linger_ms=5,
    )
    await producer.start()
    futures = [
        await producer.send(
            asked["topic"],
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            record["partition"],
            record["timestamp"],
            headers_in(record),
        )
        for record in asked["records"]
    ]
    done = await asyncio.wait_for(asyncio.gather(*futures), 30)
    await producer.stop()
    if asked["acks"] == "0":
        return [[record["partition"], None] for record in asked["records"]]
    return [[m.partition, m.offset] for m in done]


async def consume(bootstrap: str, topic: str, partitions: int, count: int) -> dict[str, Any]:
    consumer = AIOKafkaConsumer(
        **servers(bootstrap), enable_auto_commit=False, auto_offset_reset="none"
    )
    await consumer.start()
    assigned = [TopicPartition(topic, p) for p in range(partitions)]
    consumer.assign(assigned)
    await consumer.seek_to_beginning(*assigned)
    read: list[dict[str, Any]] = []
    deadline = asyncio.get_running_loop().time() + 30
    while len(read) < count and asyncio.get_running_loop().time() < deadline:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            read += [
                record_out((r.partition, r.offset), r.timestamp, r.key, r.value, r.headers)
                for r in records
            ]
    ends = {p.partition: end for p, end in (await consumer.end_offsets(assigned)).items()}
    await consumer.stop()
    return {"read": read, "ends": ends}


def administer(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(administer_one(bootstrap, plan))


async def administer_one(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    topic, first = plan["topic"], TopicPartition(plan["topic"], 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()

    async def partitions() -> int:
        (described,) = await admin.describe_topics([topic])
        return len(described["partitions"])

    async def retention() -> str:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        (resource,) = answer.resources
        return str({entry[0]: entry[1] for entry in resource[4]}["retention.ms"])

    async def listed() -> bool:
        return topic in await admin.list_topics()

    async def earliest() -> int:
        return int((await consumer.beginning_offsets([first]))[first])

    config = {"retention.ms": plan["retention"]}
    await admin.create_topics([NewTopic(topic, plan["partitions"], 1, topic_configs=config)])
    cluster = await admin.describe_cluster()
    report = {
        "brokers": [broker["node_id"] for broker in cluster["brokers"]],
        "created": await until_async(plan["partitions"], partitions),
        "config": await retention(),
        "listed": await until_async(True, listed),
    }
    change = {"retention.ms": plan["altered"]}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
    report["altered"] = await until_async(plan["altered"], retention)
    await admin.create_partitions({topic: NewPartitions(plan["extended"])})
    report["extended"] = await until_async(plan["extended"], partitions)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for timestamp_ms in plan["timestamps"]:
        await producer.send_and_wait(topic, b"value", partition=0, timestamp_ms=timestamp_ms)
    await producer.stop()
    found = (await consumer.offsets_for_times({first: plan["lookup"]}))[first]
    report["offset_at"] = found.offset
    await admin.delete_records({first: RecordsToDelete(before_offset=plan["delete_before"])})
    report["earliest"] = await until_async(plan["delete_before"], earliest)
    report["latest"] = (await consumer.end_offsets([first]))[first]
    await admin.delete_topics([topic])
    report["listed_after"] = await until_async(False, listed)
    await consumer.stop()
    await admin.close()
    return report


async def until_async(wanted: Any, look: Callable[[], Awaitable[Any]]) -> Any:
    deadline_s = time.monotonic() + 30.0
    while True:
        seen = await look()
        if seen == wanted or time.monotonic() > deadline_s:
            return seen
        await asyncio.sleep(0.05)


def transact(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(transact_all(bootstrap, plan))


async def transact_all(  # noqa: PLR0915 - one scenario
    bootstrap: str, plan: dict[str, Any]
) -> dict[str, Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(plan[name], 1, 1) for name in ("in", "out")])
    await admin.close()
    producer = await transactor(bootstrap, plan)
    async with producer.transaction():
        await write_all(producer, plan["out"], plan["first"])
    await producer.begin_transaction()
    await write_all(producer, plan["out"], plan["lost"])
    await producer.abort_transaction()
    plain = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await plain.start()
    await write_all(plain, plan["in"], plan["records"])
    await plain.stop()
    consumer = AIOKafkaConsumer(
        plan["in"],
        bootstrap_servers=bootstrap,
        group_id=plan["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    values: list[str] = []
    while len(values) < len(plan["records"]):
        values.append((await asyncio.wait_for(consumer.getone(), 30)).value.decode())
    place = TopicPartition(plan["in"], 0)
    await producer.begin_transaction()
    await write_all(producer, plan["out"], [f"{value}+" for value in values])
    position = {place: await consumer.position(place)}
    await producer.send_offsets_to_transaction(position, plan["group"])
    await producer.commit_transaction()
    await producer.begin_transaction()
    await write_all(producer, plan["out"], plan["lost"])
    await producer.send_offsets_to_transaction({place: 0}, plan["group"])
    await producer.abort_transaction()
    committed = await consumer.committed(place)
    await consumer.stop()
    everything = await consume_values(bootstrap, plan["out"], "read_uncommitted")
    await producer.begin_transaction()
    await write_all(producer, plan["out"], [plan["fenced"]])
    second = await transactor(bootstrap, plan)
    try:
        await producer.commit_transaction()
        fenced = False
    except aiokafka.errors.ProducerFenced:
        fenced = True
    await second.stop()
    await producer.stop()
    return {
        "committed": await consume_values(bootstrap, plan["out"], "read_committed"),
        "all": len(everything),
        "position": committed,
        "fenced": fenced,
    }


async def transactor(bootstrap: str, plan: dict[str, Any]) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=plan["id"])
    await producer.start()
    return producer


async def write_all(producer: AIOKafkaProducer, topic: str, values: list[str]) -> None:
    for value in values:
        await producer.send_and_wait(topic, value.encode(), partition=0)


async def consume_values(bootstrap: str, topic: str, isolation: str) -> list[str]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    await consumer.start()
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    await consumer.seek_to_beginning(place)
    end = (await consumer.end_offsets([place]))[place]
    values: list[str] = []
    deadline_s = time.monotonic() + 30.0
    while await consumer.position(place) < end and time.monotonic() < deadline_s:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            values += [record.value.decode() for record in records]
    await consumer.stop()
    return values


def group(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(group_async(bootstrap, plan))


async def group_async(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    topic, partitions, half = plan["topic"], plan["partitions"], plan["partitions"] // 2

    async def member() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=plan["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
        )
        await consumer.start()
        return consumer

    async def poll(*consumers: AIOKafkaConsumer) -> int:
        found = [await one.getmany(timeout_ms=50) for one in consumers]
        return sum(len(some) for each in found for some in each.values())

    read = 0
    first = await member()

    async def read_on() -> int:
        nonlocal read
        read += await poll(first)
        return read

    await until_async(plan["records"], read_on)
    await first.commit()
    second = await member()

    async def shared() -> list[int]:
        await poll(first, second)
        return [len(first.assignment()), len(second.assignment())]

    report = {"read": read, "shared": await until_async([half, half], shared)}
    await second.stop()

    async def alone() -> int:
        await poll(first)
        return len(first.assignment())

    report["alone"] = await until_async(partitions, alone)
    await first.stop()
    third = await member()
    again = await poll(third)
    committed = {str(p): await third.committed(TopicPartition(topic, p)) for p in range(partitions)}
    again += await poll(third)
    await third.stop()
    return {**report, "committed": committed, "again": again}


if __name__ == "__main__":
    scenarios = {
        "round_trips": round_trips,
        "administer": administer,
        "group": group,
        "transact": transact,
    }
    main(f"aiokafka {aiokafka.__version__}", scenarios)
