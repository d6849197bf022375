"""Simulated read_committed consumers: their fetches, and the aborted records that they skip."""

from typing import TYPE_CHECKING, Final

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.batch import TRANSACTIONAL_BIT, iter_batches
from odradek.record.control import ControlType, read_marker
from odradek.record.records import Record, iter_records
from odradek.sim.checks.history import Topic
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.transactions import Ledger
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

_FETCH: Final = 12
Key = tuple[bytes, int]  # topic id, partition


async def fetch_committed(
    client: Client, partition: TopicPartition, position: int
) -> PartitionData | None:
    """One fetch with isolation level read_committed; None if the response lacks the partition.

    Raises:
        OdradekError, ConnectionError: the leader cannot be reached.
    """
    fetched = FetchPartition(
        partition=partition.partition, fetch_offset=position, partition_max_bytes=100_000
    )
    leader = await client.leader(partition)
    answer = await leader.request(
        FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            topics=[FetchTopic(topic=partition.topic, partitions=[fetched])],
        ),
        FetchResponse,
        version_max=_FETCH,
    )
    return next((data for topic in answer.responses for data in topic.partitions), None)


def committed_records(data: PartitionData, position: int) -> tuple[list[Record], int]:
    """The records from `position` on without the aborted ones, and the next position."""
    aborted = sorted(
        (transaction.first_offset, transaction.producer_id)
        for transaction in data.aborted_transactions or ()
    )
    skipped: set[int] = set()
    kept: list[Record] = []
    view = memoryview(data.records or b"")
    for at, header in iter_batches(view):
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        batch = view[at : at + header.size_bytes]
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.type is ControlType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in skipped):
            kept += [record for record in iter_records(batch) if record.offset >= position]
        position = max(position, header.next_offset)
    return kept, position


class CommittedReader:
    """Reads one partition after the other, as a read_committed consumer does."""

    def __init__(self, workload: "Workload", client: Client, ledger: Ledger) -> None:
        self._workload = workload
        self._client = client
        self._ledger = ledger
        self._positions: dict[Key, int] = {}
        self._ends: dict[
            Key, tuple[int, int]
        ] = {}  # last stable offset and HW of the last response

    async def run(self) -> None:
        """Read until the workload ends."""
        while not self._workload.is_over:
            await self.read_some()
        self._ends.clear()  # other clients have open transactions: fetch again at the end

    @property
    def has_read_all(self) -> bool:
        """Whether no transaction is open, and every committed record was read."""
        return bool(self._positions) and all(
            self._ends.get(partition) == (position, position)
            for partition, position in self._positions.items()
        )

    async def read_some(self) -> None:
        """Fetch each partition once."""
        topics = self._workload.topics
        existing = {topic.id for topic in topics}
        for key in [key for key in self._positions if key[0] not in existing]:
            del self._positions[key]
        for topic in topics:
            for index in range(topic.partitions):
                self._positions.setdefault((topic.id, index), 0)
                try:
                    await self._read(topic, index)
                except TROUBLE:
                    await self._client.begin_anew()
        await self._client.pause()

    async def _read(self, topic: Topic, index: int) -> None:
        partition, key = TopicPartition(topic.name, index), (topic.id, index)
        position = self._positions[key]
        data = await fetch_committed(self._client, partition, position)
        if data is None or topic.is_doomed:
            return
        if data.error_code:
            await self._refused(topic, index, data)
            return
        if data.last_stable_offset < data.log_start_offset:
            self._workload.violated(
                f"{partition} is stable up to {data.last_stable_offset}; "
                f"it starts at {data.log_start_offset}"
            )
        self._ends[key] = (data.last_stable_offset, data.high_watermark)
        records, self._positions[key] = committed_records(data, position)
        for record in records:
            if record.key is not None:
                self._ledger.read(record.key, partition, record.offset)

    async def _refused(self, topic: Topic, index: int, data: PartitionData) -> None:
        """Prepare the next fetch: from the present leader, or behind deleted records."""
        asked = self._workload.history.of(topic, index).delete_asked
        key = (topic.id, index)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Records were deleted, or a paused former leader answered: this reader sends no leader
            # epoch, by which that leader could tell that it is not the leader any more.
            self._positions[key] = max(self._positions[key], asked)
            await self._client.pause()
        else:
            self._workload.expect_retriable("Fetch", data.error_code)
        await self._client.refresh([topic.name])


def start_readers(workload: "Workload", ledger: Ledger) -> None:
    """Start two read_committed consumers, each in a process of its own."""
    for number in range(2):
        client = workload.client(f"committed-{number}")
        reader = CommittedReader(workload, client, ledger)
        workload.readers.append(reader)
        client.run(reader.run())
