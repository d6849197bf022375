"""A broker with clients that send malformed frames, flood, stall or never read; others are served.

The long form, with millions of frames and other seeds, is `./run bench fuzz`.
"""

import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from attack import attack, failures, read_kept, target_options, write_kept
from peers import FETCH_BY_NAME, HungUpError, Peer, framed

from odradek.model.errors import ErrorCode
from odradek.record.records import Record, build_batch
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.header import encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

FRAMES = 30_000
MIB = 2**20
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture
def many_sockets() -> Iterator[int]:
    """How many sockets a test may open, after as many were allowed as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000 if hard == resource.RLIM_INFINITY else min(hard, 10_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield max(soft, wanted) - 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(broker):
    return socket.create_connection(("127.0.0.1", broker.port), 30)


def served(broker):
    """Whether a new client is answered."""
    with Peer(broker.port) as peer:
        return peer.request(HELLO, ApiVersionsResponse).error_code == 0


def connections(broker):
    return broker.metric(
        "kafka_server_socket_server_metrics_connection_count",
        listener="PLAINTEXT",
        networkProcessor="0",
    )


def eventually(true, *, within_s=60.0):
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


# --------------------------------------------------------------------------------------- frames


def test_malformed_frames_harm_neither_the_broker_nor_its_data_nor_its_other_clients(
    make_broker, tmp_path
):
    broker = make_broker(target_options(tmp_path)).start()
    kept = write_kept(broker.port)
    report = attack(broker, seed="gate", frames=FRAMES)

    assert failures(broker, report, kept) == []
    assert report.answered > FRAMES / 10
    assert report.refused > FRAMES / 10
    assert report.witness["requests"] > 200
    assert broker.stop() == 0
    assert read_kept(broker.start().port) == kept


def test_frames_to_the_inter_broker_listener_end_no_broker(make_broker, tmp_path):
    broker = make_broker(target_options(tmp_path)).start()
    between_brokers = [int(key) for key, api in APIS.items() if api.inter_broker]
    report = attack(
        broker, seed="gate", frames=3_000, port=broker.ports[1], apis=between_brokers, watched=False
    )

    assert failures(broker, report, None) == []
    assert report.answered > 300
    assert broker.stop() == 0


# ------------------------------------------------------------------------------ memory and floods


def test_an_announced_frame_costs_only_the_bytes_received(make_broker, many_sockets):
    broker = make_broker({"socket.listen.backlog.size": 4_000}).start()
    count = min(2_000, many_sockets)
    before = broker.rss_bytes
    with ExitStack() as stack:
        for _ in range(count):
            promising = stack.enter_context(connect(broker))
            promising.sendall(struct.pack(">i", 100 * MIB) + b"0123456789")
        eventually(lambda: connections(broker) == count)
        assert served(broker)
        assert broker.rss_bytes - before < 100 * MIB
    eventually(lambda: connections(broker) == 0)


def test_a_client_that_sends_byte_by_byte_is_answered_and_others_between_its_bytes(make_broker):
    broker = make_broker().start()
    request = framed(MetadataRequest(topics=[]), 12)
    with ExitStack() as stack:
        dawdlers = [stack.enter_context(Peer(broker.port)) for _ in range(100)]
        for at in range(len(request)):
            for dawdler in dawdlers:
                dawdler.send(request[at : at + 1])
            assert served(broker)
        for dawdler in dawdlers:
            assert dawdler.answer(MetadataResponse, 12).brokers


def test_more_connections_than_allowed_are_closed_at_once_and_the_others_served(make_broker):
    options = {"max.connections.per.ip": 100, "max.connections.per.ip.overrides": "127.0.0.1:20"}
    broker = make_broker(options).start()
    flood_the_limit(broker, 20)


def test_the_broker_has_a_limit_for_all_its_connections(make_broker):
    flood_the_limit(make_broker({"max.connections": 15}).start(), 15)


def flood_the_limit(broker, limit):
    with ExitStack() as stack:
        first = [stack.enter_context(Peer(broker.port)) for _ in range(limit)]
        for peer in first:
            peer.request(HELLO, ApiVersionsResponse)
        for _ in range(500):
            with Peer(broker.port) as peer, pytest.raises(HungUpError):
                peer.request(HELLO, ApiVersionsResponse)
        for peer in first:
            assert peer.request(HELLO, ApiVersionsResponse).error_code == 0
        first[0].socket.close()
        eventually(lambda: connections(broker) == limit - 1)
        assert served(broker)


def test_requests_whose_responses_are_not_read_wait_in_the_socket(make_broker):
    # With its default buffers the kernel would take all of it.
    sizes = dict.fromkeys(("socket.send.buffer.bytes", "socket.receive.buffer.bytes"), 102_400)
    broker = make_broker(sizes).start()
    hello = framed(HELLO, 3, client_id="x" * 1_000)
    before = broker.rss_bytes
    count = 30_000
    with Peer(broker.port) as flooder:
        sender = threading.Thread(target=flooder.send, args=(hello * count,))
        sender.start()
        sender.join(timeout=1)
        assert sender.is_alive(), "the broker reads more although its responses are not read"
        assert broker.rss_bytes - before < 50 * MIB
        for number in range(count):
            assert flooder.answer(ApiVersionsResponse, 3).error_code == 0
            assert number % 3_000 or served(broker), "others wait for the one that does not read"
        sender.join()


def fetching(offset=0, *, max_wait_ms=0):
    """A request for all that is in a topic."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 * MIB)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 * MIB,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )


def write_much(broker):
    """25 MB, in 50 batches."""
    with Peer(broker.port) as peer:
        peer.create_topic("t")
        for _ in range(50):
            peer.produce("t", 0, build_batch([Record(None, bytes(500_000))]))


def test_a_hundred_large_fetches_of_one_client_are_answered_in_turn(make_broker):
    broker = make_broker().start()
    write_much(broker)
    before = broker.rss_bytes
    with Peer(broker.port) as greedy:
        greedy.send(framed(fetching(), FETCH_BY_NAME) * 100)
        assert len(greedy.frame()) > 25_000_000
        assert served(broker)
        assert broker.rss_max_bytes - before < 100 * MIB


def test_a_connection_that_is_idle_or_never_reads_is_closed(make_broker):
    broker = make_broker({"connections.max.idle.ms": 1_000}).start()
    write_much(broker)
    with ExitStack() as stack:
        silent, half, deaf, patient = (stack.enter_context(Peer(broker.port)) for _ in range(4))
        silent.request(HELLO, ApiVersionsResponse)
        half.send(struct.pack(">i", 1000) + b"half a frame")
        deaf.send(framed(fetching(), FETCH_BY_NAME))
        patient.send(framed(fetching(50, max_wait_ms=60_000), FETCH_BY_NAME))
        eventually(lambda: connections(broker) == 1)  # only `patient` is left
        assert silent.is_hung_up()
        assert half.is_hung_up()
        with Peer(broker.port) as producer:
            producer.produce("t", 0, build_batch([Record(None, b"at last")]))
        patient.frame()


def names(count):
    """Topics that do not exist."""
    return b"".join(struct.pack(">h", 7) + b"%07d" % n for n in range(count))


def partitions_of_t(count, form, *fields):
    """One topic with many partitions."""
    head = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", count)
    return head + b"".join(struct.pack(form, n, *fields) for n in range(count))


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        # Each is made by its test: every process collects them, and one runs them.
        (ApiKey.METADATA, 1, lambda: struct.pack(">i", 1_000_000) + bytes(2_000_000)),
        (ApiKey.METADATA, 1, lambda: struct.pack(">i", 100_000) + names(100_000)),
        (ApiKey.FETCH, 4, lambda: struct.pack(">iiiib", -1, 0, 0, 1_000, 0)
         + partitions_of_t(1_000_000, ">iqi", 0, 100)),
        (ApiKey.PRODUCE, 3, lambda: struct.pack(">hhi", -1, 1, 1_000)
         + partitions_of_t(1_000_000, ">ii", -1)),
        (ApiKey.LIST_OFFSETS, 2, lambda: struct.pack(">ib", -1, 0)
         + partitions_of_t(1_000_000, ">iq", -1)),
        (ApiKey.DESCRIBE_CONFIGS, 1, lambda: struct.pack(">i", 100_000)
         + (b"\2" + struct.pack(">h", 1) + b"t" + struct.pack(">i", -1)) * 100_000 + b"\0"),
    ],
    ids=["Metadata-empty", "Metadata-new", "Fetch", "Produce", "ListOffsets", "DescribeConfigs"],
)  # fmt: skip
def test_a_request_with_a_million_elements_costs_neither_memory_nor_delays_others(
    make_broker, api_key, version, body
):
    broker = make_broker().start()
    with Peer(broker.port) as peer, Peer(broker.port) as other:
        peer.create_topic("t")
        before = broker.rss_bytes
        request = encode_request_header(api_key, version, 1, "test") + body()
        peer.send(struct.pack(">i", len(request)) + request)
        for _ in range(100):
            assert other.request(HELLO, ApiVersionsResponse).error_code == 0
        with suppress(HungUpError):
            peer.frame()
        assert broker.rss_max_bytes - before < 256 * MIB
        assert served(broker)
    assert broker.traces() == []


def many_partitions(first, count, *, session_id=0, session_epoch=0):
    """A fetch that begins a session, or goes on with one, with so many partitions of nothing."""
    partitions = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=100)
        for n in range(first, first + count)
    ]
    return FetchRequest(
        max_bytes=MIB,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="absent", partitions=partitions)],
    )


def test_fetch_sessions_are_limited_in_number_and_size(make_broker):
    broker = make_broker().start()
    before = broker.rss_bytes
    with Peer(broker.port) as peer:
        admitted = 0
        for n in range(16):
            answer = peer.request(many_partitions(n, 20_000), FetchResponse, FETCH_BY_NAME)
            admitted += answer.session_id != 0
        assert admitted == 13

        # The last ones stay small, and may grow: until they have outgrown their room.
        answer = peer.request(many_partitions(0, 1), FetchResponse, FETCH_BY_NAME)
        session_id, epoch = answer.session_id, 1
        assert session_id
        while answer.session_id:
            growing = many_partitions(500 * epoch, 500, session_id=session_id, session_epoch=epoch)
            answer = peer.request(growing, FetchResponse, FETCH_BY_NAME)
            epoch += 1
            assert epoch < 10
        assert answer.error_code == 0
        removed = many_partitions(0, 1, session_id=session_id, session_epoch=epoch)
        answer = peer.request(removed, FetchResponse, FETCH_BY_NAME)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.rss_max_bytes - before < 256 * MIB
