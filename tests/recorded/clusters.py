"""A cluster like the recorded one, and the steps between the recordings (see `scenarios`)."""

import asyncio
import contextlib
import io
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster" / "support"))

from brokers import BrokerProcess

from odradek.cli.kafka.tool import run_tool
from odradek.client.admin.topics import NewTopic, create_topics
from odradek.client.cluster import Cluster as ClientCluster
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.local.startable import free_ports

RECORDED_PORT: Final = 19391
RECORDED_ZOOKEEPER: Final = "127.0.0.1:19481"
FIRST: Final = f"127.0.0.1:{RECORDED_PORT}"


class Server(Protocol):
    """The process of one broker."""

    @property
    def pid(self) -> int: ...
    @property
    def is_up(self) -> bool: ...
    def start(self) -> object: ...
    def stop(self) -> object: ...
    def kill(self) -> object: ...


class Cluster:
    """Brokers like the recorded ones, Kafka's or ours, and our tools."""

    def __init__(self, home: pathlib.Path, ports: Sequence[int], zookeeper_port: int = 0) -> None:
        self.home = home
        # The recorded addresses and the real ones.
        self.addresses = {
            f"127.0.0.1:{RECORDED_PORT + n}": f"127.0.0.1:{port}" for n, port in enumerate(ports)
        }
        if zookeeper_port:
            self.addresses[RECORDED_ZOOKEEPER] = f"127.0.0.1:{zookeeper_port}"
        self.topic_ids: dict[str, str] = {}
        self.brokers: dict[int, Server] = {}
        self.members: dict[str, list[subprocess.Popen[bytes]]] = {}

    def translated(self, word: str) -> str:
        for recorded, real in self.addresses.items():
            word = word.replace(recorded, real)
        return self.topic_ids.get(word, word)

    def as_recorded(self, text: str) -> str:
        """The output with the recorded addresses instead of the real ones."""
        for recorded, real in self.addresses.items():
            text = text.replace(real, recorded)
        return text

    def run(self, tool: str, arguments: list[str], stdin: str = "") -> tuple[int, str, str]:
        """Call a tool of ours in the directory of its files. Returns code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        words = [self.translated(word) for word in arguments]
        before, sys.stdin = sys.stdin, io.StringIO(stdin)
        try:
            with (
                contextlib.chdir(self.home),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                code = run_tool(tool, words)
        finally:
            sys.stdin = before
        return code, self.as_recorded(out.getvalue()), self.as_recorded(err.getvalue())

    def run_for(
        self, tool: str, arguments: list[str], stdin: str, timeout_s: float
    ) -> tuple[str, str, str]:
        """Call a tool that does not end by itself."""
        words = [self.translated(word) for word in arguments]
        with subprocess.Popen(
            [sys.executable, "-u", "-m", "odradek", tool, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=self.home, text=True,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(stdin, timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                return "timeout", self.as_recorded(out), self.as_recorded(err)
        return str(process.returncode), self.as_recorded(out), self.as_recorded(err)

    def join(self, group: str, topic: str, *words: str) -> None:
        """Start a member of a group, which stays until `leave`."""
        command = [
            "console-consumer", "--bootstrap-server", self.translated(FIRST), "--topic", topic,
            "--group", group, "--from-beginning", *words,
        ]  # fmt: skip
        with (self.home / f"{group}.log").open("ab") as log:
            member = subprocess.Popen(
                [sys.executable, "-m", "odradek", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.members.setdefault(group, []).append(member)

    def leave(self, group: str) -> None:
        """Stop all members of a group."""
        for member in self.members.pop(group, ()):
            member.terminate()
            member.wait(60)

    def close(self) -> None:
        for group in list(self.members):
            for member in self.members.pop(group):
                member.kill()
                member.wait(60)
        for broker in self.brokers.values():
            broker.kill()


class OurCluster(Cluster):
    """A cluster of brokers of ours, with ids from 1."""

    def __init__(
        self,
        home: pathlib.Path,
        *,
        brokers: int = 4,
        racks: Sequence[str] = (),
        options: Mapping[str, object] = {},
    ) -> None:
        ports = free_ports("127.0.0.1", brokers)
        super().__init__(home, ports)
        # Where the recordings use ZooKeeper, ours use the embedded store.
        self.addresses[RECORDED_ZOOKEEPER] = str(home)
        for number, port in enumerate(ports, 1):
            self.brokers[number] = BrokerProcess(
                home / f"broker-{number}",
                {
                    "broker.id": number,
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "odradek.store.path": home / "coordination.db",
                    "offsets.topic.replication.factor": min(3, brokers),
                    "transaction.state.log.replication.factor": min(3, brokers),
                    "transaction.state.log.min.isr": min(2, brokers),
                    "group.initial.rebalance.delay.ms": 0,
                    "auto.leader.rebalance.enable": "false",
                    **({"broker.rack": racks[number - 1]} if racks else {}),
                    **options,
                },
            )

    def start(self) -> None:
        """Start them one after the other: broker 1 becomes the controller."""
        for broker in self.brokers.values():
            broker.start()


def run_step(  # noqa: C901 - one branch for each word
    cluster: Cluster, step: str
) -> None:
    """Run a step between two recordings (see `scenarios`)."""
    verb, *words = shlex.split(step)
    if verb == "topic-id":
        topic, recorded_id = words
        _, out, _ = cluster.run("topics", [*_where(), "--describe", "--topic", topic])
        cluster.topic_ids[recorded_id] = out.split("TopicId: ")[1].split()[0]
    elif verb == "freeze":
        os.kill(cluster.brokers[int(words[0])].pid, signal.SIGSTOP)
    elif verb == "thaw":
        os.kill(cluster.brokers[int(words[0])].pid, signal.SIGCONT)
    elif verb in ("start", "stop", "kill"):
        getattr(cluster.brokers[int(words[0])], verb)()
        wait_until(lambda: _shows_live_brokers(cluster))
    elif verb == "fill":
        topic, _, partition = words[0].partition(":")
        asyncio.run(fill(cluster, topic, partition, int(words[1])))
    elif verb == "reassign":
        name, *throttle = words
        document = json.dumps(PLANS[name])
        (cluster.home / f"{name}.json").write_text(document)
        plan = ["--reassignment-json-file", f"{name}.json", *throttle]
        _must(cluster, "reassign-partitions", [*_where(), *plan, "--execute"])
    elif verb in ("described", "undescribed"):
        # A broker applies a change of its own options a moment after it was stored.
        describe, shown = [*_where(), "--describe", *words[:-1]], verb == "described"
        wait_until(lambda: (words[-1] in cluster.run("configs", describe)[1]) is shown)
    elif verb == "join":
        cluster.join(*words)
        wait_until(lambda: _has_members(cluster, words[0]))
    elif verb == "leave":
        cluster.leave(words[0])
    elif verb in _CONDITIONS:
        wait_until(lambda: _CONDITIONS[verb](cluster, *words))
    else:
        _must(cluster, verb, [*_where(), *words])
        if step.startswith("topics --create"):
            # The broker of the next call may get UpdateMetadata later than the controller.
            listed = [*_where(), "--list"]
            wait_until(lambda: words[2] in cluster.run("topics", listed)[1].splitlines())


def _must(cluster: Cluster, tool: str, arguments: list[str]) -> None:
    code, out, err = cluster.run(tool, arguments)
    assert code == 0, f"{tool} {arguments}: {out}{err}"


def _is_quiet(cluster: Cluster) -> bool:
    """Whether every replica is in sync, and no reassignment is under way."""
    _, moves, _ = cluster.run("reassign-partitions", [*_where(), "--list"])
    lacking = ["--describe", "--under-replicated-partitions"]
    code, out, _ = cluster.run("topics", [*_where(), *lacking])
    return code == 0 and not out and moves == "No partition reassignments found.\n"


def _is_creatable(cluster: Cluster, topic: str) -> bool:
    """Whether a topic of this name may be created: the controller has deleted a former one."""

    async def validate() -> bool:
        async with await ClientCluster.bootstrap(cluster.translated(FIRST)) as connected:
            outcomes = await create_topics(connected, [NewTopic(topic)], validate_only=True)
        return outcomes == {topic: None}

    return asyncio.run(validate())


_CONDITIONS: Final[Mapping[str, Callable[..., bool]]] = {
    "settle": _is_quiet,
    "reassigned": _is_quiet,
    "creatable": _is_creatable,
}


def _has_members(cluster: Cluster, group: str) -> bool:
    """Whether all started members of a group have joined and have no lag."""
    describe = [*_where(), "--describe", "--group", group]
    _, state, _ = cluster.run("consumer-groups", [*describe, "--state"])
    expected = len(cluster.members[group])
    if state.split()[-2:] != ["Stable", str(expected)]:
        return False
    _, rows, _ = cluster.run("consumer-groups", [*describe, "--offsets"])
    lags = [row.split()[5] for row in rows.splitlines()[2:]]
    return bool(lags) and set(lags) == {"0"}


def _shows_live_brokers(cluster: Cluster) -> bool:
    """Whether the brokers' metadata has exactly the brokers that run."""
    live = sum(broker.is_up for broker in cluster.brokers.values())
    _, reported, _ = cluster.run("cluster", ["list-endpoints", *_where()])
    return len(reported.splitlines()) == live + 1


def wait_until(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)  # other processes give no signal to wait for


async def fill(cluster: Cluster, topic: str, partition: str, count: int) -> None:
    """Send `count` records; the second is the first with the largest timestamp, as recorded."""
    servers = cluster.translated("127.0.0.1:19391")
    settings = ProducerSettings.from_properties({"bootstrap.servers": servers})
    first_ms = int(time.time() * 1000)
    async with await Producer.open(settings) as producer:
        for number in range(count):
            place = int(partition) if partition else number % 3 if topic == "r1" else 0
            timestamp = first_ms + min(number, 1)
            await producer.send(topic, b"x" * 1000, partition=place, timestamp=timestamp)
        await producer.flush()


def _plan(*replicas: list[int]) -> dict[str, object]:
    partitions = [
        {"topic": "r1", "partition": number, "replicas": brokers}
        for number, brokers in enumerate(replicas)
    ]
    return {"version": 1, "partitions": partitions}


PLANS = {
    "all4": _plan([4, 2], [4, 3], [4, 1]),
    "back": _plan([2, 1], [3, 2], [1, 3]),
    "proposed": _plan([4, 2], [2, 3], [3, 4]),
}


def _where() -> list[str]:
    return ["--bootstrap-server", "127.0.0.1:19391"]
