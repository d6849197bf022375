"""Valid and invalid requests to a group coordinator, and its responses.

One sequence of requests, in all versions of all APIs of groups, recorded line by line; and after
that the lowest versions of other APIs. Names are
random and shown as `T` (topic) and `g-...`; member ids are numbered in their order.
`group_talk.txt` was recorded from Apache Kafka 3.9.2.
"""

import asyncio
import random
import re
from typing import Any, Self

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import APIS, response_class
from odradek.wire.messages import (
    alter_replica_log_dirs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_delegation_token,
    create_topics,
    delete_groups,
    delete_topics,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# The version, one topic of one letter, no user data.
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
WARMING_UP = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class Talk:
    """One sequence of requests to one broker."""

    def __init__(self, connection: Connection, host: str, port: int) -> None:
        self.lines: list[str] = []
        self._connection = connection
        self._address = (host, port)
        self._prefix = f"x{random.getrandbits(40):010x}"
        self._uuids: dict[str, int] = {}
        self.topic = f"{self._prefix}T"

    @classmethod
    async def open(cls, bootstrap: str) -> Self:
        host, _, port = bootstrap.rpartition(":")
        connection = await Connection.open(host, int(port), client_id="talk")
        return cls(connection, host, int(port))

    def group(self, name: str) -> str:
        return f"{self._prefix}g-{name}"

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Send a request and record nothing."""
        answer = response_class(request.SCHEMA.api_key)
        return await self._connection.request(request, answer, version_max=version)

    async def say(self, request: Any, version: int | None = None, *, note: str = "") -> Any:
        """Send a request and record it with its response."""
        api = APIS[request.SCHEMA.api_key]
        version = api.last if version is None else version
        answer = await self.ask(request, version)
        head = f"{api.name} v{version}{' ' + note if note else ''}"
        self.lines.append(f"{head}: {self.text(answer)}")
        return answer

    def text(self, part: Any) -> str:
        text = _text(part).replace(self._prefix, "")
        return UUID.sub(lambda m: f"#{self._uuids.setdefault(m[0], len(self._uuids) + 1)}", text)

    async def another(self) -> "Talk":
        """Another connection, which records into the same lines."""
        other = Talk(await Connection.open(*self._address, client_id="other"), *self._address)
        other.lines, other._prefix, other._uuids = self.lines, self._prefix, self._uuids
        other.topic = self.topic
        return other

    async def close(self) -> None:
        await self._connection.close()

    async def prepare(self) -> None:
        """Create a topic, and wait for a coordinator."""
        topic = CreatableTopic(name=self.topic, num_partitions=2, replication_factor=1)
        await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        for _ in range(200):
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group("a")])
            found = await self.ask(find)
            if found.coordinators[0].error_code not in WARMING_UP:
                listed = await self.ask(list_groups.ListGroupsRequest())
                committed = await self.ask(self.commit("warm", {(self.topic, 0): 1}))
                codes = {listed.error_code, committed.topics[0].partitions[0].error_code}
                if not codes & WARMING_UP and not codes & {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                    return
            await asyncio.sleep(0.1)
        raise AssertionError("no coordinator")

    # ---------------------------------------------------------------------- requests

    def join(self, group: str, *, protocols=("range",), **fields: Any) -> Any:
        return join_group.JoinGroupRequest(
            group_id=self.group(group) if group else "",
            protocols=[
                join_group.JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION)
                for name in protocols
            ],
            **{
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                "protocol_type": "consumer",
                **fields,
            },
        )

    def sync(self, group: str, generation: int, member_id: str, **fields: Any) -> Any:
        parts = fields.pop("parts", {})
        return sync_group.SyncGroupRequest(
            group_id=self.group(group) if group else "",
            generation_id=generation,
            member_id=member_id,
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id=name, assignment=part)
                for name, part in parts.items()
            ],
            **fields,
        )

    def beat(self, group: str, generation: int, member_id: str, **fields: Any) -> Any:
        return heartbeat.HeartbeatRequest(
            group_id=self.group(group) if group else "",
            generation_id=generation,
            member_id=member_id,
            **fields,
        )

    def leave(self, group: str, *members: Any) -> Any:
        return leave_group.LeaveGroupRequest(
            group_id=self.group(group) if group else "",
            members=[
                leave_group.MemberIdentity(member_id=member, group_instance_id=instance)
                for member, instance in members
            ],
        )

    def commit(self, group: str | None, offsets: dict[Any, int], **fields: Any) -> Any:
        metadata = fields.pop("metadata", "")
        topics: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            part = offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, []).append(part)
        return offset_commit.OffsetCommitRequest(
            group_id="" if group is None else self.group(group),
            topics=[
                offset_commit.OffsetCommitRequestTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
            **{"generation_id_or_member_epoch": -1, **fields},
        )

    def fetch(self, group: str, asked: Any, version: int, **fields: Any) -> Any:
        if version >= 8:
            topics = asked and [
                offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=parts)
                for name, parts in asked.items()
            ]
            one = offset_fetch.OffsetFetchRequestGroup(group_id=self.group(group), topics=topics)
            return offset_fetch.OffsetFetchRequest(groups=[one], **fields)
        topics = asked and [
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=parts)
            for name, parts in asked.items()
        ]
        return offset_fetch.OffsetFetchRequest(group_id=self.group(group), topics=topics, **fields)

    def delete_offsets(self, group: str, *places: tuple[str, int]) -> Any:
        topics: dict[str, list[Any]] = {}
        for topic, partition in places:
            part = offset_delete.OffsetDeleteRequestPartition(partition_index=partition)
            topics.setdefault(topic, []).append(part)
        return offset_delete.OffsetDeleteRequest(
            group_id=self.group(group),
            topics=[
                offset_delete.OffsetDeleteRequestTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )

    def describe(self, *names: str, **fields: Any) -> Any:
        groups = [self.group(name) if name else "" for name in names]
        return describe_groups.DescribeGroupsRequest(groups=groups, **fields)

    def delete(self, *names: str) -> Any:
        groups = [self.group(name) if name else "" for name in names]
        return delete_groups.DeleteGroupsRequest(groups_names=groups)


def _text(part: Any) -> str:
    if isinstance(part, list):
        return "[" + ", ".join(sorted(map(_text, part))) + "]"
    if isinstance(part, memoryview):
        return repr(bytes(part))
    if not hasattr(part, "SCHEMA"):
        return repr(part)
    words = []
    for field in part.SCHEMA.fields:
        value = getattr(part, field.name)
        if field.name == "error_code":
            words.append(ErrorCode(value).name)
        elif field.name != "throttle_time_ms" and value != field.default and value not in ([], ""):
            words.append(f"{field.name}={_text(value)}")
        elif value is None and field.default is not None:
            words.append(f"{field.name}=None")
    return "(" + " ".join(words) + ")"


def versions(key: int) -> range:
    return range(APIS[key].first, APIS[key].last + 1)


# ------------------------------------------------------------------------------ the talk


async def committed_offsets(talk: Talk) -> None:
    here = {(talk.topic, 0): 5, (talk.topic, 1): 6}
    for version in versions(8):
        await talk.say(talk.commit(f"p{version}", here, metadata="m"), version)
    await talk.say(talk.commit("p9", {(talk.topic, 2): 1, ("nowhere", 0): 2, **here}))
    await talk.say(talk.commit("p9", {(talk.topic, 0): 7}, metadata="é" * 4096), note="longest")
    await talk.say(talk.commit("p9", {(talk.topic, 0): 8}, metadata="x" * 4097), note="too long")
    await talk.say(talk.commit("p9", {(talk.topic, 0): -5}), note="negative")
    await talk.say(talk.commit("p8", {(talk.topic, 0): 9}, metadata=None), note="no metadata")
    await talk.say(talk.commit("p2", here, retention_time_ms=60_000), 4, note="retention")
    await talk.say(talk.commit(None, {(talk.topic, 0): 1}), note="no group")
    await talk.say(talk.commit("p9", {}), note="nothing")
    await talk.say(
        talk.commit("p9", here, generation_id_or_member_epoch=1), note="generation of an empty"
    )
    await talk.say(
        talk.commit("unknown", here, generation_id_or_member_epoch=1), note="of an unknown"
    )
    await talk.say(talk.commit("p9", here, member_id="m"), note="member of an empty")
    await talk.say(talk.commit("p9", here, group_instance_id="i"), note="instance of an empty")
    for version in versions(9):
        asked = {talk.topic: [0, 1, 7], "nowhere": [0]}
        await talk.say(talk.fetch("p8", asked, version), version)
        await talk.say(talk.fetch("unknown", asked, version), version, note="unknown group")
        if version >= 2:
            await talk.say(talk.fetch("p8", None, version), version, note="all")
        if version >= 7:
            await talk.say(talk.fetch("p8", asked, version, require_stable=True), version)
    await talk.say(talk.delete_offsets("p8", (talk.topic, 0), (talk.topic, 9), ("nowhere", 0)))
    await talk.say(talk.delete_offsets("unknown", (talk.topic, 0)))
    await talk.say(talk.delete_offsets("unknown", ("nowhere", 0)))
    await talk.say(talk.fetch("p8", None, 9))
    for version in versions(42):
        await talk.say(talk.delete(f"p{version + 2}", "unknown", ""), version)
    await talk.say(talk.fetch("p2", None, 9), note="deleted")


async def membership(talk: Talk) -> None:
    for version in versions(11):
        name = f"m{version}"
        first = await talk.say(talk.join(name), version)
        if first.error_code:
            joined = await talk.say(talk.join(name, member_id=first.member_id), version)
        else:
            joined = first
        member = joined.member_id
        await talk.say(talk.describe(name), min(version, 5), note="completing")
        await talk.say(
            talk.commit(name, {(talk.topic, 0): 1}, member_id=member,
                        generation_id_or_member_epoch=1), note="completing",
        )  # fmt: skip
        await talk.say(talk.join(name, member_id=member), version, note="again")
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        sync = talk.sync(name, 1, member, parts={member: b"part"}, **names)
        await talk.say(sync, min(version, 5))
        await talk.say(talk.describe(name), min(version, 5), note="stable")
        await talk.say(talk.beat(name, 1, member), min(version, 4))
        await talk.say(talk.delete(name), note="with a member")
        if version >= 3:
            await talk.say(talk.leave(name, (member, None), ("nobody", None)), min(version, 5))
        else:
            left = leave_group.LeaveGroupRequest(group_id=talk.group(name), member_id=member)
            await talk.say(left, version)
        await talk.say(talk.describe(name, include_authorized_operations=version >= 3),
                       min(version, 5), note="empty")  # fmt: skip


async def refusals(talk: Talk) -> None:
    for version in (0, 9):
        await talk.say(talk.join(""), version, note="no group")
        await talk.say(talk.join("r", session_timeout_ms=5_999), version, note="too short")
        await talk.say(talk.join("r", session_timeout_ms=1_800_001), version, note="too long")
        await talk.say(talk.join("r", member_id="m"), version, note="unknown group")
        await talk.say(talk.join("r", protocols=()), version, note="supports no protocol")
        await talk.say(talk.join("r", protocol_type=""), version, note="is nothing")
    for version in (0, 5):
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        await talk.say(talk.sync("", 1, "m", **names), version, note="no group")
        await talk.say(talk.sync("nobody", 1, "m", **names), version, note="unknown group")
    await talk.say(talk.sync("nobody", 1, "m", protocol_type="consumer"), note="no name")
    await talk.say(talk.beat("", 1, "m"), note="no group")
    await talk.say(talk.beat("nobody", 1, "m"), note="unknown group")
    await talk.say(talk.leave("", ("m", None)), note="no group")
    await talk.say(talk.leave("nobody", ("m", None), ("", "i")), note="unknown group")
    await talk.say(talk.leave("nobody"), note="nobody")
    await talk.say(talk.describe("nobody", ""))
    await talk.say(talk.join("r2", group_instance_id=""), note="instance without a name")
    await talk.say(talk.join("r3", group_instance_id="i" * 300, rebalance_timeout_ms=0))
    await talk.say(talk.join("r4", group_instance_id="a b/c"), note="odd instance")


async def static_members(talk: Talk) -> None:
    joined = await talk.say(talk.join("s", group_instance_id="i"))
    member = joined.member_id
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    await talk.say(talk.sync("s", 1, member, parts={member: b"x"}, group_instance_id="i", **names))
    await talk.say(talk.sync("s", 1, member, protocol_type="consumer", protocol_name="sticky"))
    await talk.say(talk.sync("s", 1, member, protocol_type="connect", protocol_name="range"))
    await talk.say(talk.sync("s", 2, member, **names))
    again = await talk.say(talk.join("s", group_instance_id="i"), note="is back")
    await talk.say(talk.join("s", group_instance_id="i"), 8, note="is back")
    await talk.say(talk.beat("s", 1, again.member_id, group_instance_id="i"), note="old")
    await talk.say(talk.beat("s", 1, again.member_id), note="old without a name")
    await talk.say(talk.join("s", group_instance_id="i", member_id=member), note="old")
    await talk.say(talk.join("s", group_instance_id="j", member_id=member), note="another")
    await talk.say(talk.sync("s", 1, member, group_instance_id="i", **names), note="old")
    await talk.say(
        talk.commit("s", {(talk.topic, 0): 1}, member_id=member, group_instance_id="i",
                    generation_id_or_member_epoch=1), note="old",
    )  # fmt: skip
    await talk.say(talk.commit("s", {(talk.topic, 0): 1}), note="from outside")
    await talk.say(talk.describe("s"))
    await talk.say(talk.join("s", protocols=("sticky",)), note="supports another")
    await talk.say(talk.join("s", protocol_type="connect"), note="is another")
    await talk.say(talk.leave("s", (member, "i"), ("", "j"), ("", None)), note="not they")
    await talk.say(talk.leave("s", ("", "i")), note="by instance")
    await talk.say(talk.describe("s"))


async def two_members(talk: Talk) -> None:
    other = await talk.another()
    first = (await talk.say(talk.join("t"), 3)).member_id
    await talk.say(talk.sync("t", 1, first, parts={first: b"all"}), 3)
    coming = asyncio.create_task(other.ask(other.join("t", session_timeout_ms=7_000), 3))
    for _ in range(1_000):
        if (await talk.ask(talk.beat("t", 1, first))).error_code:
            break
        await asyncio.sleep(0.01)
    await talk.say(talk.beat("t", 1, first), note="preparing")
    await talk.say(talk.describe("t"), note="preparing")
    await talk.say(talk.sync("t", 1, first), 3, note="preparing")
    offsets = {(talk.topic, 0): 4}
    who = {"member_id": first, "generation_id_or_member_epoch": 1}
    await talk.say(talk.commit("t", offsets, **who), note="preparing")
    await talk.say(talk.join("t", member_id=first), 9)
    second = await coming
    talk.lines.append(f"the other: {talk.text(second)}")
    await talk.say(talk.commit("t", offsets, **who), note="of generation 1")
    waiting = asyncio.create_task(other.ask(other.sync("t", 2, second.member_id), 3))
    await talk.say(talk.sync("t", 2, first, parts={second.member_id: b"his", "who": b"?"}), 3)
    talk.lines.append(f"the other: {talk.text(await waiting)}")
    await talk.say(talk.join("t", member_id=second.member_id), 9, note="with nothing new")
    await talk.say(talk.describe("t"))
    await talk.say(talk.delete_offsets("t", (talk.topic, 0)), note="not subscribed")
    await talk.say(talk.fetch("t", None, 9))
    await talk.say(talk.leave("t", (first, None), (second.member_id, None)))
    await talk.say(talk.delete("t"))
    await talk.say(talk.describe("t"))
    await other.close()


async def lists(talk: Talk) -> None:
    joined = await talk.ask(talk.join("l", group_instance_id="i"))
    await talk.ask(
        talk.sync("l", 1, joined.member_id, protocol_type="consumer", protocol_name="range")
    )
    await talk.ask(talk.commit("simple", {(talk.topic, 0): 1}))
    filters = (
        {}, {"states_filter": ["Stable"]}, {"states_filter": ["sTaBle", "Dead"]},
        {"states_filter": ["nonsense"]}, {"types_filter": ["classic"]},
        {"types_filter": ["CLASSIC", "consumer"]}, {"types_filter": ["consumer"]},
        {"types_filter": ["nonsense"]},
    )  # fmt: skip
    for version in versions(16):
        for each in filters:
            if (each and version < 4) or ("types_filter" in each and version < 5):
                continue
            answer = await talk.ask(list_groups.ListGroupsRequest(**each), version)
            mine = {talk.group("l"), talk.group("simple")}
            answer.groups = [group for group in answer.groups if group.group_id in mine]
            talk.lines.append(f"ListGroups v{version} {each}: {talk.text(answer)}")


async def topics_in_low_versions(talk: Talk) -> None:
    made = create_topics.CreatableTopic(
        name=f"{talk.topic}2", num_partitions=1, replication_factor=1
    )
    wrong = create_topics.CreatableTopic(name="b@d", num_partitions=1, replication_factor=1)
    for version, only in ((1, True), (0, False), (0, False), (1, False)):
        request = create_topics.CreateTopicsRequest(
            topics=[made, wrong], timeout_ms=10_000, validate_only=only
        )
        await talk.say(request, version)
    for _ in range(2):
        names = [f"{talk.topic}2"]
        request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
        await talk.say(request, 0)


async def offsets_in_low_versions(talk: Talk) -> None:
    for when in (LATEST, EARLIEST, MAX_TIMESTAMP, 0, 1 << 62):
        for count in (-1, 0, 1, 10):
            await talk.say(_offsets(talk.topic, 0, when, count), 0, note=f"{when} {count}")
    await talk.say(_offsets(talk.topic, 9, LATEST, 1), 0)
    await talk.say(_offsets("nowhere", 0, LATEST, 1), 0)
    for version in (0, 1):
        for epoch in (0, 5):
            part = offset_for_leader_epoch.OffsetForLeaderPartition(leader_epoch=epoch)
            topic = offset_for_leader_epoch.OffsetForLeaderTopic(
                topic=talk.topic, partitions=[part]
            )
            request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
            await talk.say(request, version)


def _offsets(topic: str, index: int, when: int, count: int) -> Any:
    part = list_offsets.ListOffsetsPartition(
        partition_index=index, timestamp=when, max_num_offsets=count
    )
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=[part])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[asked])


async def refused_in_low_versions(talk: Talk) -> None:
    await talk.say(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id="x"), 0)
    groups = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["x", "y"])
    await talk.say(groups, 0)
    moved = alter_replica_log_dirs.AlterReplicaLogDirTopic(name=talk.topic, partitions=[0])
    to = alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[moved])
    await talk.say(alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[to]), 0)
    token = create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    await talk.say(token, 0)


CHAPTERS = (
    committed_offsets, membership, refusals, static_members, two_members, lists,
    topics_in_low_versions, offsets_in_low_versions, refused_in_low_versions,
)  # fmt: skip


async def everything(bootstrap: str) -> list[str]:
    """The whole recording, line by line."""
    talk = await Talk.open(bootstrap)
    await talk.prepare()
    for chapter in CHAPTERS:
        talk.lines.append(f"# {chapter.__name__}")
        await chapter(talk)
    await talk.close()
    return talk.lines
