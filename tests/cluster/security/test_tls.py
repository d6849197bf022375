"""Brokers whose clients, and whose connections to each other, use TLS."""

import asyncio
import json
import pathlib
import socket
import ssl
import subprocess
import sys
import threading

import pytest
from brokers import BrokerEndedError
from control import ThreeBrokers, wait_for
from cryptography.hazmat.primitives import serialization
from peers import Peer, framed
from tests.certificates import Authority, client_options, server_options

from odradek.client.cluster import BootstrapError, Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.security.protocol import AuthenticationError
from odradek.client.settings import ClientSettings
from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

HOST = "127.0.0.1"
BOTH = f"PLAINTEXT://{HOST}:0,SSL://{HOST}:0"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "certificates")


def play(story):
    return asyncio.run(asyncio.wait_for(story, 120))


def properties(authority, *ports, key=None, **more):
    return {
        "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in ports),
        "request.timeout.ms": "10000",
        "default.api.timeout.ms": "10000",
        "auto.offset.reset": "earliest",
        **client_options(authority, key),
        **more,
    }


async def written(options, topic, values):
    """Write with acks=all."""
    settings = ProducerSettings.from_properties({**options, "acks": "all"})
    async with await Producer.open(settings) as producer:
        return [await (await producer.send(topic, value)) for value in values]


async def read(options, topic, count):
    async with await Consumer.open(ConsumerSettings.from_properties(options)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = []
        while len(records) < count:
            records += await consumer.poll(1000)
        return [record.value for record in records]


async def brokers_in_metadata(options):
    async with await Cluster.connect(ClientSettings.from_properties(options)) as cluster:
        return len((await cluster.refresh()).brokers)


def in_sync(brokers, topic, ids):
    return wait_for(
        lambda: (found := brokers.partition(topic)) and sorted(found.isr_nodes) == sorted(ids)
    )


# ------------------------------------------------------------------------------ between brokers


def test_three_brokers_replicate_over_tls_also_after_one_was_killed(
    make_broker, tmp_path, authority
):
    options = {
        "listeners": BOTH,
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "required",
        **server_options(authority, authority.issue(HOST)),
    }
    brokers = ThreeBrokers(make_broker, tmp_path, **options)
    ports = [broker.ports[1] for broker in brokers.brokers.values()]
    mine = properties(authority, *ports, key=authority.issue("client", name="client"))
    brokers.create("t", [1, 2, 3], min_insync_replicas="2")
    values = [b"%d" % n + bytes(30_000) for n in range(40)]
    play(written(mine, "t", values))
    in_sync(brokers, "t", [1, 2, 3])

    brokers.brokers[1].kill()
    wait_for(lambda: brokers.partition("t").leader_id in (2, 3))
    play(written(mine, "t", [b"while one is down"]))
    brokers.brokers[1].start()
    in_sync(brokers, "t", [1, 2, 3])
    assert play(read(mine, "t", 41)) == [*values, b"while one is down"]
    assert [broker.traces() for broker in brokers.brokers.values()] == [[], [], []]


def test_a_broker_whose_certificate_is_refused_says_why(make_broker, tmp_path, authority):
    store = tmp_path / "store.db"
    shared = {
        "listeners": f"SSL://{HOST}:0",
        "inter.broker.listener.name": "SSL",
        "odradek.store.path": store,
    }
    good = server_options(authority, authority.issue(HOST))
    wrong = server_options(authority, authority.issue("elsewhere.example.org", name="wrong"))
    wrong["ssl.endpoint.identification.algorithm"] = ""
    controller = make_broker({"broker.id": 1, **shared, **good}, name="one").start()
    make_broker({"broker.id": 2, **shared, **wrong}, name="two").start()
    first = make_broker({"broker.id": 3, **shared, **good}, name="three").start()
    log_of_the_controller = tmp_path / "one" / "broker.log"
    wait_for(lambda: "IP address mismatch" in log_of_the_controller.read_text())
    reports = wait_for(lambda: state(controller)["refusals"])
    assert "the broker's certificate is refused" in reports[0]["what"]
    assert first.is_up


def test_brokers_use_the_stores_of_their_listener(make_broker, authority):
    """A listener that is not mapped by its own name, with options under its prefix."""
    prefix = "listener.name.inside."
    broker = make_broker({
        "listeners": f"PLAINTEXT://{HOST}:0,INSIDE://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SSL",
        "inter.broker.listener.name": "INSIDE",
        **server_options(authority, authority.issue(HOST), prefix=prefix),
    }).start()  # fmt: skip
    with Peer(broker.port) as peer:
        peer.create_topic("t")
    play(written(properties(authority, broker.ports[1]), "t", [b"x"]))
    assert play(read(properties(authority, broker.ports[1]), "t", 1)) == [b"x"]


# ----------------------------------------------------------------------------------- clients


@pytest.fixture
def broker(make_broker, authority):
    options = server_options(authority, authority.issue(HOST))
    return make_broker({"listeners": BOTH, **options}).start()


def test_a_client_that_does_not_trust_the_broker_refuses_it(broker, tmp_path):
    other = Authority(tmp_path / "other")
    with pytest.raises((BootstrapError, AuthenticationError), match="local issuer"):
        play(brokers_in_metadata(properties(other, broker.ports[1])))
    wait_for(lambda: "it may not trust the certificate" in broker.output())
    assert broker.metric("odradek_tls_handshakes_failed", listener="SSL") >= 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda authority: authority.expired(HOST), "expired"),
        (lambda authority: authority.issue("elsewhere.example.org"), "mismatch"),
    ],
)
def test_a_broker_with_a_wrong_certificate_is_refused(make_broker, authority, make, reason):
    options = server_options(authority, make(authority))
    broker = make_broker({"listeners": BOTH, **options}).start()
    assert ("has expired" in broker.output()) is (reason == "expired")
    with pytest.raises((BootstrapError, AuthenticationError), match=reason):
        play(brokers_in_metadata(properties(authority, broker.ports[1])))


def test_clients_with_and_without_tls_on_the_wrong_port_are_told_what_to_change(broker, authority):
    with socket.create_connection((HOST, broker.ports[1])) as client:
        client.sendall(b"\0\0\0\x10\0\x12\0\0" + bytes(12))
        assert client.recv(100) == b""
    wait_for(lambda: "the client does not use TLS" in broker.output())
    with pytest.raises(BootstrapError, match="may not use TLS"):
        play(brokers_in_metadata(properties(authority, broker.ports[0])))
    wait_for(lambda: "the client uses TLS, and this listener does not" in broker.output())


def test_refused_clients_are_among_the_reports(broker):
    with socket.create_connection((HOST, broker.ports[1])) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(100) == b""
    found = wait_for(lambda: state(broker)["refusals"])
    assert found[0]["what"].startswith("the client does not use TLS")


def state(broker):
    with broker.ask_http("broker") as answer:
        return json.load(answer)


def test_handshakes_that_are_not_completed_take_no_connection_for_ever(
    make_broker, authority, tmp_path
):
    options = server_options(authority, authority.issue(HOST))
    broker = make_broker({"listeners": BOTH, "max.connections.per.ip": 60, **options}).start()
    hello = client_hello(authority)
    sockets = []
    for n in range(50):
        client = socket.create_connection((HOST, broker.ports[1]))
        client.sendall(hello[: len(hello) if n % 2 else 5])
        sockets.append(client)
    try:
        # A client is served meanwhile, and the limit of connections counts the handshakes.
        assert play(brokers_in_metadata(properties(authority, broker.ports[1]))) == 1
        more = [socket.create_connection((HOST, broker.ports[1])) for _ in range(20)]
        sockets += more
        wait_for(lambda: "max.connections.per.ip" in broker.output())
        for client in sockets:
            client.settimeout(30)
            read_to_the_end(client)
    finally:
        for client in sockets:
            client.close()
    assert "no TLS handshake within 10 s" in broker.output()
    wait_for(
        lambda: (
            broker.metric(
                "kafka_server_socket_server_metrics_connection_count",
                listener="SSL",
                networkProcessor="0",
            )
            == 0
        )
    )


def test_handshakes_that_are_not_completed_take_no_more_memory_than_allowed(make_broker, authority):
    allowed = 2 << 20
    broker = make_broker({
        "listeners": BOTH,
        "odradek.unauthenticated.memory.max.bytes": allowed,
        **server_options(authority, authority.issue(HOST)),
    }).start()  # fmt: skip
    mine = properties(authority, broker.ports[1])
    assert play(brokers_in_metadata(mine)) == 1
    assert broker.metric("odradek_connections_unauthenticated") == 0
    before_bytes, hello, sockets = broker.rss_bytes, client_hello(authority), []
    try:
        for _ in range(500):
            sockets.append(socket.create_connection((HOST, broker.ports[1])))
            sockets[-1].sendall(hello)
        wait_for(lambda: broker.metric("odradek_connections_unauthenticated_dropped") >= 400)
        # Another client is served meanwhile: it is not among the first when it logs in.
        assert play(brokers_in_metadata(mine)) == 1
        assert 0 < broker.metric("odradek_connections_unauthenticated_bytes") <= allowed
        assert broker.rss_bytes - before_bytes < 12 << 20  # 500 handshakes would take 25 MB
    finally:
        for client in sockets:
            client.close()
    wait_for(lambda: broker.metric("odradek_connections_unauthenticated_bytes") == 0)
    assert broker.output().count("odradek.unauthenticated.memory.max.bytes=2097152") == 1
    assert broker.traces() == []


# From Linux's loopback a client connects with any of 127.0.0.0/8.
from_another_address = pytest.mark.skipif(
    sys.platform != "linux", reason="127.0.0.2 is an address on Linux alone"
)
OTHER_HOST = "127.0.0.2"


@from_another_address
def test_a_storm_of_handshakes_from_one_address_does_not_keep_others_out(make_broker, authority):
    broker = make_broker({
        "listeners": BOTH,
        "odradek.unauthenticated.memory.max.bytes": 2 << 20,
        **server_options(authority, authority.issue(HOST)),
    }).start()  # fmt: skip
    mine, hello, sockets = properties(authority, broker.ports[1]), client_hello(authority), []
    with begun_handshake(authority, broker.ports[1]) as slow:
        storm, ends = threading.Event(), threading.Event()

        def begin_handshakes():
            while not ends.is_set():
                client = socket.create_connection(
                    (HOST, broker.ports[1]), source_address=(OTHER_HOST, 0)
                )
                client.sendall(hello)
                sockets.append(client)
                if len(sockets) > 200:
                    storm.set()
                    sockets.pop(0).close()

        thread = threading.Thread(target=begin_handshakes)
        thread.start()
        try:
            assert storm.wait(60)
            wait_for(lambda: broker.metric("odradek_connections_unauthenticated_dropped") >= 100)
            for _ in range(3):
                assert play(brokers_in_metadata(mine)) == 1
        finally:
            ends.set()
            thread.join()
            for client in sockets:
                client.close()
        # The handshake that began before all of them is not among those that were closed.
        slow.setblocking(True)
        slow.do_handshake()
        slow.sendall(framed(ApiVersionsRequest(), 0))
        assert len(slow.recv(4)) == 4
    assert broker.output().count("127.0.0.2 has ") == 1
    assert broker.traces() == []


def begun_handshake(authority, port):
    """A connection that has sent its ClientHello alone."""
    context = ssl.create_default_context(cafile=authority.file)
    client = context.wrap_socket(
        socket.create_connection((HOST, port)), do_handshake_on_connect=False, server_hostname=HOST
    )
    client.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return client


@from_another_address
def test_silent_connections_from_one_address_make_room_at_the_limit(make_broker, authority):
    broker = make_broker({
        "listeners": BOTH,
        "max.connections": 20,
        "odradek.unauthenticated.memory.max.bytes": 2 << 20,
        **server_options(authority, authority.issue(HOST)),
    }).start()  # fmt: skip
    address, source = (HOST, broker.ports[1]), (OTHER_HOST, 0)
    sockets = [socket.create_connection(address, source_address=source) for _ in range(30)]
    try:
        wait_for(lambda: broker.metric("odradek_connections_unauthenticated") > 15)
        assert play(brokers_in_metadata(properties(authority, broker.ports[1]))) == 1
    finally:
        for client in sockets:
            client.close()
    assert broker.traces() == []


def client_hello(authority):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=authority.file)
    tls = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def read_to_the_end(client):
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass


def test_clients_that_do_not_read_take_no_more_memory_than_allowed(make_broker, authority):
    broker = make_broker({
        "listeners": BOTH,
        "odradek.connections.memory.max.bytes": 2 << 20,
        **server_options(authority, authority.issue(HOST)),
    }).start()  # fmt: skip
    with Peer(broker.port) as peer:
        peer.create_topic("t")
        for _ in range(8):
            assert peer.produce("t", 0, build_batch([Record(None, bytes(900_000))])).error_code == 0
    clients = [over_tls(broker, authority) for _ in range(20)]
    request = framed(fetching("t"), 12)
    for client in clients:
        client.send(request * 5)
    try:
        wait_for(lambda: broker.metric("odradek_connections_dropped") >= 1)
        wait_for(lambda: broker.metric("odradek_connections_memory_bytes") <= 2 << 20)
    finally:
        for client in clients:
            client.socket.close()
    assert play(brokers_in_metadata(properties(authority, broker.ports[1]))) == 1
    assert broker.traces() == []


def fetching(topic):
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
    return FetchRequest(
        max_bytes=8 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_librdkafka_writes_and_reads_with_a_certificate(make_broker, authority, version):
    confluent = pytest.importorskip("confluent_kafka")
    prefix = "listener.name.ssl."
    broker = make_broker({
        "listeners": BOTH,
        f"{prefix}ssl.client.auth": "required",
        f"{prefix}ssl.enabled.protocols": version,
        f"{prefix}ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/U",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ALICE;User:ANONYMOUS",
        **server_options(authority, authority.issue(HOST)),
    }).start()  # fmt: skip
    with Peer(broker.port) as peer:
        peer.create_topic("t")

    def client(key):
        own = {"ssl.certificate.location": key, "ssl.key.location": key} if key else {}
        return {
            "bootstrap.servers": f"{HOST}:{broker.ports[1]}",
            "security.protocol": "SSL",
            "ssl.ca.location": authority.file,
            "message.timeout.ms": 10_000,
            "log_level": 0,
            **own,
        }

    def outcome(key):
        problems = []
        producer = confluent.Producer(client(key))
        producer.produce("t", b"x" * 50_000, on_delivery=lambda error, _: problems.append(error))
        assert producer.flush(30) == 0
        return problems[0] and problems[0].name()

    alice = authority.issue("alice@example.org", name="alice", common_name="alice")
    bob = authority.issue("bob@example.org", name="bob", common_name="bob")
    assert outcome(alice) is None
    assert outcome(bob) == "TOPIC_AUTHORIZATION_FAILED"
    assert outcome(None) == "_MSG_TIMED_OUT"
    wait_for(lambda: "ssl.client.auth=required" in broker.output())

    settings = client(alice) | {"group.id": "g", "auto.offset.reset": "earliest"}
    settings.pop("message.timeout.ms")
    consumer = confluent.Consumer(settings)
    consumer.assign([confluent.TopicPartition("t", 0, 0)])
    record = wait_for(lambda: consumer.poll(1.0))
    consumer.close()
    assert record.value() == b"x" * 50_000


def test_on_a_sasl_ssl_listener_the_client_is_the_user_who_logs_in(make_broker, authority):
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    broker = make_broker({
        "listeners": f"PLAINTEXT://{HOST}:0,SASL_SSL://{HOST}:0",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} user_alice="secret";',
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice;User:ANONYMOUS",
        **server_options(authority, authority.issue(HOST)),
    }).start()  # fmt: skip
    with Peer(broker.port) as peer:
        peer.create_topic("t")
    own = authority.issue("bob@example.org", name="bob", common_name="bob")
    mine = properties(authority, broker.ports[1], key=own) | {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} username="alice" password="secret";',
    }
    play(written(mine, "t", [b"x"]))
    assert play(read(mine, "t", 1)) == [b"x"]


# ------------------------------------------------------------------------------- certificates


def certificate_of(broker):
    """The certificate that a new connection is shown."""
    return ssl.get_server_certificate((HOST, broker.ports[1]))


def own_certificate(file):
    text = pathlib.Path(file).read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return text[text.index(begin) : text.index(end) + len(end)] + "\n"


def over_tls(broker, authority):
    peer = Peer(broker.ports[1])
    context = ssl.create_default_context(cafile=authority.file)
    peer.socket = context.wrap_socket(peer.socket, server_hostname=HOST)
    return peer


def test_new_certificates_are_used_while_connections_stay(make_broker, authority):
    names = {"common_name": "broker", "organization_unit_name": "unit"}
    key = pathlib.Path(authority.issue(HOST, **names))
    broker = make_broker({"listeners": BOTH, **server_options(authority, str(key))}).start()
    with over_tls(broker, authority) as peer:
        peer.create_topic("t")
        assert certificate_of(broker) == own_certificate(key)

        # A changed file, without a command.
        second = authority.issue(HOST, name="second", **names)
        pathlib.Path(second).replace(key)
        wait_for(lambda: certificate_of(broker) == own_certificate(key))

        # A file that cannot be used.
        key.write_text("nothing")
        wait_for(lambda: "its changed files cannot be used" in broker.output())
        assert certificate_of(broker) != "nothing"

        # Another file, by kafka-configs.
        other = authority.issue(HOST, name="third", common_name="other")
        refused = configure(broker, other)
        assert "Keystore DistinguishedName does not match" in refused.stdout + refused.stderr
        third = authority.issue(HOST, name="fourth", **names)
        done = configure(broker, third)
        assert done.returncode == 0, done.stdout + done.stderr
        assert certificate_of(broker) == own_certificate(third)

        assert peer.produce("t", 0, build_batch([Record(None, b"x")])).error_code == 0
    assert broker.stop() == 0
    broker.start()
    assert certificate_of(broker) == own_certificate(third)
    assert broker.traces() == []


def test_passwords_are_stored_encrypted(make_broker, authority, tmp_path):
    names = {"common_name": "broker", "organization_unit_name": "unit"}
    options = server_options(authority, authority.issue(HOST, **names))
    secret = {"password.encoder.secret": "secret of the encoder"}
    store = tmp_path / "store.db"
    broker = make_broker({"listeners": BOTH, "odradek.store.path": store, **options}).start()
    other = encrypted(authority.issue(HOST, name="other", **names), "a-pass-word")
    more = ",listener.name.ssl.ssl.key.password=a-pass-word"
    refused = configure(broker, other + more)
    assert "Password encoder secret not configured" in refused.stdout + refused.stderr
    assert broker.stop() == 0

    broker.options |= secret
    broker.start()
    done = configure(broker, other + more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert certificate_of(broker) == own_certificate(other)
    assert broker.stop() == 0
    broker.start()
    assert certificate_of(broker) == own_certificate(other)
    assert broker.stop() == 0

    # Another secret: the former one is needed at one start.
    broker.options |= {
        "password.encoder.secret": "other",
        "password.encoder.old.secret": secret["password.encoder.secret"],
    }
    broker.start()
    assert broker.stop() == 0
    del broker.options["password.encoder.old.secret"]
    broker.start()
    assert certificate_of(broker) == own_certificate(other)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*") if file.is_file())
    assert b"encryptedPassword:" in stored
    assert b"a-pass-word" not in stored + broker.output().encode()
    assert broker.traces() == []


def encrypted(file, password):
    """The same key store with an encrypted key."""
    pem = pathlib.Path(file).read_bytes()
    key = serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    pathlib.Path(file).write_bytes(key + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return file


def configure(broker, key):
    option = f"listener.name.ssl.ssl.keystore.location={key}"
    return subprocess.run(
        [
            *(sys.executable, "-m", "odradek", "configs"),
            *("--bootstrap-server", f"{HOST}:{broker.port}", "--alter"),
            *("--entity-type", "brokers", "--entity-name", "0", "--add-config", option),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# --------------------------------------------------------------------------------- at the start


def refusal(broker):
    with pytest.raises(BrokerEndedError) as ended:
        broker.start()
    assert ended.value.exit_code == 1
    assert broker.traces() == []
    return ended.value.output.splitlines()[-1]


def test_a_listener_without_a_key_store_prevents_the_start(make_broker):
    text = refusal(make_broker({"listeners": BOTH}))
    assert "listener SSL: there is no key store: set ssl.keystore.location" in text


def test_a_key_that_does_not_belong_to_its_certificate_prevents_the_start(
    make_broker, authority, tmp_path
):
    begin = "-----BEGIN CERTIFICATE"
    one, other = (
        pathlib.Path(authority.issue(HOST, name=name)).read_text().partition(begin)
        for name in ("one", "other")
    )
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(one[0] + begin + other[2])
    text = refusal(make_broker({"listeners": BOTH, **server_options(authority, str(mixed))}))
    assert "the private key does not belong to the first certificate" in text
