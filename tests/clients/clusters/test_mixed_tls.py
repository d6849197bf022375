"""Odradek's and Apache Kafka's brokers replicate over TLS with certificates on both sides."""

import pathlib

import pytest
from confluent_kafka import Producer
from mixed import MixedCluster, until, write_while_killed
from tests.certificates import Authority, server_options

pytestmark = pytest.mark.jvm

TOPIC = "mixed"
PARTITIONS = 3
OPTIONS = {
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SSL",
    "ssl.client.auth": "required",
    # Each kind has to derive the same principal, or followers of the other kind are refused.
    "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+),.*$/$1/L, DEFAULT",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:ANONYMOUS",
}


def is_served(listener: str, authority: Authority, key: str) -> bool:
    """Whether librdkafka is a principal there that may write: a super user."""
    producer = Producer(
        {
            "bootstrap.servers": listener.partition("//")[2],
            "security.protocol": "SSL",
            "ssl.ca.location": authority.file,
            "ssl.certificate.location": key,
            "ssl.key.location": key,
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
    authority = Authority(tmp_path / "certificates")
    key = authority.issue_for_java("127.0.0.1", common_name="Broker")
    alice = authority.issue("alice@example.org", name="alice", common_name="alice")
    cluster = MixedCluster(
        tmp_path,
        {1: "ours", 2: "theirs", 3: "ours"},
        {**OPTIONS, **server_options(authority, key)},
    )
    try:
        cluster.create(TOPIC, "1:2:3,2:3:1,3:1:2")
        write_while_killed(cluster, TOPIC, PARTITIONS, (1, 2))

        for broker in cluster.brokers.values():
            (listener,) = broker.inside
            until("brokers may write", lambda where=listener: is_served(where, authority, key))
            assert not is_served(listener, authority, alice)
    finally:
        cluster.end()
