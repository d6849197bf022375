"""What is measured: a cluster of ours, and one of Apache Kafka, started and ended alike.

A target is started afresh for every run, on loopback, with its data in a directory of its
own, and knows its broker processes, so that their processor time and memory can be read
from outside.
"""

import json
import pathlib
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import apache
import fetch
import raw

from kit import machine


class Target(Protocol):
    """A Kafka cluster under measurement."""

    name: str
    bootstrap: str
    start_s: float  # from its spawning to the first Metadata answered, for its first broker

    def pids(self) -> list[int]:
        """Its broker processes."""

    def version(self) -> str:
        """What it says it is."""

    def stop(self) -> None:
        """End its processes and remove its data."""


class ApacheKafka:
    """Apache Kafka 3.9 with a ZooKeeper of its own, which is not counted as its broker."""

    name = "kafka"

    def __init__(
        self, home: pathlib.Path, *, brokers: int = 1, properties: Mapping[str, str] = {}
    ) -> None:
        self._home = home
        self._daemons: list[apache.Daemon] = []
        self._brokers: list[apache.Broker] = []
        try:
            self._start(brokers, properties)
        except BaseException:
            self.stop()
            raise

    def _start(self, brokers: int, properties: Mapping[str, str]) -> None:
        zookeeper = apache.ZooKeeper(self._home / "zookeeper")
        self._daemons.append(zookeeper)
        for broker_id in range(brokers):
            broker = apache.Broker(
                self._home / f"broker-{broker_id}",
                zookeeper.address,
                broker_id=broker_id,
                brokers=brokers,
                properties=properties,
            )
            self._daemons.append(broker)
            self._brokers.append(broker)
        self.start_s = self._brokers[0].wait()
        for broker in self._brokers:
            raw.wait_for_brokers(broker.address, brokers, timeout_s=60)
        self.bootstrap = ",".join(broker.address for broker in self._brokers)

    def pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers]

    def version(self) -> str:
        return fetch.kafka_version(apache.LINE)

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()
        shutil.rmtree(self._home, ignore_errors=True)


class Odradek:
    """Ours, as its user starts it: `odradek up`."""

    name = "odradek"

    def __init__(
        self, home: pathlib.Path, *, brokers: int = 1, properties: Mapping[str, str] = {}
    ) -> None:
        self._home = home
        port = apache.free_port()
        options = [f"{key}={value}" for key, value in properties.items()]
        arguments = ["--brokers", str(brokers), "--port", str(port), "--detach"]
        spawned_s = time.monotonic()
        up = subprocess.Popen(self._command("up", *arguments, "--", *options))
        try:
            raw.wait_for_metadata(f"{apache.HOST}:{port}", timeout_s=60)
            self.start_s = time.monotonic() - spawned_s
            self._wait_until_up(up)
        except BaseException:
            up.kill()
            up.wait()
            self.stop()
            raise

    def _wait_until_up(self, up: subprocess.Popen[bytes]) -> None:
        if up.wait(120):
            raise RuntimeError(f"odradek up ended with {up.returncode}")
        self.bootstrap = self._status()["bootstrap"]

    def pids(self) -> list[int]:
        return [broker["pid"] for broker in self._status()["brokers"]]

    def version(self) -> str:
        return str(self._status()["version"])

    def stop(self) -> None:
        subprocess.run(self._command("down"), check=False, timeout=120, capture_output=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def _command(self, verb: str, *arguments: str) -> Sequence[str]:
        return [machine.python(), "-m", "odradek", verb, "--dir", str(self._home), *arguments]

    def _status(self) -> dict:  # type: ignore[type-arg]
        done = subprocess.run(
            self._command("status", "--json"), check=True, timeout=60, capture_output=True
        )
        return dict(json.loads(done.stdout))


TARGETS: dict[str, type[ApacheKafka] | type[Odradek]] = {
    target.name: target for target in (Odradek, ApacheKafka)
}
