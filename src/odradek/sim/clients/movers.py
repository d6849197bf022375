"""Simulated movers: consume, transform and produce in one transaction.

They are members of one group, each with a transactional id of its own. What a mover has read and
not committed, another reads again; the generation in TxnOffsetCommit fences a member that was
removed meanwhile (KIP-447). They pause before EndTxn, lose responses, are removed from the group,
and go on as zombies.

    exactly once     each committed record of the source below the group's committed offset was
                     moved once, and none at or above it
    nothing goes back, generations fence, one owner    see `odradek.sim.clients.groups`
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.records import Record
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.committed import committed_records, fetch_committed
from odradek.sim.clients.groups import (
    GROUP,
    MEMBER_REMOVED,
    GroupBook,
    GroupMember,
    LastReader,
    Place,
    RejoinError,
)
from odradek.sim.clients.transactions import (
    TOPIC,
    AbortError,
    FencedError,
    Ledger,
    Transaction,
    TransactionOptions,
    Transactor,
    make_topic,
)
from odradek.sim.traits import Trait
from odradek.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

MOVED: Final = "moved"  # the topic that they write to
_OFFSETS: Final = TopicPartition(
    "__consumer_offsets", 0
)  # any partition: it only marks that the group is added
_RECORDS_MAX: Final = 8
_TXN_OFFSET_COMMIT: Final = {1: 4, 2: 5}
Source = tuple[int, int]  # partition and offset of the record that was moved


class Moves:
    """The source record of each moved record, and the check that each was moved once."""

    def __init__(self, workload: "Workload", ledger: Ledger, book: GroupBook) -> None:
        self.ledger = ledger
        self.book = book
        self.last = LastReader(book, workload.client(f"last-of-{book.group}"), book.group)
        self._workload = workload
        self._sources: dict[bytes, Source] = {}
        self._moved: dict[Source, bytes] = {}
        ledger.watching.append(self._read)
        ledger.checks.append(self._check)

    def moving(self, key: bytes, source: Source) -> None:
        """A copy of the source record is about to be sent with this key."""
        self._sources[key] = source

    def _read(self, key: bytes) -> None:
        source = self._sources.get(key)
        if source is not None and self._moved.setdefault(source, key) != key:
            self._workload.violated(
                f"the record at {source} was moved as {self._moved[source]!r} and as {key!r}"
            )

    def _check(self) -> None:
        """Check every record of the source, after all records have been read."""
        for key, (partition, offset) in self.ledger.seen.items():
            if partition.topic != TOPIC:
                continue
            committed = self.last.committed.get(partition.partition, -1)
            is_moved = (partition.partition, offset) in self._moved
            if is_moved != (offset < committed):
                self._workload.violated(
                    f"{key!r} at {partition}@{offset} was{'' if is_moved else ' not'} moved; "
                    f"the group's committed offset is {committed}"
                )


class Mover(Transactor):
    """A transactional producer that is also a member of the group."""

    def __init__(
        self, moves: Moves, client: Client, name: str, options: TransactionOptions
    ) -> None:
        super().__init__(moves.ledger, client, name, f"id-{name}", options)
        self._moves = moves
        self._member = GroupMember(moves.book, client, name)
        self._is_out = False

    async def run(self) -> None:
        """Move records until the workload ends."""
        while not self._workload.is_over:
            try:
                if self._producer[0] < 0:
                    await self._init()
                connection = await GroupMember.coordinator(self._client)
                places = await self._member.join(connection)
                self._is_out = False
                await self._go_on(connection, places)
            except RejoinError:
                await self._client.pause()
            except FencedError:
                self._producer = (-1, -1)
                await self._client.pause()
            except TROUBLE:
                self._workload.happened["answers lost"] += 1
                await self._client.begin_anew()

    async def _go_on(self, connection: Connection, places: list[Place]) -> None:
        while not self._workload.is_over:
            await asyncio.sleep(self._random.uniform(0.05, 0.4))
            await self._member.beat(connection)
            if self._random.random() < 0.01:
                await self._member.leave(connection)
            if places and MOVED in self._workload.history.topics:
                await self._move(self._random.choice(places))
                if self._is_out:
                    raise RejoinError

    async def _move(self, place: Place) -> None:
        records, following = await self._read(place)
        if not records:
            place.offset = following
            return
        with self._transaction() as transaction:
            try:
                await self._write_moved(transaction, place, records)
                await self._pause()
                newest_given = await self._send_offset(place, following)
                await self._pause()
            except AbortError:
                await self._abort()
                return
            if await self._decide(transaction):
                place.offset = following
                self._workload.happened["offsets moved by a transaction"] += 1
                self._moves.book.committed(self._name, place, newest_given, self._member.generation)

    async def _read(self, place: Place) -> tuple[list[Record], int]:
        """The next committed records of the source, and the offset after them."""
        partition = TopicPartition(TOPIC, place.partition)
        position = max(place.offset, 0)
        data = await fetch_committed(self._client, partition, position)
        if data is None or data.error_code:
            await self._client.refresh([TOPIC])
            return [], position
        records, following = committed_records(data, position)
        if len(records) > _RECORDS_MAX:
            del records[_RECORDS_MAX:]
            following = records[-1].offset + 1
        return records, following

    async def _write_moved(
        self, transaction: Transaction, place: Place, records: list[Record]
    ) -> None:
        topic = self._workload.history.topics[MOVED]
        first = len(transaction.keys)
        for number, record in enumerate(records):
            key = f"{transaction.name}/{first + number}".encode()
            self._moves.moving(key, (place.partition, record.offset))
        await self._write(transaction, topic, place.partition, len(records))

    # ------------------------------------------------------------------- committed offsets

    async def _send_offset(self, place: Place, offset: int) -> int:
        """Commit the offset with the transaction.

        Returns the newest generation that any member had got when the last request was sent.
        """
        if self._version == 1:
            await self._until_answered("AddOffsetsToTxn", self._add_group)
            self._joined.add(_OFFSETS)
        part = TxnOffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=GROUP,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            generation_id=self._member.generation,
            member_id=self._member.member_id,
            group_instance_id=self._member.instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )
        newest_given = -1

        async def ask() -> ErrorCode:
            nonlocal newest_given
            connection = await GroupMember.coordinator(self._client)
            newest_given = self._moves.book.newest_given
            answer = await connection.request(
                request, TxnOffsetCommitResponse, version_max=_TXN_OFFSET_COMMIT[self._version]
            )
            error = ErrorCode(answer.topics[0].partitions[0].error_code)
            if error in MEMBER_REMOVED:
                self._member.removed()
                self._is_out = True
                raise AbortError
            return error

        await self._until_answered("TxnOffsetCommit", ask)
        if Trait.LATE in self._workload.traits and self._version > 1:
            self._moves.book.late.again(request, TxnOffsetCommitResponse, 0.2)
        return newest_given

    async def _add_group(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=GROUP,
        )
        answer = await (await self._coordinator()).request(request, AddOffsetsToTxnResponse)
        return ErrorCode(answer.error_code)


def start_movers(workload: "Workload", options: TransactionOptions, ledger: Ledger) -> GroupBook:
    book = GroupBook(workload)
    moves = Moves(workload, ledger, book)
    maker = workload.client("admin-of-moved")
    maker.run(make_topic(workload, maker, MOVED))
    for number in range(options.movers):
        client = workload.client(f"mover-{number}")
        client.run(Mover(moves, client, f"m{number}", options).run())
    workload.readers.append(moves.last)
    return book
