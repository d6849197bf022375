"""Kafka's tools as processes: before their broker runs, and with a damaged znode of a topic."""

import json
import subprocess
import sys

import pytest
from brokers import BrokerProcess

from odradek.local.startable import free_ports


def test_a_tool_reaches_a_broker_that_starts_after_it(tmp_path):
    (port,) = free_ports("127.0.0.1", 1)
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    broker = BrokerProcess(
        tmp_path / "broker",
        {"listeners": listeners, "odradek.store.path": tmp_path / "coordination.db"},
    )
    listing = [sys.executable, "-m", "odradek", "topics", "--list"]
    with subprocess.Popen(
        [*listing, "--bootstrap-server", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as tool:  # fmt: skip
        try:
            assert "could not be established" in tool.stderr.readline()
            broker.start()
            out, _ = tool.communicate(timeout=60)
        finally:
            tool.kill()
            broker.kill()
    assert (tool.returncode, out) == (0, "\n")


@pytest.fixture
def call(tmp_path):
    (port,) = free_ports("127.0.0.1", 1)
    store = tmp_path / "coordination.db"
    options = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "odradek.store.path": store}
    broker = BrokerProcess(tmp_path / "broker", options).start()

    def run(*words, typed=""):
        given = [str(store.parent) if w == "STORE" else w for w in words]
        given = [f"127.0.0.1:{port}" if w == "BROKER" else w for w in given]
        done = subprocess.run(
            [sys.executable, "-m", "odradek", *given],
            input=typed, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    yield run
    broker.kill()


def test_a_topic_that_cannot_be_read_is_listed_described_and_deleted(call):
    def topics(*words):
        return call("topics", "--bootstrap-server", "BROKER", *words)

    typed = 'create /brokers/topics/bad {"version":1}{\nget /brokers/topics/bad\nquit\n'
    assert '{"version":1}{' in call("zookeeper-shell", "STORE", typed=typed)[1]
    problem = "Topic 'bad' cannot be read: znode /brokers/topics/bad: not JSON"

    listed = topics("--list")
    assert (listed[0], listed[1]) == (0, "\n")
    assert problem in listed[2]
    described = topics("--describe", "--topic", "bad")
    assert described[0] == 1
    assert f"Error while executing topic command : {problem}" in described[1]
    assert "kafka-topics --delete --topic bad" in described[1]
    created = topics("--create", "--topic", "bad")
    assert created[0] == 1
    assert "'bad' already exists and cannot be read: znode /brokers/topics/bad" in created[1]
    found = json.loads(call("doctor", "--bootstrap-server", "BROKER", "--json")[1])["findings"]
    assert [(f["kind"], f["subject"]) for f in found] == [("unreadable-topic", "bad")]

    assert topics("--delete", "--topic", "bad")[0] == 0
    assert topics("--list") == (0, "\n", "")
    assert topics("--create", "--topic", "bad")[0] == 0
    assert topics("--list") == (0, "bad\n", "")
