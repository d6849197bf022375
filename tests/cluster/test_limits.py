"""Invalid input, from clients and from configuration: refused with a helpful error only."""

import pathlib
import re
import signal
import socket
import struct
import threading
import time

import pytest
from brokers import BrokerEndedError, BrokerProcess
from ledger import Ledger, Load, Stream
from peers import HungUpError, Peer, framed, producing

from odradek.broker.storage.open_files import shares
from odradek.model.errors import ErrorCode
from odradek.record.batch import HEADER_BYTES, iter_batches
from odradek.record.records import Record, build_batch
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.header import encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.wire.messages.produce import ProduceResponse

MALFORMED = "odradek_requests_malformed_total"
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One broker for all invalid requests; clients and brokers have listeners of their own."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("limits"),
        {
            "socket.request.max.bytes": 30_000,
            "message.max.bytes": 10_000,
            "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        },
    ).start()
    with Peer(broker.port) as peer:
        peer.create_topic("t")
    yield broker
    broker.kill()


def sized(data):
    return struct.pack(">i", len(data)) + data


def request(api_key, version, body=b""):
    """A request with a header that goes with its version, and any body at all."""
    if api_key not in APIS:
        return sized(struct.pack(">hhih", api_key, version, 1, -1) + body)
    return sized(encode_request_header(api_key, version, 1, "test") + body)


# ------------------------------------------------------------------------------- malformed frames


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", r"frame of 1195725856 bytes; socket.request.max.bytes=30000"),
        (b"\x16\x03\x01\x02\x00\x01", r"the client uses TLS, and this listener does not: set .*"),
        (struct.pack(">i", 30_001), r"frame of 30001 bytes; socket.request.max.bytes=30000"),
        (struct.pack(">i", -1), r"frame of -1 bytes; socket.request.max.bytes=30000"),
        (sized(b""), r"request header: only 0 bytes are left"),
        (sized(b"\0\x03\0\x01\0\0"), r"request header: only 6 bytes are left"),
        (sized(struct.pack(">hhih", 3, 1, 1, 9) + b"short"),
         r"request header: client id of 9 bytes; 5 are left"),
        (sized(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xff"),
         r"request header: client id b'\\xff\\xff'; must be UTF-8"),
        (sized(struct.pack(">hhih", 3, 9, 1, -1) + b"\x05" + b"\0\0" * 5),
         r"request header: tag 0 after tag 0; tags must ascend"),
        (request(999, 0), r"request header: api key 999; no such API here"),
        (request(-1, 0), r"request header: api key -1; no such API here"),
        (request(ApiKey.METADATA, 99), r"Metadata version 99; served are 0-12"),
        (request(ApiKey.METADATA, -1), r"Metadata version -1; served are 0-12"),
        (request(ApiKey.FETCH, 18), r"Fetch version 18; served are 0-17"),
        (request(ApiKey.PRODUCE, 99), r"Produce version 99; served are 0-12"),
        (request(ApiKey.METADATA, 1, struct.pack(">i", 0x7FFFFFFF)),
         r"MetadataRequest v1 topics: 2147483647 elements of at least 2 bytes; 0 bytes are left"),
        (request(ApiKey.METADATA, 1, struct.pack(">ih", 1, -1)),
         r"MetadataRequest v1 topics.name: null; this version does not allow it"),
        (request(ApiKey.METADATA, 1, struct.pack(">ih", 1, 2) + b"\xc3\x28"),
         r"MetadataRequest v1 topics.name: b'\\xc3\('; must be UTF-8"),
        (request(ApiKey.METADATA, 9, b"\xff\xff\xff\xff\xff\xff"),
         r"MetadataRequest v9 topics: varint of more than 5 bytes"),
        (request(ApiKey.PRODUCE, 3, struct.pack(">hhii", -1, 1, 1, 1)),
         r"ProduceRequest v3 topic_data: 1 elements of at least 6 bytes; 0 bytes are left"),
    ],
)  # fmt: skip
def test_a_malformed_request_closes_its_connection_with_one_line_in_the_log(served, sent, reason):
    refused, lines = served.metric(MALFORMED), len(served.output().splitlines())
    with Peer(served.port) as peer, Peer(served.port) as other:
        port = peer.socket.getsockname()[1]
        peer.send(sent)
        assert peer.is_hung_up()
        assert other.request(HELLO, ApiVersionsResponse).error_code == 0

    (line,) = served.output().splitlines()[lines:]
    assert re.search(rf" WARNING closed 127\.0\.0\.1:{port}: {reason} \(", line), line
    assert served.metric(MALFORMED) == refused + 1


def test_requests_before_a_malformed_one_are_answered_and_those_behind_it_are_not(served):
    with Peer(served.port) as peer:
        hello = framed(HELLO, 3)
        peer.send(hello + hello + request(999, 0) + hello)
        for _ in range(2):
            assert peer.answer(ApiVersionsResponse, 3).error_code == 0
        assert peer.is_hung_up()


@pytest.mark.parametrize("version", [5, 99, -1, 0x7FFF])
def test_api_versions_alone_is_answered_in_any_version_in_version_0(served, version):
    with Peer(served.port) as peer:
        peer.send(request(ApiKey.API_VERSIONS, version, b"\xff anything \xff"))
        answer = peer.answer(ApiVersionsResponse, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        (known,) = answer.api_keys
        served_versions = APIS[ApiKey.API_VERSIONS].served
        assert (known.api_key, known.min_version, known.max_version) == (18, *served_versions)
        # And the connection stays open for the second try.
        assert len(peer.request(HELLO, ApiVersionsResponse).api_keys) > 10


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "\u00fc", "a/"])
def test_an_invalid_software_name_is_refused(served, name):
    hello = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    with Peer(served.port) as peer:
        answer = peer.request(hello, ApiVersionsResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


# -------------------------------------------------------------------- requests that are refused


def signed_for_other_bytes():
    batch = bytearray(build_batch([Record(None, b"value")]))
    batch[-2] ^= 1
    return bytes(batch)


@pytest.mark.parametrize(
    ("batch", "code", "message"),
    [
        (build_batch([Record(None, bytes(10_000))]), ErrorCode.MESSAGE_TOO_LARGE,
         r"record batch of 100\d\d bytes; max.message.bytes=10000"),
        (signed_for_other_bytes(), ErrorCode.CORRUPT_MESSAGE, r"checksum \d+, computed \d+"),
        (b"", ErrorCode.INVALID_RECORD, "no whole record batch in 0 bytes"),
        (build_batch([Record(None, b"x")])[:-1], ErrorCode.INVALID_RECORD, "no whole record batch"),
        (build_batch([Record(None, b"x")]) * 2, ErrorCode.INVALID_RECORD, "more than one"),
    ],
)  # fmt: skip
def test_an_invalid_batch_is_refused_with_a_reason(served, batch, code, message):
    with Peer(served.port) as peer:
        answer = peer.produce("t", 0, batch)
        assert answer.error_code == code
        assert re.search(message, answer.error_message)
        assert peer.produce("t", 0, build_batch([Record(None, b"good")])).error_code == 0


def test_a_frame_of_the_largest_size_is_accepted(served):
    batch = build_batch([Record(None, bytes(8_000))])
    whole = framed(producing("t", 0, batch), 9)
    padded = framed(producing("t", 0, batch), 9, client_id="x" * (4 + 30_000 - len(whole) + 4))
    assert len(padded) == 4 + 30_000
    with Peer(served.port) as peer:
        peer.send(padded)
        answer = peer.answer(ProduceResponse, 9).responses[0].partition_responses[0]
        assert answer.error_code == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "\u00fc", "nul\0"])
def test_an_invalid_topic_name_is_refused(served, name):
    with Peer(served.port) as peer:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        (answer,) = peer.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "Topic name is invalid" in answer.error_message
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (shown,) = peer.request(asked, MetadataResponse).topics
        assert shown.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert peer.produce(name, 0, b"").error_code != 0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("retention.ms", "soon", "retention.ms"),
        ("cleanup.policy", "shred", "cleanup.policy"),
        ("segment.bytes", "1", "segment.bytes"),
        ("no.such.option", "1", "no.such.option"),
        ("min.insync.replicas", None, "min.insync.replicas"),
    ],
)
def test_invalid_topic_options_are_refused(served, key, value, message):
    config = CreatableTopicConfig(name=key, value=value)
    topic = CreatableTopic(
        name="misconfigured", num_partitions=1, replication_factor=1, configs=[config]
    )
    with Peer(served.port) as peer:
        (answer,) = peer.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert message in answer.error_message


def test_no_stack_trace_was_logged(served):
    """Runs last, on the broker of the tests above."""
    assert served.is_up
    assert served.metric("odradek_requests_failed_total") == 0
    assert served.traces() == []


# ------------------------------------------------------------------------------ at the start


def refusal(broker):
    """The last line of a broker that does not start."""
    with pytest.raises(BrokerEndedError) as died:
        broker.start()
    assert died.value.exit_code == 1
    assert broker.traces() == []
    return died.value.output.splitlines()[-1]


def test_unknown_options_are_reported_and_ignored(make_broker):
    options = {"log.retenton.ms": 5, "num.network.threads": 7, "advertised.port": 9}
    broker = make_broker(options).start()
    assert (
        "advertised.port is an option of former Kafkas, and has no effect: use advertised.lis"
        in (broker.output())
    )
    assert "log.retenton.ms is not an option" in broker.output()
    assert re.search(r"WARNING.*num\.network\.threads", broker.output())


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("log.segment.bytes", "3", "Invalid value 3"),
        ("num.partitions", "many", "Invalid value many"),
        ("num.partitions", "0", "Invalid value 0"),
        ("message.max.bytes", "-1", "Invalid value -1"),
        ("log.retention.ms", "0", "must be unlimited (-1) or, greater than or equal to 1"),
        ("compression.type", "zip", "Invalid value zip"),
        ("listeners", "PLAINTEXT://127.0.0.1", "PLAINTEXT://127.0.0.1"),
        ("listeners", "NONSENSE://127.0.0.1:0", "NONSENSE"),
        ("listeners", "PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", "PLAINTEXT"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "0.0.0.0"),
        ("broker.id", "-7", "must be greater than or equal to -1"),
        ("auto.create.topics.enable", "perhaps", "perhaps"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "127.0.0.1"),
        ("log.dirs", "", "log.dir"),
    ],
)
def test_an_invalid_option_is_named_with_its_rule_and_nothing_is_created(
    make_broker, key, value, text
):
    broker = make_broker({key: value})
    words = refusal(broker)
    assert "server.properties: " in words
    assert key in words
    assert text in words
    assert not (broker.home / "data").exists()


def test_a_file_of_options_that_cannot_be_read_is_named_with_its_line(make_broker):
    broker = make_broker()
    broker.options["a"] = "\\u12"
    text = refusal(broker)
    assert "server.properties: line" in text


def test_a_directory_of_another_broker_is_left_as_it_is(make_broker):
    broker = make_broker().start()
    assert broker.stop() == 0
    before = {path: path.read_bytes() for path in broker.data.iterdir() if path.is_file()}
    broker.options["broker.id"] = "7"
    text = refusal(broker)
    assert f"{broker.data} belongs to broker 0; broker.id=7" in text
    assert {path: path.read_bytes() for path in broker.data.iterdir() if path.is_file()} == before

    broker.options["broker.id"] = "0"
    assert broker.start().stop() == 0


def test_a_directory_of_another_cluster_is_refused(make_broker):
    broker = make_broker().start()
    assert broker.stop() == 0
    broker.options["odradek.store.path"] = str(broker.home / "another.db")
    text = refusal(broker)
    assert f"{broker.data} belongs to cluster " in text
    assert "the coordination store is that of cluster " in text


def test_a_directory_of_a_kraft_broker_is_refused(make_broker):
    broker = make_broker()
    broker.data.mkdir(parents=True)
    (broker.data / "meta.properties").write_text("version=1\nnode.id=0\ncluster.id=x\n")
    assert "KRaft" in refusal(broker)


def test_a_directory_in_use_is_refused_and_its_broker_continues(make_broker):
    first = make_broker().start()
    second = make_broker({"log.dirs": first.data}, name="second")
    assert f"{first.data} is locked" in refusal(second)
    with Peer(first.port) as peer:
        peer.create_topic("t")
        assert peer.produce("t", 0, build_batch([Record(None, b"x")])).error_code == 0


def test_a_port_in_use_is_named(make_broker):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen on {address}: Address already in use" in refusal(
            make_broker({"listeners": address})
        )


# -------------------------------------------------------------------------- files and memory


def test_idle_connections_leave_files_for_logs(make_broker):
    broker = make_broker({"auto.create.topics.enable": "false"})
    broker.files_max = (150, 600)
    broker.start()
    assert "the limit of open files is raised from 150 to 600" in broker.output()
    with Peer(broker.port) as peer:
        peer.create_topic("before", 20)
        idle = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(400)]
        peer.create_topic("after", 20)
        batch = build_batch([Record(None, b"x")])
        for topic in ("before", "after"):
            for partition in range(20):
                assert peer.produce(topic, partition, batch).error_code == 0
        for connection in idle:
            connection.close()
    # Of 600 files 210 are for clients, one of which is this test's peer.
    assert shares(600, backlog=50).connections == 210
    assert broker.metric("odradek_connections_refused") == 400 - 209
    assert broker.output().count("for more there are no files") <= 2
    assert broker.is_up
    assert broker.traces() == []


def test_a_peer_that_reads_nothing_costs_no_more_than_a_few_megabytes(make_broker):
    broker = make_broker().start()
    batch = build_batch([Record(None, bytes(1_000_000))])
    with Peer(broker.port) as peer, Peer(broker.port) as greedy:
        peer.create_topic("t")
        peer.create_topic("waited")
        for _ in range(40):
            assert peer.produce("t", 0, batch, acks=1).error_code == 0
        before = broker.rss_bytes
        asked = fetching("waited", 0, max_wait_ms=1_000) + fetching("t", 0) * 16
        greedy.send(asked)
        while broker.metric("kafka_server_brokertopicmetrics_bytesout_total") < 40_000_000:
            time.sleep(0.01)
        for _ in range(20):
            assert peer.produce("t", 0, build_batch([Record(None, b"x")])).error_code == 0
        assert broker.rss_bytes - before < 16 << 20
        first = greedy.frame()
        assert len(first) < 200
        assert [len(greedy.frame()) > 40_000_000 for _ in range(16)] == [True] * 16


def fetching(topic, offset, *, max_wait_ms=0):
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(fetch_offset=offset, partition_max_bytes=50 << 20)],
            )
        ],
    )
    return framed(request, 12)


# --------------------------------------------------------------------------------- at the end


def garble_the_first_batch(directory: pathlib.Path) -> None:
    (segment,) = directory.glob("*.log")
    data = bytearray(segment.read_bytes())
    assert len(list(iter_batches(data))) == 3
    data[HEADER_BYTES + 1] ^= 0x55
    segment.write_bytes(data)


def test_logs_are_recovered_after_an_unclean_stop_only(make_broker):
    broker = make_broker().start()
    with Peer(broker.port) as peer:
        peer.create_topic("t")
        for _ in range(3):
            peer.produce("t", 0, build_batch([Record(None, b"x")]))
    assert broker.stop() == 0
    garble_the_first_batch(broker.data / "t-0")
    broker.start()
    with Peer(broker.port) as peer:
        peer.wait_until_led("t")
        assert peer.offset("t", 0) == 3  # it does not check the log then, as Kafka
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    broker.kill()
    for checkpoint in broker.data.glob("recovery-point-offset-checkpoint"):
        checkpoint.unlink()
    broker.start()
    with Peer(broker.port) as peer:
        peer.wait_until_led("t")
        assert peer.offset("t", 0) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_loses_nothing_and_answers_every_request(make_broker, number):
    broker = make_broker({"log.segment.bytes": 16_384}).start()
    with Peer(broker.port) as peer:
        peer.create_topic("t", 2)
    streams = [Stream("t", n % 2, -1, f"stop/{n}") for n in range(4)]
    ledgers = [Ledger("t", n, [s for s in streams if s.partition == n]) for n in range(2)]
    load = Load(broker.port, streams)
    with Peer(broker.port) as waiting:
        waiter = threading.Thread(target=wait_for_records, args=(waiting,))
        waiter.start()
        while len(streams[0].acknowledged) < 50:
            time.sleep(0.001)
        assert broker.process is not None
        broker.process.send_signal(number)
        assert broker.wait() == 0
        waiter.join(10)
        assert not waiter.is_alive()
    load.stop()
    assert (broker.data / ".kafka_cleanshutdown").exists()
    assert broker.traces() == []
    broker.start()
    with Peer(broker.port) as peer:
        peer.wait_until_led("t", 2)
        for ledger in ledgers:
            ledger.check(peer)


def wait_for_records(peer):
    """Fetch at the end of the log until there is a response or the connection is closed."""
    try:
        answer = peer.fetch("t", 0, 0, max_wait_ms=60_000)
        while answer.error_code == 0:
            answer = peer.fetch("t", 0, answer.high_watermark, max_wait_ms=60_000)
    except HungUpError:
        return
    assert answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)
