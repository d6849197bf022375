"""The clients of former years by name: how each is run, with which protocol, and what it can do."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import fetch
import programs
import pytest
from old.rounds import Abilities

HERE: Final = pathlib.Path(__file__).resolve().parents[1]
Command = Callable[[], list[str]]
SCALA: Final = {"0.8.2.2": "2.11", "0.10.2.2": "2.11", "1.1.1": "2.12"}
KAFKA_PYTHON_1: Final = (
    "kafka-python==1.4.7",
    "python-snappy==0.7.3",
    "lz4==4.4.5",
    "xxhash==3.5.0",
)
KAFKA_PYTHON_0: Final = ("kafka-python==0.9.5", "python-snappy==0.6.1", "six==1.16.0")

# With another kazoo than it asks for, whose parameters are not named `async`.
PYKAFKA: Final = (
    "--no-deps",
    "pykafka==2.8.0",
    "kazoo==2.11.0",
    "python-snappy==0.7.3",
    "cramjam==2.11.0",
    "setuptools==70.3.0",
    "six==1.17.0",
    "tabulate==0.9.0",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldClient:
    """A client, and the version of Kafka whose protocol it uses."""

    library: str
    protocol: str  # as the page names it
    offsets: str  # where it commits offsets, as the page says it
    version: str = ""  # what it is configured for, if it can be
    scenario: str = "round_trips"
    command: Command
    able: Abilities
    marks: tuple[pytest.MarkDecorator, ...] = ()


def _java(version: str) -> list[str]:
    jars = fetch.old_jars("clients", kafka=version)
    return fetch.old_java_class(jars, HERE / "java_old" / "OldClient.java")


def _kafka_082() -> list[str]:
    jars = fetch.old_jars("kafka", scala=SCALA["0.8.2.2"], kafka="0.8.2.2")
    return fetch.old_java_class(jars, HERE / "java_old" / "Kafka082.java")


def _kafka_python_1() -> list[str]:
    packages = fetch.python_packages(sys.executable, *KAFKA_PYTHON_1)
    program = HERE / "kafka_python_1" / "client.py"
    return ["env", f"PYTHONPATH={packages}", sys.executable, str(program)]


def _pykafka() -> list[str]:
    packages = fetch.python_packages(sys.executable, *PYKAFKA)
    program = HERE / "pykafka_2" / "client.py"
    return ["env", f"PYTHONPATH={packages}", sys.executable, "-W", "ignore", str(program)]


def _kafka_python_0() -> list[str]:
    python = old_python()
    if python is None:
        pytest.skip(
            "needs Python 2.7 or 3.6: `async` is the name of a parameter in kafka-python 0.9"
        )
    pip = fetch.python_packages(python, "pip==20.3.4")  # 3.6.15 came with one without new wheels
    packages = fetch.python_packages(python, *KAFKA_PYTHON_0, pip=pip)
    program = HERE / "kafka_python_0" / "client.py"
    return ["env", f"PYTHONPATH={packages}", python, str(program)]


def _node() -> list[str]:
    modules = fetch.node_modules(HERE / "node_old")
    return ["env", f"NODE_PATH={modules}", "node", str(HERE / "node_old" / "client.js")]


def old_python() -> str | None:
    """A Python before 3.7, on PATH or of pyenv."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = [
        str(python) for line in ("3.6", "2.7") for python in pyenv.glob(f"{line}.*/bin/python")
    ]
    for python in ("python3.6", "python2.7", *found):
        try:
            done = subprocess.run([python, "-c", "import pip"], capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    return None


BEFORE_TIMESTAMPS: Final = Abilities(timestamps=False)
BEFORE_LZ4: Final = Abilities(timestamps=False, codecs=("none", "gzip", "snappy"))
TIMESTAMPS: Final = Abilities()
HEADERS: Final = Abilities(headers=True)
VALUES_IN_HEADERS: Final = Abilities(headers=True, null_header_values=False)
ZSTD: Final = Abilities(headers=True, codecs=("none", "gzip", "snappy", "lz4", "zstd"))
GROUP, KAFKA, ZOOKEEPER = "by a member of a group", "in Kafka, without a group", "in ZooKeeper"
JVM: Final = (pytest.mark.jvm,)


def _of_082() -> Iterator[tuple[str, OldClient]]:
    simple = "SimpleConsumer"
    streams = "the consumer that uses ZooKeeper"
    in_scala = Abilities(timestamps=False, offsets=False)
    for scenario, producer, consumer, offsets, able in (
        ("java", "Java", simple, KAFKA, BEFORE_TIMESTAMPS),
        ("scala", "Scala", simple, ZOOKEEPER, in_scala),
        ("zookeeper", "Scala", streams, ZOOKEEPER, in_scala),
        ("storage", "Scala", streams, "in Kafka, `offsets.storage=kafka`", in_scala),
    ):
        yield f"kafka_0.8.2-{scenario}", OldClient(
            library=f"Kafka 0.8.2.2, its producer in {producer}, {consumer}",
            protocol="0.8.2", offsets=offsets, scenario=scenario, command=_kafka_082, able=able,
            marks=JVM,
        )  # fmt: skip


def _of_java() -> Iterator[tuple[str, OldClient]]:
    for version, able in (
        ("0.9.0.1", BEFORE_TIMESTAMPS),
        ("0.10.2.2", TIMESTAMPS),
        ("0.11.0.3", HEADERS),
        ("1.1.1", HEADERS),
        ("2.8.2", ZSTD),
    ):
        yield f"java_{version}", OldClient(
            library=f"Java {version}", protocol=version.rpartition(".")[0], offsets=GROUP,
            command=lambda version=version: _java(version), able=able, marks=JVM,
        )  # fmt: skip


def _of_python() -> Iterator[tuple[str, OldClient]]:
    for version, offsets, able in (
        ("0.8.1", ZOOKEEPER, BEFORE_LZ4),
        ("0.8.2", KAFKA, BEFORE_TIMESTAMPS),
        ("0.9", GROUP, BEFORE_TIMESTAMPS),
        ("0.10", GROUP, TIMESTAMPS),
        ("0.11.0", GROUP, VALUES_IN_HEADERS),
        ("1.0.0", GROUP, VALUES_IN_HEADERS),
    ):
        yield f"kafka_python_1.4-{version}", OldClient(
            library="kafka-python 1.4.7", protocol=version, offsets=offsets, version=version,
            command=_kafka_python_1, able=able, marks=JVM,
        )  # fmt: skip
    yield "kafka_python_0.9", OldClient(
        library="kafka-python 0.9.5, on Python 3.6 or 2.7", protocol="0.8.1", offsets=ZOOKEEPER,
        command=_kafka_python_0, able=BEFORE_LZ4, marks=JVM,
    )  # fmt: skip
    yield "pykafka", OldClient(
        library="pykafka 2.8.0", protocol="0.9.0", offsets=KAFKA, version="0.9.0",
        command=_pykafka, able=replace(BEFORE_LZ4, offsets=False), marks=JVM,
    )  # fmt: skip


def _of_librdkafka() -> Iterator[tuple[str, OldClient]]:
    for version, offsets, able in (
        ("0.8.2", KAFKA, BEFORE_TIMESTAMPS),
        ("0.9.0", GROUP, BEFORE_TIMESTAMPS),
        ("0.10.0", GROUP, HEADERS),  # from here on it uses the highest versions that it has
    ):
        yield f"librdkafka-{version}", OldClient(
            library="librdkafka 2.16.0, `api.version.request=false`", protocol=version,
            offsets=offsets, version=version, able=able, marks=JVM,
            command=lambda: [sys.executable, str(HERE / "librdkafka" / "old.py")],
        )  # fmt: skip


def _of_go_and_node() -> Iterator[tuple[str, OldClient]]:
    for version, able in (
        ("0.8.2.0", BEFORE_LZ4),
        ("0.9.0.0", BEFORE_LZ4),
        ("0.10.0.0", TIMESTAMPS),
        ("0.10.2.0", TIMESTAMPS),
        ("0.11.0.0", HEADERS),
        ("1.0.0", HEADERS),
        ("2.8.0", ZSTD),
        ("3.9.0", ZSTD),
    ):
        yield f"sarama-{version}", OldClient(
            library="sarama 1.61.1", protocol=version.rpartition(".")[0],
            offsets=KAFKA, version=version, scenario="old_round_trips",
            command=lambda: programs.go_program("sarama"), able=able,
            marks=(*JVM, pytest.mark.go),
        )  # fmt: skip
    for scenario, library, protocol, offsets, able in (
        ("no_kafka", "no-kafka 3.4.4", "0.9", ZOOKEEPER, BEFORE_LZ4),
        ("kafka_node", "kafka-node 5.0.0", "0.10", GROUP, replace(BEFORE_LZ4, timestamps=True)),
    ):
        yield scenario, OldClient(
            library=library, protocol=protocol, offsets=offsets, scenario=scenario, command=_node,
            able=able, marks=(*JVM, pytest.mark.node),
        )  # fmt: skip


OLD_CLIENTS: Final[dict[str, OldClient]] = dict(
    (*_of_082(), *_of_java(), *_of_librdkafka(), *_of_python(), *_of_go_and_node())
)


def each_old_client() -> list[Any]:
    """Parameters for a test of every client of former years, marked with what it needs."""
    return [pytest.param(name, marks=each.marks) for name, each in OLD_CLIENTS.items()]


def table() -> str:
    """The rows of the page that lists these clients."""
    protocols: dict[tuple[str, str, str], list[str]] = {}
    for each in OLD_CLIENTS.values():
        key = (each.library, ", ".join(each.able.codecs), each.offsets)
        protocols.setdefault(key, []).append(each.protocol)
    return "".join(
        f"| {library} | {', '.join(versions)} | {codecs} | {offsets} |\n"
        for (library, codecs, offsets), versions in protocols.items()
    )
