"""The client program of kafka-python, driven by a plan; see rounds.py."""

import pathlib
import sys
import time
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)
from kafka.net.sasl.oauth import AbstractTokenProvider

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from program import SECURITY, headers_in, main, record_out, ssl_context, to_bytes, token, until


class Token(AbstractTokenProvider):
    def token(self) -> str:
        return token()


def servers(bootstrap: str) -> dict[str, Any]:
    """Where and how a client of a round trip connects."""
    if not SECURITY:
        return {"bootstrap_servers": bootstrap}
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": SECURITY["protocol"],
        "ssl_context": ssl_context(),
        "sasl_mechanism": SECURITY.get("mechanism"),
        "sasl_plain_username": SECURITY.get("user"),
        "sasl_plain_password": SECURITY.get("password"),
        "sasl_oauth_token_provider": Token(),
        "bootstrap_timeout_ms": 5000,  # a log-in that is refused is repeated so long
    }


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    return {"rounds": [round_trip(bootstrap, each) for each in plan["rounds"]]}


def round_trip(bootstrap: str, asked: dict[str, Any]) -> dict[str, Any]:
    topic, partitions = asked["topic"], asked["partitions"]
    admin = KafkaAdminClient(**servers(bootstrap))
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()
    sent = produce(bootstrap, asked)
    return {"topic": topic, "sent": sent, **consume(bootstrap, topic, partitions, len(sent))}


def produce(bootstrap: str, asked: dict[str, Any]) -> list[list[int | None]]:
    producer = KafkaProducer(
        **servers(bootstrap),
        compression_type=None if asked["codec"] == "none" else asked["codec"],
        acks=asked["acks"] if asked["acks"] == "all" else int(asked["acks"]),
        enable_idempotence=asked["idempotent"],
        linger_ms=5,
    )
    futures = [
        producer.send(
            asked["topic"],
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            headers_in(record),
            record["partition"],
            record["timestamp"],
        )
        for record in asked["records"]
    ]
    producer.flush(30)
    done = [future.get(30) for future in futures]
    producer.close()
    return [[m.partition, None if asked["acks"] == "0" else m.offset] for m in done]


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> dict[str, Any]:
    consumer = KafkaConsumer(
        **servers(bootstrap), enable_auto_commit=False, auto_offset_reset="none"
    )
    assigned = [TopicPartition(topic, p) for p in range(partitions)]
    consumer.assign(assigned)
    consumer.seek_to_beginning(*assigned)
    read: list[dict[str, Any]] = []
    deadline = time.monotonic() + 30
    while len(read) < count and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            read += [
                record_out((r.partition, r.offset), r.timestamp, r.key, r.value, r.headers)
                for r in records
            ]
    ends = {p.partition: end for p, end in consumer.end_offsets(assigned).items()}
    consumer.close()
    return {"read": read, "ends": ends}


def administer(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    topic, first = plan["topic"], TopicPartition(plan["topic"], 0)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def partitions() -> int:
        return len(admin.describe_topics([topic])[0]["partitions"])

    def retention() -> str:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
        return str(admin.describe_configs(asked)["topic"][topic]["retention.ms"]["value"])

    def listed() -> bool:
        return topic in admin.list_topics()

    def offset(spec: Any) -> int:
        return int(admin.list_partition_offsets({first: spec})[first].offset)

    config = {"retention.ms": plan["retention"]}
    admin.create_topics([NewTopic(topic, plan["partitions"], 1, topic_configs=config)])
    report = {
        "brokers": [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]],
        "created": until(plan["partitions"], partitions),
        "config": retention(),
        "listed": until(True, listed),
    }
    change = {"retention.ms": plan["altered"]}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
    report["altered"] = until(plan["altered"], retention)
    admin.create_partitions({topic: NewPartitions(plan["extended"])})
    report["extended"] = until(plan["extended"], partitions)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for timestamp_ms in plan["timestamps"]:
        producer.send(topic, b"value", partition=0, timestamp_ms=timestamp_ms)
    producer.close(30)
    report["offset_at"] = offset(OffsetTimestamp(plan["lookup"]))
    admin.delete_records({first: plan["delete_before"]})
    report["earliest"] = until(plan["delete_before"], lambda: offset(OffsetSpec.EARLIEST))
    report["latest"] = offset(OffsetSpec.LATEST)
    admin.delete_topics([topic])
    report["listed_after"] = until(False, listed)
    admin.close()
    return report


def group(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    topic, partitions, half = plan["topic"], plan["partitions"], plan["partitions"] // 2

    def member() -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=plan["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
        )

    def poll(*consumers: KafkaConsumer) -> int:
        # A poll that ends while joining the group may lose the join (3.0.12).
        return sum(len(some) for one in consumers for some in one.poll(500).values())

    read = 0
    first = member()

    def read_on() -> int:
        nonlocal read
        read += poll(first)
        return read

    until(plan["records"], read_on, within_s=30)
    first.commit()
    second = member()

    def shared() -> list[int]:
        poll(first, second)
        return [len(first.assignment()), len(second.assignment())]

    report = {"read": read, "shared": until([half, half], shared, within_s=30)}
    second.close()

    def alone() -> int:
        poll(first)
        return len(first.assignment())

    report["alone"] = until(partitions, alone, within_s=30)
    first.close()
    third = member()
    again = 0

    def assigned() -> int:
        nonlocal again
        again += poll(third)
        return len(third.assignment())

    until(partitions, assigned, within_s=30)
    again += poll(third)
    report["committed"] = {
        str(p): third.committed(TopicPartition(topic, p)) for p in range(partitions)
    }
    report["again"] = again
    third.close()
    return report


def transact(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(plan[name], 1, 1) for name in ("in", "out")])
    producer = transactor(bootstrap, plan)
    producer.begin_transaction()
    write_all(producer, plan["out"], plan["first"])
    producer.commit_transaction()
    producer.begin_transaction()
    write_all(producer, plan["out"], plan["lost"])
    producer.abort_transaction()
    plain = KafkaProducer(bootstrap_servers=bootstrap)
    write_all(plain, plan["in"], plan["records"])
    plain.close()
    consumer = KafkaConsumer(
        plan["in"],
        bootstrap_servers=bootstrap,
        group_id=plan["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    values = [next(consumer).value.decode() for _ in plan["records"]]
    place = TopicPartition(plan["in"], 0)
    member = consumer.group_metadata()
    producer.begin_transaction()
    write_all(producer, plan["out"], [f"{value}+" for value in values])
    position = {place: OffsetAndMetadata(consumer.position(place), "", -1)}
    producer.send_offsets_to_transaction(position, member)
    producer.commit_transaction()
    producer.begin_transaction()
    write_all(producer, plan["out"], plan["lost"])
    producer.send_offsets_to_transaction({place: OffsetAndMetadata(0, "", -1)}, member)
    producer.abort_transaction()
    committed = consumer.committed(place)
    consumer.close()
    everything = consume_values(bootstrap, plan["out"], "read_uncommitted")
    producer.begin_transaction()
    write_all(producer, plan["out"], [plan["fenced"]])
    second = transactor(bootstrap, plan)
    try:
        producer.commit_transaction()
        fenced = False
    except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError):
        fenced = True
    second.close()
    return {
        "committed": consume_values(bootstrap, plan["out"], "read_committed"),
        "all": len(everything),
        "position": committed,
        "fenced": fenced,
    }


def transactor(bootstrap: str, plan: dict[str, Any]) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=plan["id"])
    producer.init_transactions()
    return producer


def write_all(producer: KafkaProducer, topic: str, values: list[str]) -> None:
    for value in values:
        producer.send(topic, value.encode(), partition=0).get(30)


def consume_values(bootstrap: str, topic: str, isolation: str) -> list[str]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level=isolation
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning()
    end = consumer.end_offsets([place])[place]
    values: list[str] = []
    while consumer.position(place) < end:
        found = consumer.poll(timeout_ms=200)
        values += [record.value.decode() for record in found.get(place, [])]
    consumer.close()
    return values


if __name__ == "__main__":
    scenarios = {
        "round_trips": round_trips,
        "administer": administer,
        "group": group,
        "transact": transact,
    }
    main(f"kafka-python {kafka.__version__}", scenarios)
