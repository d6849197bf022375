"""`kafka-consumer-groups` of Apache Kafka 3.9 and 4.x lists, describes, resets and deletes."""

import asyncio
import itertools
import re
import subprocess
import time

import fetch
import group_talk
import pytest
from harness import Cluster

pytestmark = pytest.mark.jvm

MAIN = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.mark.parametrize("line", fetch.KAFKA_LINES)
def test_groups_are_listed_described_reset_and_deleted(cluster: Cluster, line: str) -> None:
    asyncio.run(Story(cluster.bootstrap, line).play())


class Story:
    """A group with a member, one without, and an administrator."""

    def __init__(self, bootstrap: str, line: str) -> None:
        self.bootstrap = bootstrap
        self.line = line

    async def tool(self, *arguments: str) -> list[list[str]]:
        """Its output, split into words."""

        def run() -> subprocess.CompletedProcess[str]:
            command = fetch.java(self.line, MAIN, "--bootstrap-server", self.bootstrap, *arguments)
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

        beating = asyncio.create_task(self.beat())
        done = await asyncio.to_thread(run)
        beating.cancel()
        printed = f"{done.stdout}\n{done.stderr}"
        assert "at org.apache.kafka" not in printed, printed
        return [line.split() for line in printed.splitlines() if line.strip()]

    async def beat(self) -> None:
        while True:
            beat = self.talk.beat("live", 1, self.member)
            answer = await self.talk.ask(beat)
            assert not answer.error_code, answer
            await asyncio.sleep(1)

    async def play(self) -> None:
        talk = self.talk = await group_talk.Talk.open(self.bootstrap)
        await talk.prepare()
        joined = await talk.ask(
            talk.join("live", group_instance_id="i1", session_timeout_ms=60_000)
        )
        self.member = joined.member_id
        # Version 0 of an assignment: one topic, two partitions, no user data.
        topic = talk.topic.encode()
        part = b"".join(
            (b"\0\0\0\0\0\1", len(topic).to_bytes(2, "big"), topic, b"\0\0\0\2\0\0\0\0\0\0\0\1",
             b"\xff\xff\xff\xff")
        )  # fmt: skip
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        await talk.ask(talk.sync("live", 1, self.member, parts={self.member: part}, **names))
        who = {"member_id": self.member, "generation_id_or_member_epoch": 1}
        await talk.ask(talk.commit("live", {(talk.topic, 0): 0}, **who))
        await talk.ask(talk.commit("idle", {(talk.topic, 0): 0, (talk.topic, 1): 0}))
        try:
            await self.listed()
            await self.described()
            await self.reset()
            await self.deleted()
        finally:
            await talk.close()

    async def listed(self) -> None:
        live, idle = self.talk.group("live"), self.talk.group("idle")
        assert {live, idle} <= {words[0] for words in await self.tool("--list")}
        states = {words[0]: words for words in await self.tool("--list", "--state")}
        assert states[live][-1] == "Stable"
        assert states[idle][-1] == "Empty"
        stable = {words[0] for words in await self.tool("--list", "--state", "stable")}
        assert live in stable
        assert idle not in stable

    async def described(self) -> None:
        live, topic = self.talk.group("live"), self.talk.topic
        rows = await self.tool("--describe", "--group", live)
        (row,) = (row for row in rows if row[:3] == [live, topic, "0"])
        assert self.member in row
        assert "/127.0.0.1" in row
        (row,) = await self.rows_of(live, "--state")
        assert "Stable" in row
        assert "range" in row
        (row,) = await self.rows_of(live, "--members", "--verbose")
        assert {self.member, "i1"} <= set(row)
        assert re.search(r"[(:]0,1", " ".join(row))
        printed = await self.tool("--describe", "--group", self.talk.group("nobody"))
        assert "does not exist" in " ".join(printed[0])

    async def rows_of(self, group: str, *options: str) -> list[list[str]]:
        rows = await self.tool("--describe", "--group", group, *options)
        return [row for row in rows if row[0] == group]

    async def reset(self) -> None:
        idle, live, topic = self.talk.group("idle"), self.talk.group("live"), self.talk.topic
        options = ("--reset-offsets", "--topic", topic, "--to-offset", "0", "--execute")
        rows = await self.tool("--group", idle, *options)
        assert [row for row in rows if topic in row] != []
        printed = await self.tool("--group", live, *options)
        assert "inactive" in " ".join(word for words in printed for word in words)
        rows = await self.tool(
            "--group", f"{idle}-{time.time_ns():x}", "--reset-offsets", "--topic", topic,
            "--to-latest", "--execute",
        )  # fmt: skip
        assert [row for row in rows if topic in row] != []

    async def deleted(self) -> None:
        idle, live, topic = self.talk.group("idle"), self.talk.group("live"), self.talk.topic
        rows = await self.tool("--delete-offsets", "--group", idle, "--topic", f"{topic}:0")
        # Kafka 3.9 prints the whole table into one line.
        assert f"{topic} 0 Successful" in " ".join(itertools.chain(*rows))
        printed = await self.tool("--delete-offsets", "--group", live, "--topic", f"{topic}:0")
        assert printed
        printed = await self.tool("--delete", "--group", live, "--group", idle)
        text = " ".join(word for words in printed for word in words)
        assert "not empty" in text
        listed = {words[0] for words in await self.tool("--list")}
        assert idle not in listed
        assert live in listed
