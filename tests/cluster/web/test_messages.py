"""The message search against a real broker: codecs, transactions, gaps, cursors, the tail."""

import asyncio
import time
from dataclasses import replace

import pytest
from brokers import BrokerProcess

import odradek.client.admin.partitions as admin_partitions
import odradek.client.admin.topics as admin
from odradek.client.cluster import Cluster
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings
from odradek.model.partition import TopicPartition
from odradek.net.clock import real_wall_ms
from odradek.record.compression import Codec
from odradek.web.messages.produce import NewMessage, produce, stored_message
from odradek.web.messages.progress import from_cursor, to_cursor
from odradek.web.messages.query import QueryError, read_query
from odradek.web.messages.ranges import ranges_of
from odradek.web.messages.search import SliceBounds, SliceReader

START_MS = real_wall_ms() - 3_600_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    options = {
        "log.cleaner.backoff.ms": 50,
        "log.segment.delete.delay.ms": 100,
        "auto.create.topics.enable": "false",
    }
    broker = BrokerProcess(tmp_path_factory.mktemp("messages") / "broker", options)
    broker.start()
    yield f"127.0.0.1:{broker.port}"
    broker.kill()


def create(servers, topic, partitions=1, **configs):
    async def work():
        async with await Cluster.bootstrap(servers) as cluster:
            named = {name.replace("_", "."): str(value) for name, value in configs.items()}
            wanted = admin.NewTopic(topic, partitions, 1, configs=named)
            (outcome,) = (await admin.create_topics(cluster, [wanted])).values()
            assert outcome is None

    asyncio.run(work())


def producer_of(servers, **options):
    client = ClientSettings(bootstrap_servers=(servers,))
    return Producer.open(ProducerSettings(client=client, **options))


def fill(servers, topic, messages, **options):
    """Produce (partition, key, value, headers) one millisecond after another."""

    async def work():
        async with await producer_of(servers, linger_ms=20, **options) as producer:
            waiting = [
                await producer.send(
                    topic, value, key=key, partition=partition, headers=headers,
                    timestamp=START_MS + n,
                )
                for n, (partition, key, value, headers) in enumerate(messages)
            ]  # fmt: skip
            for each in waiting:
                await each

    asyncio.run(work())


async def read_all(cluster, query, *, found=1_000, between=None):
    """All slices of a search, each from the cursor of the one before."""
    ranges = await ranges_of(cluster, query, wall_ms=real_wall_ms())
    progress, records, ended = ranges.progress(query), [], ""
    while ended not in ("done", "end"):
        bounds = SliceBounds(found=found, seconds=20.0)
        one = await SliceReader(cluster, query, progress, bounds).run()
        ended = one.ended
        records += one.found
        progress = from_cursor(to_cursor(one.progress), query.digest)
        if between is not None:
            await between()
            between = None
    return records, progress


def search(servers, topic, *, found=1_000, between=None, **fields):
    async def work():
        async with await Cluster.bootstrap(servers) as cluster:
            query = read_query({"topic": topic, **fields}, real_wall_ms())
            step = None if between is None else (lambda: between(cluster))
            return await read_all(cluster, query, found=found, between=step)

    return asyncio.run(work())


@pytest.mark.parametrize("codec", list(Codec))
def test_one_message_is_found_in_each_codec(servers, codec):
    topic = f"codec-{codec.name.lower()}"
    create(servers, topic, partitions=3)
    messages = [(n % 3, b"k%d" % n, b'{"id": %d}' % n, ()) for n in range(3_000)]
    fill(servers, topic, messages, codec=codec)

    (found,), progress = search(servers, topic, path="$.id", json="2345")

    assert (found.partition, found.key, found.codec) == (2345 % 3, b"k2345", codec)
    assert progress.is_done
    assert (progress.total("records"), progress.total("found")) == (3_000, 1)
    assert [r for each in progress.partitions.values() for r in each.not_searched()] == []


def test_a_search_goes_on_from_its_cursor_without_a_gap_or_a_repetition(servers):
    create(servers, "cursor", partitions=2)
    fill(servers, "cursor", [(n % 2, None, b"%d" % n, ()) for n in range(200)])

    records, progress = search(servers, "cursor", found=7)

    assert sorted(int(each.value) for each in records) == list(range(200))
    assert progress.total("records") == 200


def test_bounds_by_offset_time_and_last(servers):
    create(servers, "bounds")
    fill(servers, "bounds", [(0, None, b"%d" % n, ()) for n in range(100)], batch_bytes=200)

    def values(**fields):
        return [int(each.value) for each in search(servers, "bounds", **fields)[0]]

    moment = {"from": f"@{START_MS + 40}", "to": f"@{START_MS + 44}"}
    assert values(**{"from": "10", "to": "13"}) == [10, 11, 12]
    assert values(**moment) == [40, 41, 42, 43]
    assert values(last="3") == [97, 98, 99]
    assert values(last="2", to="50") == [48, 49]
    assert values(**{"from": "95"}) == [95, 96, 97, 98, 99]


def test_nulls_and_headers_are_found_and_shown(servers):
    create(servers, "nulls")
    headers = (("h", b"1"), ("h", None))
    fill(servers, "nulls", [(0, None, b"v", ()), (0, b"k", None, headers), (0, b"", b"", ())])

    records, _ = search(servers, "nulls")
    null_key, _ = search(servers, "nulls", key_is="null")
    by_header, _ = search(servers, "nulls", header="h=1")

    assert [(each.key, each.value) for each in records] == [(None, b"v"), (b"k", None), (b"", b"")]
    assert [each.offset for each in null_key] == [0]
    assert [(each.offset, each.headers) for each in by_header] == [(1, headers)]


def test_records_of_transactions_have_their_state(servers):
    create(servers, "tx")
    create(servers, "tx-open")

    async def work():
        async with (
            await producer_of(servers, transactional_id="ended") as ended,
            await producer_of(servers, transactional_id="open") as unfinished,
            await Cluster.bootstrap(servers) as cluster,
        ):
            await ended.init_transactions()
            await unfinished.init_transactions()
            for value, end in (
                (b"kept", ended.commit_transaction), (b"dropped", ended.abort_transaction),
            ):  # fmt: skip
                ended.begin_transaction()
                await (await ended.send("tx", value))
                await end()
            unfinished.begin_transaction()
            await (await unfinished.send("tx", b"undecided"))
            ended.begin_transaction()
            await (await ended.send("tx", b"behind it"))
            await ended.commit_transaction()

            async def states(**fields):
                query = read_query({"topic": "tx", **fields}, real_wall_ms())
                records, progress = await read_all(cluster, query)
                return [(r.value, r.state.value, r.marker) for r in records], progress

            everything = await states(markers="1")
            committed = await states(state="committed")
            await unfinished.abort_transaction()
            return everything, committed

    (everything, progress), (committed, _) = asyncio.run(work())

    assert [(v, s) for v, s, marker in everything if not marker] == [
        (b"kept", "committed"), (b"dropped", "aborted"), (b"undecided", "open"),
        (b"behind it", "ended"),
    ]  # fmt: skip
    assert [marker for _, _, marker in everything if marker] == ["COMMIT", "ABORT", "COMMIT"]
    assert progress.total("markers") == 3
    assert [value for value, _, _ in committed] == [b"kept"]


def test_offsets_that_compaction_has_removed_are_counted(servers):
    create(
        servers, "compacted", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01,
        segment_bytes=20_000,
    )  # fmt: skip
    messages = [(0, b"key-%d" % (n % 10), b"%d." % n + b"x" * 200, ()) for n in range(1_000)]
    fill(servers, "compacted", messages, batch_bytes=2_000)
    deadline_s = time.monotonic() + 60

    while True:
        records, progress = search(servers, "compacted")
        if progress.total("missing") > 500:
            break
        assert time.monotonic() < deadline_s, "the broker has not compacted the topic"

    assert progress.is_done
    assert progress.total("missing") + progress.total("records") == 1_000
    assert progress.total("records") == len(records)
    assert {each.key for each in records} == {b"key-%d" % n for n in range(10)}


def test_records_that_are_deleted_meanwhile_are_named_as_not_searched(servers):
    create(servers, "deleted")
    fill(servers, "deleted", [(0, None, b"%d" % n, ()) for n in range(100)], batch_bytes=200)

    async def delete(cluster):
        outcome = await admin_partitions.delete_records(cluster, {TopicPartition("deleted", 0): 60})
        assert list(outcome.values()) == [60]

    records, progress = search(servers, "deleted", found=10, between=delete)

    (partition,) = progress.partitions.values()
    values = [int(each.value) for each in records]
    assert values == [*range(10), *range(60, 100)]
    assert partition.not_searched() == [(10, 60, "deleted meanwhile")]
    assert (partition.records, partition.missing, partition.is_done) == (50, 0, True)


def test_the_cost_is_known_before_anything_is_read(servers):
    create(servers, "cost", partitions=2)
    fill(servers, "cost", [(0, None, b"x" * 100, ()) for _ in range(1_000)])

    async def work():
        async with await Cluster.bootstrap(servers) as cluster:
            query = read_query({"topic": "cost", "last": "500"}, real_wall_ms())
            return await ranges_of(cluster, query, wall_ms=real_wall_ms())

    ranges = asyncio.run(work())

    assert [each.offsets for each in ranges.ranges] == [500, 0]
    assert 50_000 < ranges.bytes < 80_000


def test_a_topic_that_does_not_exist_is_refused(servers):
    with pytest.raises(QueryError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        search(servers, "nothing")


def test_the_tail_waits_for_the_next_record(servers):
    create(servers, "tail")

    async def work():
        async with await Cluster.bootstrap(servers) as cluster:
            query = read_query({"topic": "tail"}, real_wall_ms())
            ranges = await ranges_of(cluster, query, wall_ms=real_wall_ms())
            progress = ranges.progress(query, follows=True)
            bounds = SliceBounds(found=1, seconds=30.0, follows=True)
            reader = SliceReader(cluster, query, progress, bounds)
            reading = asyncio.create_task(reader.run())
            await produce(cluster, NewMessage(topic="tail", value=b"next"))
            return await reading

    one = asyncio.run(work())

    assert [each.value for each in one.found] == [b"next"]
    assert one.ended == "found"


def test_a_message_is_produced_and_sent_again_as_it_was(servers):
    create(servers, "again", partitions=2)
    message = NewMessage(
        topic="again", partition=1, key=b"k", value=None, headers=(("h", b"\xff"), ("g", None)),
        codec=Codec.ZSTD,
    )  # fmt: skip

    async def work():
        async with await Cluster.bootstrap(servers) as cluster:
            first = await produce(cluster, message)
            stored = await stored_message(cluster, first.partition, first.offset)
            return stored, await produce(cluster, stored)

    stored, second = asyncio.run(work())

    assert stored == replace(message, codec=stored.codec)
    assert second.partition == TopicPartition("again", 1)
    records, _ = search(servers, "again")
    assert [(r.key, r.value, r.headers) for r in records] == [(b"k", None, message.headers)] * 2
