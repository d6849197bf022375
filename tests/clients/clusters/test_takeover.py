"""Apache Kafka 3.9 takes over the data of Odradek, and Odradek that of Apache Kafka.

Same log directories, same znodes: one broker writes, stops, and the other opens what it
left, serves it, appends to it, and everything reads as if one broker had done it all.
Our znodes are copied into a ZooKeeper for that, and back.
"""

import asyncio
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import apache
import fetch
import group_talk
import pytest
import rounds
import znodes
from harness import odradek, run_program

pytestmark = pytest.mark.jvm

CLIENTS = pathlib.Path(__file__).resolve().parents[1] / "support"


@contextlib.contextmanager
def ours(home: pathlib.Path) -> Iterator[str]:
    """A broker of ours on this directory; its address."""
    odradek("up", "--dir", str(home), "--detach")
    try:
        yield json.loads(odradek("status", "--dir", str(home), "--json"))["bootstrap"]
    finally:
        odradek("down", "--dir", str(home))


@contextlib.contextmanager
def theirs(
    home: pathlib.Path, data: pathlib.Path, nodes: znodes.Nodes
) -> Iterator[tuple[str, str]]:
    """An Apache Kafka broker on this log directory, in a cluster that these nodes describe.

    Yields its address and its ZooKeeper's.
    """
    zookeeper = apache.ZooKeeper(home / "zookeeper")
    try:
        znodes.fill_zookeeper(zookeeper.address, nodes)
        broker = apache.Broker(
            home / "broker-0", zookeeper.address, properties={"log.dirs": str(data)}
        )
        try:
            broker.wait()
            yield broker.address, zookeeper.address
        finally:
            broker.stop()
            complaints = re.findall(
                r"^\[.*\] (?:ERROR|FATAL) .*", broker.log.read_text(), re.MULTILINE
            )
            assert complaints == []
    finally:
        zookeeper.stop()


def play(asked: list[rounds.Round], bootstrap: str, folder: pathlib.Path) -> None:
    """Write and read the rounds with librdkafka; the reports must be correct."""
    file = folder / "plan.json"
    file.write_text(rounds.plan(asked))
    program = str(CLIENTS / "librdkafka" / "client.py")
    report = run_program(
        [sys.executable, program, bootstrap, "round_trips", str(file)], timeout_s=120
    )
    seen = {each["topic"]: each for each in report["rounds"]}
    for each in asked:
        assert list(rounds.problems(each, seen[each.topic])) == [], each.topic


class Groups:
    """A group with a member that stays, and one without members, over all changes of brokers."""

    def __init__(self) -> None:
        self.prefix = self.topic = self.member = ""
        self.offset = 0

    def begin(self, bootstrap: str) -> None:
        asyncio.run(self._begin(bootstrap))

    def go_on(self, bootstrap: str) -> None:
        """Check that the state is as before, and continue by one step."""
        asyncio.run(self._go_on(bootstrap))

    async def _begin(self, bootstrap: str) -> None:
        talk = await group_talk.Talk.open(bootstrap)
        await talk.prepare()
        self.prefix, self.topic = talk._prefix, talk.topic
        # A session timeout longer than the test.
        join = talk.join("live", group_instance_id="i", session_timeout_ms=1_800_000)
        self.member = (await talk.ask(join)).member_id
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        sync = talk.sync("live", 1, self.member, parts={self.member: b"its part"}, **names)
        assert bytes((await talk.ask(sync)).assignment) == b"its part"
        await self._commit(talk)
        await talk.close()

    async def _commit(self, talk: group_talk.Talk) -> None:
        self.offset += 1
        who = {"member_id": self.member, "generation_id_or_member_epoch": 1}
        here = {(self.topic, 0): self.offset}
        for request in (
            talk.commit("live", here, group_instance_id="i", **who),
            talk.commit("idle", here, metadata="Prag, zwölf"),
        ):
            answer = await talk.ask(request)
            assert not answer.topics[0].partitions[0].error_code, answer

    async def _go_on(self, bootstrap: str) -> None:
        talk = await group_talk.Talk.open(bootstrap)
        await talk.prepare()
        talk._prefix, talk.topic = self.prefix, self.topic
        beat = await talk.ask(talk.beat("live", 1, self.member, group_instance_id="i"))
        assert not beat.error_code, beat
        described = (await talk.ask(talk.describe("live"))).groups[0]
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        (member,) = described.members
        assert (member.member_id, member.group_instance_id) == (self.member, "i")
        assert bytes(member.member_metadata) == group_talk.SUBSCRIPTION
        assert bytes(member.member_assignment) == b"its part"
        for name, metadata in (("live", ""), ("idle", "Prag, zwölf")):
            fetched = (await talk.ask(talk.fetch(name, None, 9))).groups[0]
            (part,) = fetched.topics[0].partitions
            assert (part.committed_offset, part.metadata) == (self.offset, metadata)
        await self._commit(talk)
        await talk.close()


def written() -> list[rounds.Round]:
    """Rounds of each codec, with and without producer state."""
    return [each for each in rounds.all_rounds("takeover") if each.acks == "all"]


def must_be_sound(data: pathlib.Path) -> None:
    """Kafka's own reader finds nothing to complain of in these segments and indexes."""
    main = "kafka.tools.DumpLogSegments"
    for option, pattern in (("--deep-iteration", "*/*.log"), ("--index-sanity-check", "*/*.index")):
        files = ",".join(map(str, sorted(data.glob(pattern))))
        command = fetch.java("3.9", main, option, "--files", files)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert "isvalid: false" not in output
        assert not re.search(r"Exception|mismatch|fail", output), output


def test_apache_kafka_takes_over_our_data_and_we_take_it_over_again(
    tmp_path: pathlib.Path,
) -> None:
    home = tmp_path / "ours"
    data = home / "broker-0" / "data"
    store = znodes.our_store
    first = written()
    groups = Groups()
    with ours(home) as bootstrap:
        play(first, bootstrap, tmp_path)
        groups.begin(bootstrap)
    nodes = asyncio.run(znodes.read_ours(store(home / "broker-0" / "server.properties")))
    second = rounds.continued(first)
    with theirs(tmp_path / "theirs", data, nodes) as (address, zookeeper):
        play(second, address, tmp_path)
        groups.go_on(address)
        nodes = znodes.read_zookeeper(zookeeper)
    must_be_sound(data)
    asyncio.run(znodes.replace_ours(store(home / "broker-0" / "server.properties"), nodes))
    with ours(home) as bootstrap:
        play(rounds.continued(second), bootstrap, tmp_path)
        groups.go_on(bootstrap)
    must_be_sound(data)


def test_we_take_over_apache_kafkas_data(tmp_path: pathlib.Path) -> None:
    left = tmp_path / "left"
    first = written()
    groups = Groups()
    with theirs(tmp_path / "theirs", left, {}) as (address, zookeeper):
        play(first, address, tmp_path)
        groups.begin(address)
        nodes = znodes.read_zookeeper(zookeeper)
    home = tmp_path / "ours"
    with ours(home):
        pass  # it has now written its options; what it stored is replaced
    data = home / "broker-0" / "data"
    shutil.rmtree(data)
    shutil.move(left, data)
    store = znodes.our_store(home / "broker-0" / "server.properties")
    asyncio.run(znodes.replace_ours(store, nodes))
    with ours(home) as bootstrap:
        play(rounds.continued(first), bootstrap, tmp_path)
        groups.go_on(bootstrap)
    must_be_sound(data)
