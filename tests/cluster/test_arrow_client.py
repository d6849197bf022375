"""The Arrow client against a real broker: writes, reads, limits, data loss, kills."""

import asyncio
import threading

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from brokers import BrokerProcess

from odradek.client import arrow
from odradek.client.arrow.cluster import partitions_by_topic
from odradek.client.arrow.encode import ColumnError
from odradek.client.arrow.fetch import DataLossError, FetchSettings, Range, RangeFetcher
from odradek.client.arrow.produce import ArrowProducer, ArrowProducerSettings
from odradek.client.cluster import BootstrapError, Cluster
from odradek.client.errors import IllegalStateError
from odradek.client.settings import ClientSettings
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition
from odradek.record.compression import Codec
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


def create(servers, topic, partitions=1, **options):
    async def make():
        async with await Cluster.bootstrap(servers) as cluster:
            configs = [CreatableTopicConfig(name=name, value=str(v)) for name, v in options.items()]
            wanted = CreatableTopic(
                name=topic, num_partitions=partitions, replication_factor=1, configs=configs
            )
            answer = await (await cluster.controller()).request(
                CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse
            )
            assert answer.topics[0].error_code == 0, answer

    asyncio.run(make())


def delete_records(servers, topic, partition, offset):
    async def delete():
        async with await Cluster.bootstrap(servers) as cluster:
            leader = await cluster.leader(TopicPartition(topic, partition))
            wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000
            )
            answer = await leader.request(request, DeleteRecordsResponse)
            assert answer.topics[0].partitions[0].error_code == 0, answer

    asyncio.run(delete())


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    broker = BrokerProcess(tmp_path_factory.mktemp("arrow") / "broker")
    broker.start()
    yield f"127.0.0.1:{broker.port}"
    broker.kill()


ROWS = pa.table(
    {
        "key": [b"k%d" % (n % 50) if n % 10 else None for n in range(5_000)],
        "value": [b"v%d" % n * (n % 7) for n in range(5_000)],
        "timestamp": pa.array(range(5_000), pa.timestamp("ms", "UTC")),
        "headers": pa.array(
            [[{"key": "n", "value": b"%d" % n}] if n % 3 == 0 else None for n in range(5_000)],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
)


def in_order_of(table, column):
    return table.take(pc.sort_indices(table, [(column, "ascending")])).select(
        ["key", "value", "timestamp", "headers"]
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_come_back(servers, codec):
    topic = f"rows-{codec.name.lower()}"
    create(servers, topic, partitions=3)

    written = arrow.write_topic(
        servers, topic, ROWS, settings=ArrowProducerSettings(codec=codec, batch_bytes=2_000)
    )

    table = arrow.read_topic(servers, topic, columns=arrow.ALL_COLUMNS)
    assert in_order_of(table, "timestamp").equals(ROWS)
    assert sum(each.records for each in written.values()) == 5_000
    assert set(table.column("partition").to_pylist()) == set(written) == {0, 1, 2}


def test_a_key_is_in_one_partition_and_its_rows_in_order(servers):
    create(servers, "keys", partitions=4)

    arrow.write_topic(servers, "keys", ROWS, settings=ArrowProducerSettings(batch_bytes=500))

    table = arrow.read_topic(servers, "keys")
    keyed = table.filter(pc.is_valid(table.column("key")))
    partitions = keyed.group_by("key").aggregate([("partition", "count_distinct")])
    assert set(partitions.column("partition_count_distinct").to_pylist()) == {1}
    for key in (b"k1", b"k33"):
        stamps = keyed.filter(pc.equal(keyed.column("key"), key)).column("timestamp").to_pylist()
        assert stamps == sorted(stamps)


def test_a_range_of_one_partition(servers):
    create(servers, "range", partitions=2)
    rows = pa.table({"value": [b"%d" % n for n in range(100)], "partition": [1] * 100})
    arrow.write_topic(servers, "range", rows)

    table = arrow.read_topic(
        servers, "range", columns=["value"], start={1: 10}, end={1: 13}, partitions=[1]
    )

    assert table.column("value").to_pylist() == [b"10", b"11", b"12"]


def test_a_stream_without_an_end_sees_what_is_written_later(servers):
    create(servers, "later")
    stream = arrow.stream_topic(servers, "later", columns=["value"], end=None)
    got = []
    reader = threading.Thread(target=lambda: got.append(next(stream)))

    reader.start()
    arrow.write_topic(servers, "later", pa.table({"value": [b"now"]}))
    reader.join(30)
    stream.close()

    assert [batch.to_pylist() for batch in got] == [[{"value": b"now"}]]


def test_deleted_offsets_are_named(servers):
    create(servers, "gone")
    arrow.write_topic(servers, "gone", pa.table({"value": [b"%d" % n for n in range(10)]}))
    delete_records(servers, "gone", 0, 4)

    with pytest.raises(DataLossError, match="gone-0: offset 1 is out of range; .* 4 to 10"):
        arrow.read_topic(servers, "gone", start=1)

    lenient = FetchSettings(fail_on_data_loss=False)
    batches = arrow.stream_topic(servers, "gone", columns=["offset"], start=1, fetch=lenient)
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [*range(4, 10)]


def test_an_end_that_is_not_reached_is_reported(servers):
    create(servers, "short")
    arrow.write_topic(servers, "short", pa.table({"value": [b"a"]}))
    settings = FetchSettings(stall_timeout_ms=1, wait_ms_max=10)

    with pytest.raises(
        ApiError, match="short-0 at offset 1: no records .* before 9, those below 1 "
    ):
        list(arrow.stream_topic(servers, "short", end=9, fetch=settings))


def test_a_missing_topic_is_refused_by_name(servers):
    create(servers, "small")

    with pytest.raises(arrow.UnknownTopicError, match="topic 'nowhere' does not exist"):
        arrow.read_topic(servers, "nowhere")
    with pytest.raises(arrow.UnknownTopicError, match="small-3 does not exist: small has 1"):
        arrow.read_topic(servers, "small", partitions=[3])
    with pytest.raises(arrow.UnknownColumnError, match="'valu'"):
        arrow.read_topic(servers, "small", columns=["valu"])
    with pytest.raises(ColumnError, match="column 'value' is .*double"):
        arrow.write_topic(servers, "small", pa.table({"value": [1.5]}))
    with pytest.raises(BootstrapError, match="127.0.0.1:1:"):
        arrow.read_topic("127.0.0.1:1", "small")


def test_a_record_too_large_is_refused_with_its_row_and_nothing_is_written(servers):
    create(servers, "large")
    rows = pa.table({"value": [b"ok", bytes(2 << 20)]})

    with pytest.raises(ApiError, match=r"row 1 is a record of 2\d+ bytes; max.request.size="):
        arrow.write_topic(servers, "large", rows)

    assert arrow.read_topic(servers, "large").num_rows == 0


def test_the_error_of_a_refused_batch_has_the_brokers_message(servers):
    create(servers, "narrow", **{"max.message.bytes": 1_000})

    with pytest.raises(ApiError, match="narrow-0: .*max.message.bytes=1000"):
        arrow.write_topic(servers, "narrow", pa.table({"value": [bytes(5_000)]}))


def test_after_a_failed_send_sequence_numbers_restart_in_the_next_epoch(servers):
    create(servers, "gap", **{"max.message.bytes": 1_000})

    async def send():
        settings = ClientSettings.from_properties({"bootstrap.servers": servers})
        async with await Cluster.connect(settings) as cluster:
            producer = await ArrowProducer.open(cluster)
            await producer.send("gap", pa.table({"value": [b"first"]}))
            with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
                await producer.send("gap", pa.table({"value": [bytes(5_000)]}))
            return await producer.send("gap", pa.table({"value": [b"small"]}))

    assert asyncio.run(send()) == {TopicPartition("gap", 0): (1, 1)}


def test_a_send_outside_of_a_transaction_is_refused(servers):
    create(servers, "outside")

    async def send():
        settings = ClientSettings.from_properties({"bootstrap.servers": servers})
        async with await Cluster.connect(settings) as cluster:
            producer = await ArrowProducer.open(
                cluster, ArrowProducerSettings(transactional_id="t")
            )
            await producer.send("outside", pa.table({"value": [b""]}))

    with pytest.raises(IllegalStateError, match="send needs a producer that is in a transaction"):
        asyncio.run(send())


def test_what_is_fetched_ahead_stays_within_bounds(servers):
    create(servers, "bounds", partitions=4)
    rows = pa.table({"value": [bytes(1_000)] * 4_000, "partition": [n % 4 for n in range(4_000)]})
    arrow.write_topic(servers, "bounds", rows)
    settings = FetchSettings(
        partition_bytes_max=100_000, fetch_bytes_max=200_000, buffer_bytes_max=600_000
    )

    async def read():
        connection = ClientSettings.from_properties({"bootstrap.servers": servers})
        most = total = 0
        async with await Cluster.connect(connection) as cluster:
            ranges = {TopicPartition("bounds", n): Range(0, 1_000) for n in range(4)}
            await partitions_by_topic(cluster, ["bounds"])
            fetcher = RangeFetcher(cluster, ranges, settings)
            while (fetched := await fetcher.next()) is not None:
                total += len(fetched.records)
                await asyncio.sleep(0.02)  # gives the fetcher time to fetch ahead
                most = max(most, fetcher._buffered_bytes)
        return most, total

    most, total = asyncio.run(read())
    assert total > 4_000_000
    assert 0 < most <= 600_000 + 200_000


def test_a_kill_of_the_broker_loses_and_duplicates_nothing(make_broker):
    broker = make_broker().start()
    broker.options["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port}"
    servers = f"127.0.0.1:{broker.port}"
    create(servers, "killed", partitions=2)
    rows = pa.table({"value": [b"%06d" % n * 50 for n in range(40_000)]})
    failures = []

    def write():
        try:
            arrow.write_topic(
                servers, "killed", rows, settings=ArrowProducerSettings(batch_bytes=8_000)
            )
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while not sum(file.stat().st_size for file in broker.data.glob("killed-*/*.log")):
        writer.join(0.002)
        assert writer.is_alive(), failures
    broker.kill()
    broker.start()
    writer.join(60)

    assert failures == []
    table = arrow.read_topic(servers, "killed", columns=["value"])
    assert sorted(table.column("value").to_pylist()) == rows.column("value").to_pylist()
