"""The client program of librdkafka, by confluent-kafka, driven by a plan; see rounds.py."""

import pathlib
import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from delivery import deliver
from program import SECURITY, main, record_out, token, until


def servers(bootstrap: str) -> dict[str, Any]:
    """Where and how a client of a round trip connects."""
    names = {
        "protocol": "security.protocol",
        "mechanism": "sasl.mechanism",
        "user": "sasl.username",
        "password": "sasl.password",
        "ca": "ssl.ca.location",
    }
    options: dict[str, Any] = {"bootstrap.servers": bootstrap}
    options |= {names[name]: value for name, value in SECURITY.items() if name in names}
    if SECURITY:
        options["socket.timeout.ms"] = 8000  # creating a topic waits so long for a log-in
    if "certificate" in SECURITY:
        # One file has both.
        options["ssl.certificate.location"] = options["ssl.key.location"] = SECURITY["certificate"]
    if "token" in SECURITY:
        options["oauth_cb"] = lambda _: (token(), time.time() + 600)
    return options


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    return {"rounds": [round_trip(bootstrap, each) for each in plan["rounds"]]}


def round_trip(bootstrap: str, asked: dict[str, Any]) -> dict[str, Any]:
    topic, partitions = asked["topic"], asked["partitions"]
    admin = AdminClient(servers(bootstrap))
    if not asked["there"]:
        for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(30)
    sent = produce(bootstrap, asked)
    seen = consume(bootstrap, topic, partitions, asked["there"] + len(sent))
    return {"topic": topic, "sent": sent, **seen}


def produce(bootstrap: str, asked: dict[str, Any]) -> list[list[int | None]]:
    producer = Producer(
        {
            **servers(bootstrap),
            "compression.codec": asked["codec"],
            "acks": asked["acks"],
            "enable.idempotence": asked["idempotent"],
            "linger.ms": 5,
        }
    )
    return deliver(producer, asked)


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> dict[str, Any]:
    # A group id is required even without joining: assign() and no commits.
    consumer = Consumer(
        {
            **servers(bootstrap),
            "group.id": "nobody",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,  # its partitions join a fetch only when the last is answered
        }
    )
    assigned = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)]
    consumer.assign(assigned)
    read: list[dict[str, Any]] = []
    deadline = time.monotonic() + 30
    while len(read) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(read), 0.1):
            if message.error():
                raise RuntimeError(str(message.error()))
            place = message.partition(), message.offset()
            _, timestamp_ms = message.timestamp()
            read.append(
                record_out(place, timestamp_ms, message.key(), message.value(), message.headers())
            )
    ends = {p.partition: consumer.get_watermark_offsets(p, 10)[1] for p in assigned}
    consumer.close()
    return {"read": read, "ends": ends}


def administer(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    topic, first = plan["topic"], TopicPartition(plan["topic"], 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def done(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(30)

    def partitions() -> int:
        return len(admin.list_topics(topic, timeout=10).topics[topic].partitions)

    def retention() -> str:
        return str(done(admin.describe_configs([resource]))["retention.ms"].value)

    def listed() -> bool:
        return topic in admin.list_topics(timeout=10).topics

    def offset(spec: OffsetSpec) -> int:
        return int(done(admin.list_offsets({first: spec})).offset)

    config = {"retention.ms": plan["retention"]}
    done(admin.create_topics([NewTopic(topic, plan["partitions"], 1, config=config)]))
    report = {
        "brokers": [broker.id for broker in admin.describe_cluster().result(30).nodes],
        "created": until(plan["partitions"], partitions),
        "config": retention(),
        "listed": until(True, listed),
    }
    entry = ConfigEntry(
        "retention.ms", plan["altered"], incremental_operation=AlterConfigOpType.SET
    )
    resource.add_incremental_config(entry)
    done(admin.incremental_alter_configs([resource]))
    report["altered"] = until(plan["altered"], retention)
    done(admin.create_partitions([NewPartitions(topic, plan["extended"])]))
    report["extended"] = until(plan["extended"], partitions)
    producer = Producer({"bootstrap.servers": bootstrap})
    for timestamp_ms in plan["timestamps"]:
        producer.produce(topic, b"value", partition=0, timestamp=timestamp_ms)
    assert producer.flush(30) == 0
    report["offset_at"] = offset(OffsetSpec.for_timestamp(plan["lookup"]))
    done(admin.delete_records([TopicPartition(topic, 0, plan["delete_before"])]))
    report["earliest"] = until(plan["delete_before"], lambda: offset(OffsetSpec.earliest()))
    report["latest"] = offset(OffsetSpec.latest())
    done(admin.delete_topics([topic]))
    return {**report, "listed_after": until(False, listed)}


def transact(  # noqa: PLR0915 - one scenario
    bootstrap: str, plan: dict[str, Any]
) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(plan[name], 1) for name in ("in", "out")]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = transactor(bootstrap, plan)
    producer.begin_transaction()
    write_all(producer, plan["out"], plan["first"])
    producer.commit_transaction(30)
    producer.begin_transaction()
    write_all(producer, plan["out"], plan["lost"])
    producer.abort_transaction(30)
    plain = Producer({"bootstrap.servers": bootstrap})
    write_all(plain, plan["in"], plan["records"])
    group = {"bootstrap.servers": bootstrap, "group.id": plan["group"]}
    consumer = Consumer({**group, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe([plan["in"]])
    values: list[str] = []
    while len(values) < len(plan["records"]):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        values.append(message.value().decode())
    place = TopicPartition(plan["in"], 0)
    member = consumer.consumer_group_metadata()
    producer.begin_transaction()
    write_all(producer, plan["out"], [f"{value}+" for value in values])
    producer.send_offsets_to_transaction(consumer.position([place]), member, 30)
    producer.commit_transaction(30)
    producer.begin_transaction()
    write_all(producer, plan["out"], plan["lost"])
    producer.send_offsets_to_transaction([TopicPartition(plan["in"], 0, 0)], member, 30)
    producer.abort_transaction(30)
    position = consumer.committed([place], 30)[0].offset
    consumer.close()
    everything = consume_values(bootstrap, plan["out"], "read_uncommitted")
    producer.begin_transaction()
    write_all(producer, plan["out"], [plan["fenced"]])
    transactor(bootstrap, plan)
    try:
        producer.commit_transaction(30)
        fenced = False
    except confluent_kafka.KafkaException as error:
        fenced = error.args[0].code() == confluent_kafka.KafkaError._FENCED
    return {
        "committed": consume_values(bootstrap, plan["out"], "read_committed"),
        "all": len(everything),
        "position": position,
        "fenced": fenced,
    }


def transactor(bootstrap: str, plan: dict[str, Any]) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": plan["id"]})
    producer.init_transactions(60)
    return producer


def write_all(producer: Producer, topic: str, values: list[str]) -> None:
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(30) == 0


def consume_values(bootstrap: str, topic: str, isolation: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages = []
    while not messages or messages[-1].error() is None:
        messages.append(consumer.poll(30))
        assert messages[-1] is not None
    assert messages[-1].error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    consumer.close()
    return [message.value().decode() for message in messages[:-1]]


def group(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    topic, partitions, half = plan["topic"], plan["partitions"], plan["partitions"] // 2

    def member() -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": plan["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": plan["strategy"] or "range,roundrobin",
            }
        )
        consumer.subscribe([topic])
        return consumer

    def poll(*consumers: Consumer) -> int:
        found = [message for one in consumers for message in one.consume(100, 0.05)]
        for message in found:
            if message.error():
                raise RuntimeError(message.error())
        return len(found)

    read = 0
    first = member()

    def read_on() -> int:
        nonlocal read
        read += poll(first)
        return read

    until(plan["records"], read_on, within_s=30)
    first.commit(asynchronous=False)
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
    committed = third.committed([TopicPartition(topic, p) for p in range(partitions)], 30)
    report["committed"] = {str(each.partition): each.offset for each in committed}
    report["again"] = again
    third.close()
    return report


if __name__ == "__main__":
    scenarios = {
        "round_trips": round_trips,
        "administer": administer,
        "group": group,
        "transact": transact,
    }
    main(f"librdkafka {confluent_kafka.libversion()[0]}", scenarios)
