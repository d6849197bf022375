"""The targets: a cluster of Odradek, and one of Apache Kafka, started and ended alike.

A target listens on loopback, has its data in a directory of its own, and the pids of its brokers,
so that their processor time and memory can be read from outside.
"""

import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

from kit import apache, fetch, raw

_START_TIMEOUT_S = 120.0


class Target(Protocol):
    """A Kafka cluster under measurement."""

    name: str
    bootstrap: str
    start_s: float  # from starting the first broker's process to its first Metadata response

    def start(self) -> None:
        """Start its brokers, on existing data if any; return when all serve."""

    def halt(self) -> None:
        """Stop its brokers as an operator does; the data is kept."""

    def end(self) -> None:
        """Halt, and stop its other processes."""

    def pids(self) -> list[int]: ...

    def version(self) -> str:
        """The name and version of the software."""


class ApacheKafka:
    """Apache Kafka 3.9 with a ZooKeeper of its own, which is not measured."""

    name = "kafka"

    def __init__(
        self, home: pathlib.Path, *, brokers: int = 1, properties: Mapping[str, str] | None = None
    ) -> None:
        self.bootstrap = ""
        self.start_s = 0.0
        self._home = home
        self._count = brokers
        self._properties = properties or {}
        self._zookeeper: apache.ZooKeeper | None = None
        self._brokers: list[apache.Broker] = []

    def start(self) -> None:
        if self._zookeeper is None:
            self._zookeeper = apache.ZooKeeper(self._home / "zookeeper")
        for broker_id in range(self._count):
            broker = apache.Broker(
                self._home / f"broker-{broker_id}",
                self._zookeeper.address,
                broker_id=broker_id,
                brokers=self._count,
                properties=self._properties,
            )
            self._brokers.append(broker)
        self.start_s = self._brokers[0].wait()
        for broker in self._brokers:
            raw.wait_for_brokers(broker.address, self._count, timeout_s=_START_TIMEOUT_S)
        self.bootstrap = ",".join(broker.address for broker in self._brokers)

    def halt(self) -> None:
        while self._brokers:
            self._brokers.pop().stop()

    def end(self) -> None:
        self.halt()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers]

    def version(self) -> str:
        return fetch.kafka_version(apache.LINE)


class Odradek:
    """Odradek, started by `odradek up`."""

    name = "odradek"

    def __init__(
        self, home: pathlib.Path, *, brokers: int = 1, properties: Mapping[str, str] | None = None
    ) -> None:
        self.bootstrap = ""
        self.start_s = 0.0
        self._home = home
        self._brokers = brokers
        self._options = [f"{key}={value}" for key, value in (properties or {}).items()]

    def start(self) -> None:
        spawned_s = time.monotonic()
        up = subprocess.Popen(
            self._command("up", "--detach", *self._arguments(), "--", *self._options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            raw.wait_for_metadata(self._first_address(up), timeout_s=_START_TIMEOUT_S)
            self.start_s = time.monotonic() - spawned_s
        finally:
            ended_with = up.wait(_START_TIMEOUT_S)
        if ended_with:
            raise RuntimeError(f"odradek up ended with {ended_with}; see {self._home}/logs")
        self.bootstrap = self._status()["bootstrap"]

    def _arguments(self) -> list[str]:
        """The arguments of `odradek up`, which chooses the ports."""
        return ["--brokers", str(self._brokers)]

    def _first_address(self, up: "subprocess.Popen[bytes]") -> str:
        """The address of broker 0, once its options are written."""
        file = self._home / "broker-0" / "server.properties"
        while up.poll() is None and not file.exists():
            time.sleep(0.005)
        found = re.search(r"^listeners=PLAINTEXT://(\S+)$", file.read_text(), re.MULTILINE)
        assert found is not None, file
        return found[1]

    def halt(self) -> None:
        subprocess.run(self._command("down"), check=False, timeout=120, capture_output=True)

    def end(self) -> None:
        self.halt()

    def pids(self) -> list[int]:
        return [broker["pid"] for broker in self._status()["brokers"]]

    def version(self) -> str:
        return str(self._status()["version"])

    def _command(self, verb: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "odradek", verb, "--dir", str(self._home), *arguments]

    def _status(self) -> dict[str, Any]:
        done = subprocess.run(
            self._command("status", "--json"), check=True, timeout=60, capture_output=True
        )
        return dict(json.loads(done.stdout))


class OdradekOnZooKeeper(Odradek):
    """Odradek with a ZooKeeper, which is not measured."""

    name = "odradek on zookeeper"
    _zookeeper: apache.ZooKeeper | None = None

    def start(self) -> None:
        if self._zookeeper is None:
            self._zookeeper = apache.ZooKeeper(self._home.with_name("zookeeper"))
        super().start()

    def end(self) -> None:
        super().end()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def _arguments(self) -> list[str]:
        assert self._zookeeper is not None
        return [*super()._arguments(), "--zookeeper", self._zookeeper.address]


TARGETS: dict[str, type[ApacheKafka] | type[Odradek]] = {
    target.name: target for target in (Odradek, ApacheKafka)
}
STORES: dict[str, type[Odradek]] = {"embedded": Odradek, "zookeeper": OdradekOnZooKeeper}


def target_of(kind: str, store: str) -> type[ApacheKafka] | type[Odradek]:
    """The class of a target; `store` is Odradek's coordination store."""
    return STORES[store] if kind == Odradek.name else TARGETS[kind]
