"""How fast groups join and commit, and how long a coordinator takes to load.

    ./run bench groups commits [--target kafka] [--clients 16] [--seconds 10]
    ./run bench groups load [--target kafka] [--commits 1000000] [--keys 10000]
    ./run bench groups members [--target kafka] [--members 50] [--partitions 500] [--runs 3]

commits    clients commit one offset each time and wait for the response: commits a second on
           one broker, and their latency
load       one coordinator partition has `--commits` commits of `--keys` different keys; the
           broker is stopped and started: the time until the coordinator answers, and the longest
           latency of ApiVersions meanwhile
members    three brokers: `--members` members join a group on a topic of `--partitions`; then the
           coordinator's broker is killed: seconds until all have joined, and until all are in
           one stable generation again

Members and clients are this process, the same for both targets. One JSON line is appended to
bench/results/groups.jsonl.
"""

import asyncio
import json
import os
import pathlib
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import click
from kit import machine, raw
from kit.results import keep_result
from kit.targets import TARGETS, Target

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
TIMEOUT_S = 180.0
OFFSETS_A_REQUEST = 100
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6groups\xff\xff\xff\xff"


async def connect(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    return await Connection.open(host, int(port), timeout_ms=10_000)


def commit_request(group: str, topic: str, offsets: dict[int, int]) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition_index=p, committed_offset=o, committed_metadata="")
        for p, o in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)],
    )


async def commit(connection: Connection, group: str, offsets: dict[int, int]) -> ErrorCode:
    request = commit_request(group, "groups", offsets)
    answer = await connection.request(request, OffsetCommitResponse)
    return ErrorCode(max(p.error_code for t in answer.topics for p in t.partitions))


async def until_coordinated(address: str, group: str) -> None:
    """Return when the group's coordinator accepts a commit."""
    deadline_s = time.monotonic() + TIMEOUT_S
    async with await connect(address) as connection:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        while time.monotonic() < deadline_s:
            found = await connection.request(find, FindCoordinatorResponse)
            [named] = found.coordinators
            if not named.error_code:
                async with await connect(f"{named.host}:{named.port}") as coordinator:
                    if not await commit(coordinator, group, {0: 0}):
                        return
            await asyncio.sleep(0.1)
    raise TimeoutError("no coordinator")


# ------------------------------------------------------------------------------ commits


async def commits(target: Target, clients: int, seconds: float) -> dict[str, float]:
    raw.create_topic(target.bootstrap, "groups", 1)
    await until_coordinated(target.bootstrap, "warm")
    waits: list[float] = []
    begun_s = time.perf_counter()

    async def client(number: int) -> None:
        async with await connect(target.bootstrap) as connection:
            offset = 0
            while time.perf_counter() < begun_s + seconds:
                offset += 1
                sent_s = time.perf_counter()
                error = await commit(connection, f"group-{number}", {0: offset})
                assert not error, error
                waits.append(time.perf_counter() - sent_s)

    await asyncio.gather(*(client(number) for number in range(clients)))
    took_s = time.perf_counter() - begun_s
    waits.sort()
    return {
        "commits_per_s": len(waits) / took_s,
        "p50_ms": waits[len(waits) // 2] * 1000,
        "p99_ms": waits[len(waits) * 99 // 100] * 1000,
        "max_ms": waits[-1] * 1000,
    }


# --------------------------------------------------------------------------------- load


async def load(target: Target, commit_count: int, keys: int) -> dict[str, float]:
    raw.create_topic(target.bootstrap, "groups", OFFSETS_A_REQUEST)
    await until_coordinated(target.bootstrap, "group-0")
    groups = keys // OFFSETS_A_REQUEST
    rounds = commit_count // keys

    async def client(mine: range) -> None:
        async with await connect(target.bootstrap) as connection:
            for number in range(rounds):
                for group in mine:
                    offsets = dict.fromkeys(range(OFFSETS_A_REQUEST), number)
                    error = await commit(connection, f"group-{group}", offsets)
                    assert not error, error

    await asyncio.gather(*(client(range(n, groups, 8)) for n in range(8)))
    target.halt()
    starting = asyncio.create_task(asyncio.to_thread(target.start))
    address = await first_answer(target, starting)
    started_s = time.perf_counter()
    stalls: list[float] = []
    watching = asyncio.create_task(watch(address, stalls))
    last = f"group-{groups - 1}"
    await until_fetched(address, last, rounds - 1)
    took_s = time.perf_counter() - started_s
    watching.cancel()
    await starting
    stalls.sort()
    return {
        # From the first response to any request.
        "load_s": took_s,
        "answers_meanwhile": len(stalls),
        "p50_ms": stalls[len(stalls) // 2] * 1000 if stalls else 0.0,
        "p99_ms": stalls[len(stalls) * 99 // 100] * 1000 if stalls else 0.0,
        "max_ms": stalls[-1] * 1000 if stalls else 0.0,
    }


async def first_answer(target: Target, starting: "asyncio.Task[None]") -> str:
    """The target's address, as soon as it answers there."""
    while True:
        address = target.bootstrap  # the former one, or a new one
        try:
            async with await connect(address):
                return address
        except (ConnectionError, OSError):
            if starting.done():
                starting.result()
            await asyncio.sleep(0.01)


async def watch(address: str, stalls: list[float]) -> None:
    """Send small requests in a loop and record their latencies."""
    async with await connect(address) as connection:
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        while True:
            sent_s = time.perf_counter()
            await connection.request(request, ApiVersionsResponse)
            stalls.append(time.perf_counter() - sent_s)
            await asyncio.sleep(0.002)


async def until_fetched(address: str, group: str, offset: int) -> None:
    """Return when the coordinator returns this committed offset."""
    topics = [OffsetFetchRequestTopics(name="groups", partition_indexes=[OFFSETS_A_REQUEST - 1])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    deadline_s = time.monotonic() + TIMEOUT_S
    async with await connect(address) as connection:
        while time.monotonic() < deadline_s:
            (answer,) = (await connection.request(request, OffsetFetchResponse)).groups
            if not answer.error_code:
                found = answer.topics[0].partitions[0].committed_offset
                assert found == offset, (found, offset)
                return
            await asyncio.sleep(0.01)
    raise TimeoutError("the coordinator does not load")


# ------------------------------------------------------------------------------ members


class Member:
    """One member: joins, syncs, sends heartbeats, and rejoins when it has to."""

    def __init__(self, addresses: list[str], size: int, changed: Callable[[], None]) -> None:
        self._addresses = addresses
        self._size = size
        self._changed = changed
        self._member_id = ""
        self.generation = -1
        self.served_s = 0.0  # the time of the last successful response
        self.is_stable = False  # whether the present generation is stable

    async def run(self) -> None:
        while True:
            try:
                async with await self._coordinator() as connection:
                    while True:
                        await self._join(connection)
                        await self._beat(connection)
            except (ConnectionError, OSError):
                await asyncio.sleep(0.1)

    async def _coordinator(self) -> Connection:
        for address in self._addresses:
            try:
                async with await connect(address) as connection:
                    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["members"])
                    answer = await connection.request(find, FindCoordinatorResponse)
            except (ConnectionError, OSError):
                continue
            found = answer.coordinators[0]
            if not found.error_code:
                return await connect(f"{found.host}:{found.port}")
        raise ConnectionError("no broker has a coordinator")

    async def _join(self, connection: Connection) -> None:
        while not self.is_stable:
            joined = await connection.request(
                JoinGroupRequest(
                    group_id="members",
                    session_timeout_ms=45_000,
                    rebalance_timeout_ms=300_000,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
                ),
                JoinGroupResponse,
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            if joined.error_code:
                await self._begin_anew(joined.error_code)
                continue
            self._member_id, self.generation = joined.member_id, joined.generation_id
            parts = [
                # About the size of an assignment of ten partitions.
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=bytes(64))
                for each in joined.members
            ]
            synced = await connection.request(
                SyncGroupRequest(
                    group_id="members",
                    generation_id=self.generation,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=parts,
                ),
                SyncGroupResponse,
            )
            if synced.error_code:
                await self._begin_anew(synced.error_code)
                continue
            self._is_well()

    async def _begin_anew(self, error: int) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._member_id = ""
        elif error != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.1)
            raise ConnectionError(ErrorCode(error).name)

    async def _beat(self, connection: Connection) -> None:
        request = HeartbeatRequest(
            group_id="members", generation_id=self.generation, member_id=self._member_id
        )
        while True:
            answer = await connection.request(request, HeartbeatResponse)
            if answer.error_code:
                self.is_stable = False
                await self._begin_anew(answer.error_code)
                return
            self._is_well()
            await asyncio.sleep(0.1)

    def _is_well(self) -> None:
        self.is_stable = True
        self.served_s = time.perf_counter()
        self._changed()


async def members(target: Target, count: int, partitions: int) -> dict[str, float]:
    raw.create_topic(target.bootstrap.split(",")[0], "groups", partitions, replication=3)
    addresses = target.bootstrap.split(",")
    await until_coordinated(addresses[0], "members")
    woken = asyncio.Event()
    all_members = [Member(addresses, count, woken.set) for _ in range(count)]

    async def all_served(since_s: float) -> float:
        while True:
            await asyncio.wait_for(woken.wait(), TIMEOUT_S)
            woken.clear()
            generations = {member.generation for member in all_members}
            if len(generations) == 1 and all(
                member.is_stable and member.served_s > since_s for member in all_members
            ):
                return max(member.served_s for member in all_members) - since_s

    begun_s = time.perf_counter()
    tasks = [asyncio.create_task(member.run()) for member in all_members]
    joined_s = await all_served(begun_s)
    async with await connect(addresses[0]) as connection:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["members"])
        found = await connection.request(find, FindCoordinatorResponse)
    os.kill(target.pids()[found.coordinators[0].node_id], signal.SIGKILL)
    served_s = await all_served(time.perf_counter())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"join_s": joined_s, "served_again_s": served_s}


# ------------------------------------------------------------------------ command line


def on_a_target(
    kind: str, brokers: int, work: Callable[[Target], Any], properties: dict[str, str]
) -> Any:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        target: Target = TARGETS[kind](
            pathlib.Path(folder) / kind, brokers=brokers, properties=properties
        )
        try:
            target.start()
            return asyncio.run(work(target)), target.version()
        finally:
            target.end()


def keep(question: str, kind: str, version: str, asked: dict[str, Any], seen: Any) -> None:
    line = {
        "question": question,
        "target": kind,
        "version": version,
        **asked,
        **{name: round(value, 3) for name, value in seen.items()},
        **machine.describe(),
    }
    keep_result("groups", line)
    print(json.dumps(line))


target_option = click.option(
    "--target", "kind", type=click.Choice(list(TARGETS)), default="odradek"
)


@click.group()
def main() -> None:
    """Groups: commits, load, members."""


@main.command("commits")
@target_option
@click.option("--clients", default=16)
@click.option("--seconds", default=10.0)
def commits_command(kind: str, clients: int, seconds: float) -> None:
    seen, version = on_a_target(kind, 1, lambda t: commits(t, clients, seconds), PROPERTIES)
    keep("commits", kind, version, {"clients": clients}, seen)


@main.command("load")
@target_option
@click.option("--commits", "count", default=1_000_000)
@click.option("--keys", default=10_000)
def load_command(kind: str, count: int, keys: int) -> None:
    # Without compaction, so that every commit has to be read.
    properties = {**PROPERTIES, "log.cleaner.enable": "false"}
    seen, version = on_a_target(kind, 1, lambda t: load(t, count, keys), properties)
    keep("load", kind, version, {"commits": count, "keys": keys}, seen)


@main.command("members")
@target_option
@click.option("--members", "count", default=50)
@click.option("--partitions", default=500)
@click.option("--runs", default=1)
def members_command(kind: str, count: int, partitions: int, runs: int) -> None:
    properties = {**PROPERTIES, "offsets.topic.replication.factor": "3"}
    seen = []
    version = ""
    for _ in range(runs):
        one, version = on_a_target(kind, 3, lambda t: members(t, count, partitions), properties)
        seen.append(one)
    median = {name: statistics.median(one[name] for one in seen) for name in seen[0]}
    asked = {"members": count, "partitions": partitions, "runs": runs}
    keep("members", kind, version, asked, median)


if __name__ == "__main__":
    main()
