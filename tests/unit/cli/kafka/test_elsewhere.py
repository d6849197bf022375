"""Tools that a cluster with ZooKeeper refuses: Kafka 3.9's words and exit codes, and why."""

import re

import pytest

from odradek.cli.kafka.tool import run_tool

NO_API = "The node does not support LIST_CLIENT_METRICS_RESOURCES"
NO_ALTER = (
    "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS"
)
FAILED = "Error while executing client metrics command : "


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            "client-metrics --list",
            FAILED + NO_API,
        ),
        ("client-metrics --alter --name m", FAILED + NO_ALTER),
        (
            "client-metrics --delete --name m",
            f"{FAILED}Config type client-metrics is only supported on KRaft clusters",
        ),
        ("metadata-quorum describe --status", "The node does not support DESCRIBE_QUORUM"),
        ("storage format -t x -c y", "Formatting is only supported for clusters in KRaft mode."),
        ("mirror-maker", "connect-mirror-maker.sh"),
        ("connect-standalone worker.properties", "that of Apache Kafka works with this cluster"),
        ("zookeeper-server-start zookeeper.properties", "`odradek up` starts them"),
        ("preferred-replica-election", "kafka-leader-election --bootstrap-server HOST:PORT"),
        ("run-class org.example.Own", "run the class with a distribution of Apache Kafka"),
        ("run-class", "run the class with a distribution of Apache Kafka"),
    ],
)
def test_it_says_why_and_fails(arguments, printed, capsys):
    name, *rest = arguments.split()
    assert run_tool(name, ["--bootstrap-server", "b:1", *rest] if "--" in arguments else rest) == 1
    out, err = capsys.readouterr()
    assert printed in out + err
    assert err.endswith(".\n")


def test_an_id_is_made_as_kafka_writes_it(capsys):
    assert run_tool("storage", ["random-uuid"]) == 0
    assert re.fullmatch(r"[\w][\w-]{21}\n", capsys.readouterr().out)
