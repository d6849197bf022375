"""Odradek's and Apache Kafka's brokers log in to each other by SCRAM, and share their users."""

import pathlib
import subprocess

import apache
import fetch
import pytest
from confluent_kafka import Producer
from mixed import MixedCluster, until, write_while_killed

pytestmark = pytest.mark.jvm

TOPIC = "mixed"
PARTITIONS = 3
SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="broker" password="broker-secret";'
)
OPTIONS = {
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.inside.scram-sha-512.sasl.jaas.config": SCRAM,
    "connections.max.reauth.ms": "5000",
}


def add_user(server: list[str], name: str, password: str) -> None:
    """Add a user, or change the password, with Apache Kafka's tool."""
    command = fetch.java(apache.LINE, "kafka.admin.ConfigCommand", *server)
    command += ["--alter", "--entity-type", "users", "--entity-name", name, "--add-config"]
    command.append(f"SCRAM-SHA-512=[iterations=8192,password={password}]")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def logs_in(listener: str, user: str, password: str) -> bool:
    """Whether librdkafka can write over this listener."""
    producer = Producer(
        {
            "bootstrap.servers": listener.partition("//")[2],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "message.timeout.ms": 5_000,
            "log_level": 0,
        }
    )
    written: list[bool] = []
    producer.produce(
        TOPIC, b"0", partition=0, on_delivery=lambda error, _: written.append(error is None)
    )
    producer.flush(20)
    return written == [True]


def test_leaders_of_either_kind_are_followed_and_replaced(tmp_path: pathlib.Path) -> None:
    cluster = MixedCluster(
        tmp_path,
        {1: "ours", 2: "theirs", 3: "ours"},
        OPTIONS,
        lambda zookeeper: add_user(["--zookeeper", zookeeper], "broker", "broker-secret"),
    )
    try:
        cluster.create(TOPIC, "1:2:3,2:3:1,3:1:2")
        write_while_killed(cluster, TOPIC, PARTITIONS, (1, 2))

        for server, password in ((1, "first"), (2, "second")):
            bootstrap = ["--bootstrap-server", cluster.brokers[server].address]
            add_user(bootstrap, "alice", password)
            for broker in cluster.brokers.values():
                (listener,) = broker.inside
                until(
                    f"alice logs in at broker {broker.broker_id}",
                    lambda where=listener, what=password: logs_in(where, "alice", what),
                )
                assert not logs_in(listener, "alice", "wrong")
    finally:
        cluster.end()
