"""The client programs by name: how each is run, and which tools it needs."""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import fetch
import pytest

HERE = pathlib.Path(__file__).resolve().parent


def python_program(name: str) -> list[str]:
    return [sys.executable, str(HERE / name / "client.py")]


def java_program(line: str) -> list[str]:
    return fetch.java_class(line, HERE / "java" / "Client.java")


def go_program(name: str) -> list[str]:
    return [str(fetch.go_program(HERE / name))]


def node_program(name: str) -> list[str]:
    modules = fetch.node_modules(HERE / name)
    return ["env", f"NODE_PATH={modules}", "node", str(HERE / name / "client.js")]


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "librdkafka": lambda: python_program("librdkafka"),
    "kafka_python": lambda: python_program("kafka_python"),
    "aiokafka": lambda: python_program("aiokafka"),
    "java_3.9": lambda: java_program("3.9"),
    "java_4": lambda: java_program("4"),
    "franz_go": lambda: go_program("franz_go"),
    "sarama": lambda: go_program("sarama"),
    "kafkajs": lambda: node_program("kafkajs"),
}
MARKS = {
    "java_3.9": [pytest.mark.jvm],
    "java_4": [pytest.mark.jvm],
    "franz_go": [pytest.mark.go],
    "sarama": [pytest.mark.go],
    "kafkajs": [pytest.mark.node],
}


def each_client() -> list[Any]:
    """Parameters for a test of every client, marked with what it needs."""
    return [pytest.param(name, marks=MARKS.get(name, [])) for name in CLIENTS]
