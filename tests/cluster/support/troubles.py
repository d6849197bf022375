"""A cluster for problems, and the output of `odradek doctor` and `odradek why` about it.

Commands run in this process: a test that asks thirty times does not start Python thirty times.
"""

import asyncio
import contextlib
import io
import json
import pathlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from peers import Peer

from odradek.cli.main import run
from odradek.client.cluster import Cluster
from odradek.record.records import Record, build_batch
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

WAIT_S = 60.0


class Finding(NamedTuple):
    """One finding, as the doctor prints it."""

    severity: str
    kind: str
    subject: str
    why: str
    fix: str

    def __str__(self) -> str:
        return (
            f"{self.severity}: {self.kind}: {self.subject}\n    why: {self.why}\n"
            f"    fix: {self.fix}"
        )


def odradek(*arguments: object, fails: bool = False) -> str:
    """Run one command; what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    assert fails or code == 0, (arguments, code, out.getvalue(), err.getvalue())
    return out.getvalue()


def wait_for(true: Callable[[], Any]) -> Any:
    """Wait until something is so; what it is."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := true()):
        assert time.monotonic() < deadline_s, true
        time.sleep(0.05)
    return found


class Asked:
    """A cluster by the flags that name it."""

    def __init__(self, *where: str) -> None:
        self.where = where

    def findings(self, kind: str, *options: object) -> list[Finding]:
        """What the doctor finds of a kind."""
        reported = json.loads(odradek("doctor", *self.where, "--json", *options, fails=True))
        found = (f for f in reported["findings"] if f["kind"] == kind)
        return [Finding(*(f[name] for name in Finding._fields)) for f in found]

    def why(self, *about: object) -> list[str]:
        """The sentences of `why`, without the decisions at the end."""
        reported = odradek("why", *about, *self.where)
        return reported.partition("\n\n")[0].strip().splitlines()


class Home(Asked):
    """Brokers 0, 1 and 2 of `odradek up`."""

    def __init__(self, path: pathlib.Path, *options: str) -> None:
        self.path = path
        super().__init__("--dir", str(path))
        odradek("up", "--brokers", 3, "--detach", "--faults", *self.where, "--", *options)
        self.held: list[Peer] = []  # connections that have to stay

    def status(self, broker: int) -> Any:
        """The exit state of a broker's process."""
        return json.loads(odradek("status", "--json", *self.where))["brokers"][broker]

    @property
    def bootstrap(self) -> str:
        return str(json.loads(odradek("status", "--json", *self.where))["bootstrap"])

    def do(self, verb: str, broker: int) -> None:
        """`odradek kill 1 --dir D` and the like."""
        odradek(verb, broker, *self.where)

    def kafka(self, tool: str, *arguments: object) -> str:
        """One of Kafka's tools."""
        return odradek(tool, "--bootstrap-server", self.bootstrap, *arguments)

    def peer(self, broker: int) -> Peer:
        return Peer(int(self.status(broker)["listeners"][0].rpartition(":")[2]))

    def create(self, topic: str, assignment: str, **configs: object) -> None:
        """A topic with these replicas, as `1:2,2:0`; waits until it is led and in sync."""
        options = [f"{key.replace('_', '.')}={value}" for key, value in configs.items()]
        flags = [word for option in options for word in ("--config", option)]
        self.kafka("topics", "--create", "--topic", topic, "--replica-assignment", assignment,
                   *flags)  # fmt: skip
        leader = int(assignment.split(",", maxsplit=1)[0].split(":", maxsplit=1)[0])
        with self.peer(leader) as peer:
            peer.wait_until_led(topic, len(assignment.split(",")))

    def write(self, topic: str, broker: int, *, size: int = 10, count: int = 1) -> int:
        """Write so many batches to partition 0 at its leader; the last error code."""
        batch = build_batch([Record(None, b"x" * size, time.time_ns() // 1_000_000)])
        error = 0
        with self.peer(broker) as peer:
            for _ in range(count):
                error = peer.produce(topic, 0, batch, acks=1).error_code
        return error

    @property
    def controller(self) -> int:
        """The controller's id; -1 while none answers."""
        reported = json.loads(odradek("why", "broker", 0, "--json", *self.where))
        return reported["state"]["controller_id"] if reported["state"] else -1

    def next_controller(self) -> None:
        """Have the brokers elect another controller, or the same again."""
        epoch = self.epoch
        odradek("zookeeper-shell", self.path, "delete", "/controller")
        wait_for(lambda: self.epoch > epoch)
        wait_for(lambda: self.controller >= 0)

    @property
    def epoch(self) -> int:
        return int(odradek("zookeeper-shell", self.path, "get", "/controller_epoch").split()[-1])

    def asked(self, work: Callable[[Cluster], Awaitable[Any]]) -> Any:
        """Something done by our client."""

        async def ask() -> Any:
            async with await Cluster.bootstrap(self.bootstrap) as cluster:
                return await work(cluster)

        return asyncio.run(ask())

    # ------------------------------------------------------------------------------- groups

    def coordinator(self, group: str) -> Peer:
        """A connection to a group's coordinator, which stays open."""

        def found() -> int | None:
            with self.peer(0) as peer:
                request = FindCoordinatorRequest(key=group, key_type=0)
                reported = peer.request(request, FindCoordinatorResponse, 2)
                return None if reported.error_code else reported.node_id + 1

        self.held.append(self.peer(wait_for(found) - 1))
        return self.held[-1]

    def join(self, group: str) -> tuple[Peer, str, int]:
        """Be a member: the connection, the member id, the generation."""
        peer = self.coordinator(group)
        request = joining(group)
        reported = wait_for(lambda: _joined(peer, request))
        return peer, reported.member_id, reported.generation_id

    def sync(self, peer: Peer, group: str, member: str, generation: int) -> None:
        """Take the assignment that a leader makes for itself: nothing that is understood."""
        part = SyncGroupRequestAssignment(member_id=member, assignment=b"")
        request = SyncGroupRequest(
            group_id=group, generation_id=generation, member_id=member, assignments=[part]
        )
        assert not peer.request(request, SyncGroupResponse, 2).error_code


def joining(group: str) -> JoinGroupRequest:
    """A new member's first request."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )


def _joined(peer: Peer, request: JoinGroupRequest) -> JoinGroupResponse | None:
    reported = peer.request(request, JoinGroupResponse, 3)
    return None if reported.error_code else reported
