"""A simulated group: members that join, leave, pause and commit, and what must hold of it.

Members join one group on a topic, get partitions from the group's leader, continue from the
committed offset and commit the next number, over and over. Their coordinator is killed, cut off and
moved. Each member has a connection of its own, loses responses and sends requests again.

    one owner         no two members own the same partition in the same generation
    generations fence a commit is refused if its generation is older than one that a member got
                      before the commit was sent
    nothing goes back a member whose commit succeeds had fetched at least the offset that was
                      committed before its fetch; so had the reader at the end

A member that was cut off may get old committed offsets from a coordinator that has not resigned
yet: they count only when a commit of its generation is accepted.
"""

import asyncio
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Final

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.transactions import PARTITIONS, TOPIC, make_topic
from odradek.sim.traits import Trait
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
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
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

GROUP: Final = "group"
MEMBERS: Final = 4
GROUPS: Final = 0  # the kind of coordinator
_SESSION_MS: Final = 3_000
_REBALANCE_MS: Final = 4_000
# By then all members have timed out, and the empty group is written.
GROUP_OVER_S: Final = 3 * (_SESSION_MS + _REBALANCE_MS) / 1000
_NUMBER: Final = Struct(">i")
MEMBER_REMOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a broker that has just started
    }
)


def group_properties(brokers: int) -> dict[str, str]:
    """The broker options of a run with groups."""
    return {
        # With one in-sync replica, a power loss would lose acknowledged offsets.
        "min.insync.replicas": str(min(2, brokers)),
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "group.initial.rebalance.delay.ms": "200",
        "group.min.session.timeout.ms": "1000",
    }


@dataclass(slots=True)
class GroupBook:
    """The generations, assignments and committed offsets of one group, as its members saw them."""

    workload: "Workload"
    group: str = GROUP
    confirmed: dict[int, int] = field(
        default_factory=dict
    )  # the largest committed offset, by partition
    newest_given: int = -1  # generation
    reused: int = -1  # up to here another group of this name may have had the same generations
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    commits: int = 0
    generations: int = 0
    late: "Late" = field(init=False)

    def __post_init__(self) -> None:
        self.late = Late(self, self.workload.client(f"late-{self.group}"))

    def given(
        self, member_id: str, generation: int, partitions: list[int], *, may_be_former: bool
    ) -> None:
        """A member got its assignment.

        `may_be_former` says whether the group could be deleted when the member sent JoinGroup.
        """
        if self.may_be_deleted:
            self.owners.clear()
            self.reused = max(self.reused, self.newest_given)
            self.newest_given = min(self.newest_given, generation)
        elif may_be_former:
            # The member may report late, after its session: its generation can be that of a group
            # that was deleted, and the group of the first commit began at generation 1 again.
            return
        if generation > self.newest_given:
            self.newest_given = generation
            self.generations += 1
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            if owner != member_id and generation > self.reused:
                self.workload.violated(
                    f"{owner} and {member_id} have partition {partition} in generation {generation}"
                )

    @property
    def may_be_deleted(self) -> bool:
        """Whether the coordinator may delete the group, and with it the generation: it has no
        committed offsets, and may have no members.
        """
        return Trait.REGISTERS in self.workload.traits and not self.confirmed

    def committed(self, member: str, place: "Place", newest_given: int, generation: int) -> None:
        """A commit was accepted; `newest_given` is the newest generation when it was sent."""
        self.commits += 1
        self.workload.succeeded()
        if generation < newest_given:
            self.workload.violated(
                f"{member} commits in generation {generation}, after {newest_given} was given"
            )
        if place.fetched < place.floor:
            self.workload.violated(
                f"{member} fetched {place.fetched} as committed offset of partition "
                f"{place.partition} in generation {generation}; {place.floor} was committed before"
            )
        known = self.confirmed.get(place.partition, -1)
        self.confirmed[place.partition] = max(known, place.offset)


@dataclass(slots=True)
class Place:
    """A partition that a member owns: the committed offset that it fetched, and the next one."""

    partition: int
    fetched: int
    floor: int  # the committed offset when it was fetched
    offset: int


class Late:
    """Copies of requests that arrive long after the response, as a delayed retry does.

    Within its generation a coordinator must accept a copy of a commit, although it moves the
    committed offset back. So the copy is sent only after a member got a later generation.
    """

    def __init__(self, book: GroupBook, client: Client) -> None:
        self._book = book
        self._client = client
        self._random = client.random

    def again(self, request: Message, answer: type[Message], share: float) -> None:
        """Send some of the requests once more; the responses are dropped."""
        if self._random.random() < share:
            self._client.run(self._send(copy(request), answer))

    def commit_again(self, request: OffsetCommitRequest) -> None:
        """Send some of the commits once more, after their generation has ended."""
        if self._random.random() < 0.1:
            self._client.run(self._commit(request))

    async def _send(self, request: Message, answer: type[Message]) -> None:
        await asyncio.sleep(self._random.uniform(0.05, 3.0))
        with suppress(*TROUBLE):
            connection = await GroupMember.coordinator(self._client)
            self._book.workload.happened["requests of a group, once more"] += 1
            await connection.request(request, answer)

    async def _commit(self, request: OffsetCommitRequest) -> None:
        generation = request.generation_id_or_member_epoch
        for _ in range(100):
            await asyncio.sleep(self._random.uniform(0.05, 0.2))
            if self._book.newest_given > generation or self._book.workload.is_over:
                break
        if self._book.newest_given <= generation:
            return
        try:
            connection = await GroupMember.coordinator(self._client)
            answer = await connection.request(request, OffsetCommitResponse)
        except TROUBLE:
            return
        self._book.workload.happened["commits of an older generation"] += 1
        if not answer.topics[0].partitions[0].error_code:
            self._book.workload.violated(
                f"a commit of generation {generation} was accepted; "
                f"{self._book.newest_given} was given before it was sent"
            )


class RejoinError(Exception):
    """The member has to send JoinGroup again."""


class GroupMember:
    """One member of the classic protocol, static or dynamic."""

    def __init__(self, book: GroupBook, client: Client, name: str) -> None:
        traits = book.workload.traits
        is_static = Trait.STATIC in traits and client.random.random() < 0.6
        self.instance_id = f"static-{name}" if is_static else None
        self._late = book.late if Trait.LATE in traits else None
        self._book = book
        self._workload = book.workload
        self._client = client
        self._random = client.random
        self._name = name
        self._member_id = ""
        self._generation = -1

    async def run(self) -> None:
        """Join, consume and commit until the workload ends."""
        while not self._workload.is_over:
            try:
                connection = await self.coordinator(self._client)
                places = await self.join(connection)
                await self._consume(connection, places)
            except RejoinError:
                await self._client.pause()
            except TROUBLE:
                self._workload.happened["answers lost"] += 1
                await self._client.begin_anew()

    @staticmethod
    async def coordinator(client: Client, group: str = GROUP) -> Connection:
        """A connection to a group's coordinator, which is looked up again for each call."""
        cluster = await client.cluster()
        cluster.drop_coordinator(GROUPS, group)
        return await cluster.coordinator(GROUPS, group)

    def removed(self) -> None:
        """The coordinator has removed this member: it joins with a new member id."""
        self._workload.happened["members removed"] += 1
        self._member_id = ""

    async def _check(self, what: str, code: int) -> None:
        """Raise `RejoinError` after any error; one that no member expects is a violation."""
        error = ErrorCode(code)
        if error is ErrorCode.NONE:
            return
        if error in MEMBER_REMOVED:
            self.removed()
        elif error in RETRIED:
            await self._client.pause()
        elif error is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._workload.unexpected(f"{what}: {error.name}")
        raise RejoinError

    @property
    def member_id(self) -> str:
        """The member id; empty before JoinGroup and after the member was removed."""
        return self._member_id

    @property
    def generation(self) -> int:
        """The generation of the last JoinGroup response."""
        return self._generation

    async def join(self, connection: Connection) -> list[Place]:
        """Join and sync. Returns the assigned partitions with their committed offsets.

        Raises:
            RejoinError: the member has to join again.
            OdradekError, ConnectionError: the coordinator did not answer.
        """
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="simulated",
            protocols=[protocol],
        )
        may_be_former = self._book.may_be_deleted
        joined = await connection.request(request, JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            joined = await connection.request(request, JoinGroupResponse)
        await self._check("JoinGroup", joined.error_code)
        if self._late is not None:
            self._late.again(request, JoinGroupResponse, 0.03)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        ids = sorted(member.member_id for member in joined.members)
        parts = {
            member_id: [p for p in range(PARTITIONS) if ids[p % len(ids)] == member_id]
            for member_id in ids
        }
        synced = await connection.request(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self.instance_id,
                protocol_type="simulated",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=member_id, assignment=b"".join(map(_NUMBER.pack, partitions))
                    )
                    for member_id, partitions in parts.items()
                ],
            ),
            SyncGroupResponse,
        )
        await self._check("SyncGroup", synced.error_code)
        mine = [number for (number,) in _NUMBER.iter_unpack(synced.assignment)]
        member = self.instance_id or self._member_id
        self._book.given(member, self._generation, mine, may_be_former=may_be_former)
        floors = {partition: self._book.confirmed.get(partition, -1) for partition in mine}
        offsets = await self.committed_offsets(connection, mine)
        if offsets is None:
            self._workload.happened["offsets not stable"] += 1
            raise RejoinError
        return [Place(p, offsets[p], floors[p], offsets[p]) for p in mine]

    @staticmethod
    async def committed_offsets(
        connection: Connection, partitions: list[int], group: str = GROUP
    ) -> dict[int, int] | None:
        """Committed offsets by partition; None after an error, such as UNSTABLE_OFFSET_COMMIT."""
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)]
        asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        (answer,) = (await connection.request(request, OffsetFetchResponse)).groups
        parts = [part for topic in answer.topics for part in topic.partitions]
        if answer.error_code or any(part.error_code for part in parts):
            return None
        return {part.partition_index: part.committed_offset for part in parts}

    async def _consume(self, connection: Connection, places: list[Place]) -> None:
        while not self._workload.is_over:
            await asyncio.sleep(self._random.uniform(0.05, 0.4))
            chance = self._random.random()
            if chance < 0.01:
                self._workload.happened["members paused"] += 1
                await asyncio.sleep(_SESSION_MS / 1000 * self._random.uniform(0.8, 2))
            elif chance < 0.02:
                await self.leave(connection)
            elif chance < 0.03 and self.instance_id is not None:
                self._workload.happened["static members restarted"] += 1
                self._member_id = ""
                raise RejoinError
            elif chance < 0.4 or not places:
                await self.beat(connection)
            else:
                await self._commit(connection, self._random.choice(places))

    async def beat(self, connection: Connection) -> None:
        """Send a heartbeat.

        Raises:
            RejoinError: the group rebalances, or the coordinator has removed the member.
            OdradekError, ConnectionError: the coordinator did not answer.
        """
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        answer = await connection.request(request, HeartbeatResponse)
        await self._check("Heartbeat", answer.error_code)

    async def leave(self, connection: Connection) -> None:
        """Leave the group.

        Raises:
            RejoinError: always; the member may join again.
            OdradekError, ConnectionError: the coordinator did not answer.
        """
        member = MemberIdentity(member_id=self._member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[member])
        await connection.request(request, LeaveGroupResponse)
        self._member_id = ""
        raise RejoinError

    async def _commit(self, connection: Connection, place: Place) -> None:
        place.offset += 1
        newest_given = self._book.newest_given
        part = OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=place.offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )
        answer = await connection.request(request, OffsetCommitResponse)
        if self._late is not None:
            self._late.commit_again(request)
        code = answer.topics[0].partitions[0].error_code
        if not code:
            self._book.committed(self._name, place, newest_given, self._generation)
        await self._check("OffsetCommit", code)


class LastReader:
    """At the end: checks that no committed offset is lower than one that was accepted."""

    def __init__(self, book: GroupBook, client: Client, group: str = GROUP) -> None:
        self._book = book
        self._client = client
        self._group = group
        self.has_read_all = False
        self.committed: dict[int, int] = {}  # by partition

    async def read_some(self) -> None:
        try:
            connection = await GroupMember.coordinator(self._client, self._group)
            offsets = await GroupMember.committed_offsets(
                connection, list(range(PARTITIONS)), self._group
            )
        except TROUBLE:
            await self._client.begin_anew()
            return
        if offsets is None:
            await self._client.pause()
            return
        self.has_read_all = True
        self.committed = offsets
        for partition, floor in self._book.confirmed.items():
            if offsets[partition] < floor:
                self._book.workload.violated(
                    f"the committed offset of partition {partition} is {offsets[partition]} in the "
                    f"end; {floor} was committed before"
                )


def start_groups(workload: "Workload") -> GroupBook:
    """Create the topic and start the members, each in a process of its own."""
    book = GroupBook(workload)
    maker = workload.client("admin")
    maker.run(make_topic(workload, maker))
    for number in range(MEMBERS):
        client = workload.client(f"member-{number}")
        client.run(GroupMember(book, client, f"m{number}").run())
    workload.readers.append(LastReader(book, workload.client("last")))
    return book
