"""Topics as Arrow: read into tables or streams of record batches, and written from them.

    from odradek.client import arrow

    table = arrow.read_topic("localhost:9092", "orders")           # a pyarrow.Table
    for batch in arrow.stream_topic("localhost:9092", "orders"):   # one record batch at a time
        ...
    arrow.write_topic("localhost:9092", "orders", table)           # idempotent

pandas (`.to_pandas()`), Polars (`polars.from_arrow`) and DuckDB (by the variable's name) take the
tables as they are. The functions here block; the modules below (`fetch`, `produce`) are
asynchronous. All need the extra `arrow`, and are several times faster if
`odradek-fast` is installed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from odradek.client.arrow.cluster import UnknownTopicError, partitions_by_topic
from odradek.client.arrow.decode import (
    ALL_COLUMNS,
    COLUMNS,
    Layout,
    PartitionDecoder,
    UnknownColumnError,
)
from odradek.client.arrow.fetch import DataLossError, FetchSettings, Range, RangeFetcher
from odradek.client.arrow.produce import ArrowProducer, Written
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import EARLIEST, LATEST, list_offsets
from odradek.client.loop_thread import LoopThread
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings
from odradek.model.partition import TopicPartition

__all__ = [
    "ALL_COLUMNS",
    "COLUMNS",
    "DataLossError",
    "UnknownColumnError",
    "UnknownTopicError",
    "offsets_of",
    "read_topic",
    "stream_topic",
    "write_topic",
]

# An offset, "earliest" or "latest"; for all partitions, or by partition number.
Place = int | str
Places = Place | Mapping[int, Place]

_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}


def read_topic(  # noqa: PLR0913 - each by its name
    servers: str,
    topic: str,
    *,
    columns: Sequence[str] = COLUMNS,
    start: Places = "earliest",
    end: Places = "latest",
    partitions: Sequence[int] | None = None,
    committed: bool = False,
    properties: Mapping[str, str] | None = None,
) -> pa.Table:
    """Read a topic, or a part of it, as one table; the rows of a partition are in order.

    `start` and `end` (exclusive) are offsets, or "earliest" and "latest" at the time of the call;
    a mapping gives them by partition. `committed` leaves out open and aborted transactions
    (read_committed). `properties` are Java's (`security.protocol` and so on).

    Raises:
        UnknownTopicError, UnknownColumnError: no such topic, partition or column.
        DataLossError: an offset of the range was deleted.
        ApiError: a broker refuses, or a batch is damaged; names partition and offset.
        ClientTimeoutError: leaders did not answer within `default.api.timeout.ms`.
        BootstrapError: no broker of `servers` can be reached.
    """
    batches = stream_topic(
        servers, topic, columns=columns, start=start, end=end, partitions=partitions,
        committed=committed, properties=properties,
    )  # fmt: skip
    return pa.Table.from_batches(list(batches), Layout(columns).schema)


def stream_topic(  # noqa: PLR0913 - each by its name
    servers: str,
    topic: str,
    *,
    columns: Sequence[str] = COLUMNS,
    start: Places = "earliest",
    end: Places | None = "latest",
    partitions: Sequence[int] | None = None,
    committed: bool = False,
    properties: Mapping[str, str] | None = None,
    fetch: FetchSettings | None = None,
) -> Iterator[pa.RecordBatch]:
    """As `read_topic`, as a stream of record batches of one partition each, in bounded memory.

    With `end=None` the stream does not end: it returns records as they are written.

    Raises:
        The errors of `read_topic`, while iterating.
    """
    layout = Layout(columns)
    fetch = fetch or FetchSettings(committed=committed)
    thread = LoopThread("odradek-arrow")
    try:
        cluster = thread.run(Cluster.connect(_settings(servers, properties)))
        try:
            ranges = thread.run(
                ranges_of(cluster, topic, start, end, partitions, committed=committed)
            )
            yield from stream(thread, cluster, ranges, layout, fetch)
        finally:
            thread.run(cluster.close())
    finally:
        thread.close()


def write_topic(
    servers: str,
    topic: str,
    rows: pa.Table | pa.RecordBatch,
    *,
    settings: ProducerSettings | None = None,
    properties: Mapping[str, str] | None = None,
) -> dict[int, Written]:
    """Write rows to a topic and wait until all are acknowledged; the results by partition.

    Columns: `value`, and optionally `key`, `timestamp`, `headers`, `partition`. With a
    transactional id, all rows are written in one transaction.

    Raises:
        UnknownTopicError, ColumnError, PartitionError: nothing was written.
        ApiError: a broker refuses. BootstrapError: no broker can be reached.
    """
    thread = LoopThread("odradek-arrow")
    try:
        return thread.run(_write(_settings(servers, properties), topic, rows, settings))
    finally:
        thread.close()


def offsets_of(
    servers: str,
    topic: str,
    *,
    committed: bool = False,
    properties: Mapping[str, str] | None = None,
) -> dict[int, Range]:
    """Log start offset and end offset of each partition of a topic.

    Raises:
        UnknownTopicError: no such topic. BootstrapError: no broker can be reached.
    """

    async def ask() -> dict[int, Range]:
        async with await Cluster.connect(_settings(servers, properties)) as cluster:
            found = await ranges_of(cluster, topic, "earliest", "latest", committed=committed)
        return {name.partition: there for name, there in found.items()}

    thread = LoopThread("odradek-arrow")
    try:
        return thread.run(ask())
    finally:
        thread.close()


async def _write(
    connection: ClientSettings, topic: str, rows: Any, settings: ProducerSettings | None
) -> dict[int, Written]:
    async with await Cluster.connect(connection) as cluster:
        producer = await ArrowProducer.open(cluster, settings)
        transactional = settings is not None and settings.transactional_id is not None
        if transactional:
            producer.begin_transaction()
        try:
            written = await producer.send(topic, rows)
        except BaseException:
            if transactional:
                await producer.abort_transaction()
            raise
        if transactional:
            await producer.commit_transaction()
    return {name.partition: became for name, became in written.items()}


def stream(
    thread: LoopThread,
    cluster: Cluster,
    ranges: Mapping[TopicPartition, Range],
    layout: Layout,
    fetch: FetchSettings,
    *,
    check_crc: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Fetch and decode ranges of partitions concurrently."""
    decoders = {
        name: PartitionDecoder(
            name, layout, start=wanted.start, end=wanted.end, check_crc=check_crc
        )
        for name, wanted in ranges.items()
    }

    async def fetcher() -> RangeFetcher:
        return RangeFetcher(cluster, ranges, fetch)

    made = thread.run(fetcher())
    try:
        while (fetched := thread.run(made.next())) is not None:
            aborted = fetched.aborted if fetch.committed else ()
            decoder = decoders[fetched.partition]
            decoder.next_offset = max(decoder.next_offset, fetched.start)  # skip lost offsets
            yield from decoder.decode(fetched.records, aborted)
    finally:
        thread.run(made.close())


async def ranges_of(
    cluster: Cluster,
    topic: str,
    start: Places,
    end: Places | None,
    partitions: Sequence[int] | None = None,
    *,
    committed: bool = False,
) -> dict[TopicPartition, Range]:
    """Resolve "earliest" and "latest" to offsets.

    Raises:
        UnknownTopicError: no such topic or partition.
    """
    there = (await partitions_by_topic(cluster, [topic]))[topic]
    named = [places for places in (start, end) if isinstance(places, Mapping)]
    for number in {*(partitions or ()), *(number for places in named for number in places)}:
        if number not in there:
            raise UnknownTopicError(
                f"{topic}-{number} does not exist: {topic} has {len(there)} partitions"
            )
    chosen = [TopicPartition(topic, number) for number in (partitions or there)]
    starts = await _offsets(cluster, chosen, start, "earliest", committed=committed)
    if end is None:
        return {name: Range(starts[name], None) for name in chosen}
    ends = await _offsets(cluster, chosen, end, "latest", committed=committed)
    return {name: Range(starts[name], ends[name]) for name in chosen}


async def _offsets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    places: Places,
    default: str,
    *,
    committed: bool,
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    asked: dict[TopicPartition, int] = {}
    for name in partitions:
        place = places.get(name.partition, default) if isinstance(places, Mapping) else places
        if isinstance(place, str):
            if place not in _NAMED:
                raise UnknownTopicError(f"place {place!r}: must be an offset, earliest or latest")
            asked[name] = _NAMED[place]
        else:
            offsets[name] = place
    if asked:
        listed = await list_offsets(cluster, asked, reads_committed=committed)
        offsets.update((name, found.offset) for name, found in listed.items())
    return offsets


def _settings(servers: str, properties: Mapping[str, str] | None) -> ClientSettings:
    return ClientSettings.from_properties(
        {**(properties or {}), "bootstrap.servers": servers}, client_id="odradek-arrow"
    )
