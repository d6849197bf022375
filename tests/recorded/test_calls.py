"""Kafka 3.9.2's recorded calls, replayed with our tools against a cluster of ours.

A scenario is a list of steps, in the order in which Kafka's calls were recorded: the name of a
recording, which is played and compared, or a command of ours that brings about what stood between
the recordings. All scenarios together play every recording but those that `EXCEPTIONS` keeps
out; a test holds that to be so.
"""

import asyncio
import contextlib
import io
import json
import os
import pathlib
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable

import pytest
from tests.recorded.exceptions import DIFFERENT, NOT_PLAYED
from tests.recorded.recording import CALLS, normal, read
from tests.recorded.scenarios import SCENARIOS, Scenario

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))

from brokers import BrokerProcess

from odradek.cli.tool import run_tool
from odradek.client.producer import Producer
from odradek.client.producer_settings import ProducerSettings

RECORDED = sorted(path.stem for path in CALLS.glob("*.txt"))


class Cluster:
    """Brokers 1 to 4 of ours, as the recordings had them."""

    def __init__(self, home: pathlib.Path, scenario: Scenario) -> None:
        self.home = home
        self.ports = _free_ports(4)
        self.topic_ids: dict[str, str] = {}
        self.brokers = {
            number: BrokerProcess(
                home / f"broker-{number}",
                {
                    "broker.id": number,
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "odradek.store.path": home / "coordination.db",
                    "offsets.topic.replication.factor": 3,
                    "group.initial.rebalance.delay.ms": 0,
                    "auto.leader.rebalance.enable": "false",
                    **({"broker.rack": scenario.racks[number - 1]} if scenario.racks else {}),
                    **scenario.options,
                },
            )
            for number, port in enumerate(self.ports, 1)
        }

    def translated(self, word: str) -> str:
        for number, port in enumerate(self.ports, 1):
            word = word.replace(f"127.0.0.1:{19390 + number}", f"127.0.0.1:{port}")
        return self.topic_ids.get(word, word)

    def run(self, tool: str, arguments: list[str], stdin: str = "") -> tuple[int, str, str]:
        """One call of a tool, in the directory of its files."""
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
        return code, out.getvalue(), err.getvalue()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@pytest.fixture
def cluster(request, tmp_path):
    made = Cluster(tmp_path, request.param)
    try:
        for broker in made.brokers.values():
            broker.start()  # one after the other: broker 1 becomes the controller
        yield made
    finally:
        for broker in made.brokers.values():
            broker.kill()


def play(cluster: Cluster, name: str) -> list[str]:
    """What differs between a recorded call and ours."""
    recorded = read(name)
    for file, text in recorded.files.items():
        (cluster.home / file).write_text(text)
    code, out, err = cluster.run(recorded.tool, recorded.arguments, recorded.stdin)
    allowed = DIFFERENT[name].parts if name in DIFFERENT else ()
    without = DIFFERENT[name].without if name in DIFFERENT else None
    found = []
    if str(code) != recorded.code and "code" not in allowed:
        found.append(f"exit code {code}, recorded {recorded.code}")
    for part, ours, theirs in (("out", out, recorded.out), ("err", err, recorded.err)):
        mine, wanted = normal(ours, without=without), normal(theirs, without=without)
        if any(recorded.name.startswith(prefix) for prefix in ("acls", "urp.12")):
            # Java prints sets of enumerations, whose order is another each time.
            mine, wanted = (sorted(line.strip() for line in lines) for lines in (mine, wanted))
        if wanted and wanted[-1].startswith("... ["):  # the recording was cut there
            mine, wanted = mine[: len(wanted) - 2], wanted[:-2]
        if mine != wanted and part not in allowed:
            found.append(f"{part}:\n  ours     {mine}\n  recorded {wanted}")
    return found


@pytest.mark.parametrize("cluster", SCENARIOS, ids=str, indirect=True)
def test_a_recorded_scenario_comes_out_as_it_was_recorded(cluster, request):
    scenario: Scenario = request.node.callspec.params["cluster"]
    differences = []
    for step in scenario.steps:
        if (CALLS / f"{step}.txt").exists():
            differences += [f"{step}: {what}" for what in play(cluster, step)]
        else:
            bring_about(cluster, step)

    assert not differences, "\n".join(differences)


def bring_about(cluster: Cluster, step: str) -> None:
    """What stood between two recordings."""
    verb, *words = shlex.split(step)
    if verb == "remember":
        topic, recorded_id = words
        _, out, _ = cluster.run("topics", [*_where(), "--describe", "--topic", topic])
        cluster.topic_ids[recorded_id] = out.split("TopicId: ")[1].split()[0]
    elif verb == "freeze":
        os.kill(cluster.brokers[int(words[0])].pid, signal.SIGSTOP)
    elif verb == "thaw":
        os.kill(cluster.brokers[int(words[0])].pid, signal.SIGCONT)
    elif verb in ("start", "stop", "kill"):
        getattr(cluster.brokers[int(words[0])], verb)()
        wait_until(lambda: _is_known(cluster))
    elif verb == "fill":
        topic, _, partition = words[0].partition(":")
        asyncio.run(fill(cluster, topic, partition, int(words[1])))
    elif verb == "reassign":
        name, *throttle = words
        document = json.dumps(PLANS[name])
        (cluster.home / f"{name}.json").write_text(document)
        plan = ["--reassignment-json-file", f"{name}.json", *throttle]
        code, out, err = cluster.run("reassign-partitions", [*_where(), *plan, "--execute"])
        assert code == 0, out + err
    elif verb in ("settle", "reassigned"):
        wait_until(lambda: _is_quiet(cluster))
    else:
        code, out, err = cluster.run(verb, [*_where(), *words])
        assert code == 0, f"{step}: {out}{err}"
        if step.startswith("topics --create"):
            # The broker that is asked may hear of it later than the one that made it.
            listed = [*_where(), "--list"]
            wait_until(lambda: words[2] in cluster.run("topics", listed)[1].splitlines())


def _is_quiet(cluster: Cluster) -> bool:
    """Whether every replica is in sync and none is moved."""
    _, moves, _ = cluster.run("reassign-partitions", [*_where(), "--list"])
    lacking = ["--describe", "--under-replicated-partitions"]
    code, out, _ = cluster.run("topics", [*_where(), *lacking])
    return code == 0 and not out and moves == "No partition reassignments found.\n"


def _is_known(cluster: Cluster) -> bool:
    """Whether the brokers know who of them is up."""
    live = sum(broker.is_up for broker in cluster.brokers.values())
    _, told, _ = cluster.run("cluster", ["list-endpoints", *_where()])
    return len(told.splitlines()) == live + 1


def wait_until(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)  # there is nothing to wait on from outside


async def fill(cluster: Cluster, topic: str, partition: str, count: int) -> None:
    servers = cluster.translated("127.0.0.1:19391")
    settings = ProducerSettings.from_properties({"bootstrap.servers": servers})
    async with await Producer.open(settings) as producer:
        for number in range(count):
            place = int(partition) if partition else number % 3 if topic == "r1" else 0
            await producer.send(topic, b"x" * 1000, partition=place)
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


def test_every_recording_is_played_or_kept_out_for_a_reason():
    played = [step for scenario in SCENARIOS for step in scenario.steps if step in RECORDED]

    assert sorted([*played, *NOT_PLAYED]) == RECORDED
    assert DIFFERENT.keys() <= set(played)
    assert all(os.linesep not in why for why in NOT_PLAYED.values())
