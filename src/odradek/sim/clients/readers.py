"""Simulated consumers: each reads all partitions to their ends, and at times again from the start.

They fetch by topic name or topic id, with or without a fetch session, up to the high watermark or
the last stable offset. The history checks the records. Checked here are gaps, records beyond the
high watermark, and OFFSET_OUT_OF_RANGE for an offset that is in range.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.sim.checks.history import (
    Facts,
    Floor,
    PartitionKey,
    Topic,
    read_batches,
    read_messages,
)
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.traits import Trait
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

VERSIONS: Final = (4, 7, 11, 12, 13, 16, 17)
OLD_VERSIONS: Final = (0, 1, 2, 3)  # which get records in format v0 or v1
BATCHES_SINCE: Final = 4
BY_ID_SINCE: Final = 13
SESSIONS_SINCE: Final = 7
EARLIEST: Final = -2


@dataclass(slots=True)
class Position:
    """The position of a reader in one partition, and the last request for it."""

    facts: Facts
    offset: int
    cuts: int  # the number of power losses at the last fetch
    leader_epoch: int = -1  # of the last batch that it has read
    requested: FetchPartition | None = None  # as the broker's fetch session has it
    asked: Connection | None = None


class ReaderSession:
    """The client's side of an incremental fetch session (KIP-227)."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.connection: Connection | None = None

    def begin_anew(self, positions: Iterable[Position]) -> None:
        """Make the next request a full one, with all partitions."""
        self.id = self.epoch = 0
        for position in positions:
            position.requested = None


class Reader:
    """Reads every partition of every topic."""

    def __init__(self, workload: "Workload", client: Client, name: str) -> None:
        self._workload = workload
        self._client = client
        self._random = client.random
        self._name = name
        self._version = self._random.choice(VERSIONS)
        if Trait.OLD in workload.traits and self._random.random() < 0.5:
            self._version = self._random.choice(OLD_VERSIONS)
        self._by_id = self._version >= BY_ID_SINCE
        self._isolation = self._random.randint(0, 1)
        smallest = 2_000 if workload.replication_factor == 1 else 50_000
        self._bytes_max = self._random.choice((smallest, 10 * smallest, 1 << 20))
        has_session = self._version >= SESSIONS_SINCE and self._random.random() < 0.6
        self._session = ReaderSession() if has_session else None
        self._positions: dict[PartitionKey, Position] = {}

    async def run(self) -> None:
        """Read until the workload ends."""
        while not self._workload.is_over:
            if self._random.random() < 0.005:
                self._positions.clear()  # once more from the start
                if self._session is not None:
                    self._session.begin_anew(())
            await self.read_some()
            if not self._positions:
                await self._client.pause()

    async def read_some(self) -> None:
        """One fetch from each leader."""
        try:
            removed = self._follow_topics()
            for leader, positions in (await self._by_leader()).items():
                await self._fetch(leader, positions, removed)
        except TROUBLE:
            if self._session is not None:
                self._session.begin_anew(self._positions.values())
            await self._client.begin_anew()

    @property
    def has_read_all(self) -> bool:
        """Whether it has read every acknowledged record."""
        return all(
            position.offset > max(position.facts.acked, default=-1)
            for position in self._positions.values()
        )

    # ------------------------------------------------------------------------- topics

    def _follow_topics(self) -> list[Topic]:
        """Follow created and deleted topics. Returns the deleted ones."""
        existing = {topic.id for topic in self._workload.topics}
        deleted = {
            key[0]: position.facts.topic
            for key, position in self._positions.items()
            if key[0] not in existing
        }
        self._positions = {k: p for k, p in self._positions.items() if k[0] in existing}
        for topic in self._workload.topics:
            for index in range(topic.partitions):
                facts = self._workload.history.of(topic, index)
                self._positions.setdefault((topic.id, index), Position(facts, 0, facts.cuts))
        if deleted and self._session is not None and not self._by_id:
            self._session.begin_anew(self._positions.values())  # a new topic may get the same name
        return list(deleted.values())

    async def _by_leader(self) -> dict[Connection, list[Position]]:
        found: dict[Connection, list[Position]] = {}
        ways: dict[int, Connection] = {}
        metadata = (await self._client.cluster()).metadata
        for position in self._positions.values():
            partition = TopicPartition(position.facts.topic.name, position.facts.index)
            leader = ways.get(metadata.leader(partition))
            if leader is None:
                leader = await self._client.leader(partition)
                if metadata.leader(partition) != NO_LEADER:  # the lookup may have changed it
                    ways[metadata.leader(partition)] = leader
            found.setdefault(leader, []).append(position)
        return found

    # ------------------------------------------------------------------------ fetching

    async def _fetch(
        self, leader: Connection, positions: list[Position], removed: list[Topic]
    ) -> None:
        workload = self._workload
        floors = {
            id(p): workload.history.floor(p.facts, workload.process_and_epoch_of(leader, p.facts))
            for p in positions
        }
        request = self._request(leader, positions, removed)
        answer = await leader.request(request, FetchResponse, version_max=self._version)
        if answer.error_code:
            self._refused(ErrorCode(answer.error_code))
            return
        if self._session is not None:
            self._session.id = answer.session_id
            self._session.epoch += 1
            if not answer.session_id:  # the broker's session cache is full: name all partitions
                self._session.begin_anew(positions)
        again = False
        named = self._named() if answer.responses else {}
        for topic in answer.responses:
            for data in topic.partitions:
                name = topic.topic_id if self._by_id else topic.topic
                position = named.get((name, data.partition_index))
                if position is not None and id(position) in floors:
                    again |= await self._partition(leader, position, data, floors[id(position)])
        if again:
            await self._client.refresh(sorted({p.facts.topic.name for p in positions}))
            await self._client.pause()

    def _request(
        self, leader: Connection, positions: list[Position], removed: list[Topic]
    ) -> FetchRequest:
        session = self._session
        if session is not None and session.connection is not leader:
            session.connection = leader
            session.begin_anew(positions)
        request = FetchRequest(
            max_wait_ms=self._random.choice((0, 100, 500)),
            min_bytes=self._random.choice((1, 1, 1_000)),
            max_bytes=self._bytes_max,
            isolation_level=self._isolation,
        )
        if session is not None:
            request.session_id, request.session_epoch = session.id, session.epoch
            if session.epoch:
                request.forgotten_topics_data = [
                    ForgottenTopic(
                        topic=t.name, topic_id=t.id, partitions=list(range(t.partitions))
                    )
                    for t in removed
                ]
        for position in positions:
            fetched = FetchPartition(
                partition=position.facts.index,
                fetch_offset=position.offset,
                partition_max_bytes=self._bytes_max,
            )
            if session is None or position.requested != fetched or position.asked is not leader:
                topic = position.facts.topic
                request.topics.append(
                    FetchTopic(topic=topic.name, topic_id=topic.id, partitions=[fetched])
                )
                position.requested, position.asked = fetched, leader
        return request

    def _refused(self, error: ErrorCode) -> None:
        if self._session is not None:
            self._session.begin_anew(self._positions.values())
        self._workload.expect_retriable("Fetch", error)

    def _named(self) -> dict[tuple[bytes | str, int], Position]:
        """The positions by topic and partition, as responses name them; of a name, the first."""
        named: dict[tuple[bytes | str, int], Position] = {}
        for position in self._positions.values():
            facts = position.facts
            topic = facts.topic.id if self._by_id else facts.topic.name
            named.setdefault((topic, facts.index), position)
        return named

    async def _partition(
        self, leader: Connection, position: Position, data: PartitionData, floor: Floor
    ) -> bool:
        """Check one partition of a response. Returns whether to refresh the metadata."""
        facts = position.facts
        if facts.topic.is_doomed and not self._by_id:
            return False  # fetched by name: it may be a new topic of that name
        if data.error_code == 0:
            if self._workload.process_and_epoch_of(leader, facts) != floor.served_by:
                return True  # the broker's leader epoch changed meanwhile
            self._workload.history.watermarks(
                facts,
                floor,
                high_watermark=data.high_watermark,
                log_start=data.log_start_offset if self._version >= 5 else floor.log_start,
                where=self._name,
            )
            if self._version < BATCHES_SINCE:
                self._take_messages(leader, position, data)
            else:
                self._take(position, data)
            return False
        error = ErrorCode(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._workload.leader_epoch_at(leader, facts) < position.leader_epoch:
                return True  # a former leader: clients ignore it by its epoch (KIP-320)
            await self._reset(leader, position)
            return False
        self._workload.expect_retriable(f"Fetch of {facts}", error)
        return True

    def _take(self, position: Position, data: PartitionData) -> None:
        history, facts = self._workload.history, position.facts
        for header, keys in read_batches(memoryview(data.records or b"")):
            if header.next_offset <= position.offset:
                continue
            if header.base_offset > position.offset or header.next_offset > data.high_watermark:
                self._workload.violated(
                    f"{facts}: {self._name} at {position.offset} got a batch "
                    f"[{header.base_offset}, {header.next_offset}); "
                    f"the high watermark is {data.high_watermark}"
                )
            for offset, key in enumerate(keys, header.base_offset):
                if offset >= position.offset:
                    history.seen(facts, offset, key, self._name)
            position.offset, position.leader_epoch = header.next_offset, header.leader_epoch
            position.cuts = facts.cuts

    def _take_messages(self, leader: Connection, position: Position, data: PartitionData) -> None:
        history, facts = self._workload.history, position.facts
        for offset, key in read_messages(data.records or b""):
            if offset < position.offset:
                continue
            if offset > position.offset or offset >= data.high_watermark:
                self._workload.violated(
                    f"{facts}: {self._name} at {position.offset} got offset {offset}; the high "
                    f"watermark is {data.high_watermark}"
                )
            history.seen(facts, offset, key, self._name)
            position.offset, position.cuts = offset + 1, facts.cuts
            # Messages do not have it: the broker's, which has not changed since the request.
            position.leader_epoch = self._workload.leader_epoch_at(leader, facts)

    async def _reset(self, leader: Connection, position: Position) -> None:
        """Go on at the log start offset; only deleted or lost records may be out of range."""
        facts = position.facts
        was_cut = facts.cuts != position.cuts
        asked = ListOffsetsPartition(partition_index=facts.index, timestamp=EARLIEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=facts.topic.name, partitions=[asked])]
        )
        answer = await leader.request(request, ListOffsetsResponse)
        result = answer.topics[0].partitions[0]
        if result.error_code:
            self._workload.expect_retriable(f"ListOffsets of {facts}", result.error_code)
            return
        if result.offset <= position.offset and not (was_cut or facts.topic.is_doomed):
            self._workload.violated(
                f"{facts}: {self._name} at {position.offset} got OFFSET_OUT_OF_RANGE; "
                f"the log starts at {result.offset}"
            )
        position.offset, position.cuts = result.offset, facts.cuts
