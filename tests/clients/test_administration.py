"""The cluster carries out the admin requests of unmodified clients; see `administration.py`."""

import pathlib
import time

import administration
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import Cluster, run_program
from programs import CLIENTS, each_client


@pytest.mark.parametrize("client", each_client())
def test_a_topic_is_created_altered_and_deleted(
    cluster: Cluster, client: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(administration.plan(f"administered-{client}-{time.time_ns():x}"))
    command = [*CLIENTS[client](), cluster.bootstrap, "administer", str(file)]
    report = run_program(command, timeout_s=120)
    assert report.pop("client")
    assert len(report.pop("brokers")) == len(cluster.bootstrap.split(","))
    assert report == administration.EXPECTED


WITHIN_S = 30


@pytest.mark.parametrize("batch_records", [1, 10])
def test_an_idempotent_producer_goes_on_when_its_topic_is_created_again(
    cluster: Cluster, batch_records: int
) -> None:
    topic = f"again-{batch_records}-{time.time_ns():x}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def create() -> None:
        for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            made.result(WITHIN_S)

    delivered: list[tuple[bytes | None, int | None]] = []
    failed: list[KafkaError] = []

    def done(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        delivered.append((message.value(), message.offset()))

    options = {
        "bootstrap.servers": cluster.bootstrap,
        "enable.idempotence": True,
        "allow.auto.create.topics": False,
        "batch.num.messages": batch_records,
        "message.timeout.ms": 1000 * WITHIN_S,
    }
    producer = Producer(options)

    def send(values: list[bytes]) -> None:
        for value in values:
            producer.produce(topic, value, on_delivery=done)
        assert producer.flush(WITHIN_S) == 0

    create()
    send([b"before"] * 10)
    for gone in admin.delete_topics([topic]).values():
        gone.result(WITHIN_S)
    create()
    delivered.clear()
    send([b"%d" % n for n in range(10)])

    assert failed == []
    assert delivered == [(b"%d" % n, n) for n in range(10)]
