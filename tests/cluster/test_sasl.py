"""Three brokers that log in to each other by SCRAM, and librdkafka as their client."""

import asyncio
import hashlib
import json
import subprocess
import sys
import time
import urllib.request

import confluent_kafka
import jwt
import pytest
from brokers import BrokerEndedError, BrokerProcess
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from control import ThreeBrokers, wait_for
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tests.certificates import Authority, server_options

from odradek.client.cluster import Cluster
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.security.protocol import AuthenticationError
from odradek.client.settings import ClientSettings
from odradek.coord.layout_config import ConfigEntity, encode_config
from odradek.coord.sqlite import SqliteStore
from odradek.net.clock import RealClock
from odradek.security.sasl.scram import derive

PACKAGE = "org.apache.kafka.common.security"
SCRAM = f'{PACKAGE}.scram.ScramLoginModule required username="{{}}" password="{{}}";'
BROKER, SECRET = "broker", "broker-secret"
INSIDE = "listener.name.inside.scram-sha-512.sasl.jaas.config"
OPTIONS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.inside.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    INSIDE: SCRAM.format(BROKER, SECRET),
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{PACKAGE}.plain.PlainLoginModule required user_app="app-secret";'
    ),
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


def store_user(store_path, user, password):
    """What `kafka-configs --zookeeper` writes for the first users of a cluster."""
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), b"salt", 4096)
    credential = derive("SCRAM-SHA-512", b"salt", salted, 4096).text()

    async def write():
        store = SqliteStore(str(store_path), clock=RealClock())
        await store.open()
        path = ConfigEntity((("users", user),)).path
        await store.create(path, encode_config({"SCRAM-SHA-512": credential}), make_parents=True)
        await store.close()

    asyncio.run(write())


def client(brokers, mechanism, user, password, **options):
    ports = [broker.ports[2] for broker in brokers if broker.is_up]
    return {
        "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "socket.timeout.ms": 10_000,
        **{name.replace("_", "."): value for name, value in options.items()},
    }


def produced(properties, topic, *values):
    """Write records with acks=all. Returns the errors."""
    errors = []
    producer = confluent_kafka.Producer({**properties, "message.timeout.ms": 60_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(90) == 0
    return [error for error in errors if error is not None]


def consumed(properties, topic, count):
    consumer = confluent_kafka.Consumer(
        {**properties, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values, deadline_s = [], time.monotonic() + 60
    while len(values) < count:
        assert time.monotonic() < deadline_s, values
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def refusal(properties):
    """Why librdkafka cannot log in."""
    errors = []
    refused = AdminClient({**properties, "error_cb": errors.append, "log_level": 0})

    def found():
        refused.poll(0.1)
        return [e for e in errors if e.code() == confluent_kafka.KafkaError._AUTHENTICATION]

    return wait_for(found)[0].str()


def admin_of(brokers):
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{brokers[0].port}"})


def set_password(brokers, user, password):
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    alter(brokers, change)


def alter(brokers, change):
    admin = admin_of(brokers)
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(30)


def test_followers_follow_and_a_leader_is_replaced(make_broker, tmp_path):
    store_user(tmp_path / "coordination.db", BROKER, SECRET)
    cluster = ThreeBrokers(make_broker, tmp_path, **OPTIONS)
    brokers = list(cluster.brokers.values())
    cluster.create("t", (1, 2, 3))
    app = client(brokers, "PLAIN", "app", "app-secret")

    assert produced(app, "t", b"1", b"2") == []
    wait_for(lambda: len(cluster.state("t")["isr"]) == 3)
    cluster.brokers[1].kill()
    wait_for(lambda: cluster.state("t")["leader"] in (2, 3))
    assert produced(app, "t", b"3") == []
    assert consumed(app, "t", 3) == [b"1", b"2", b"3"]

    cluster.brokers[1].start()
    wait_for(lambda: len(cluster.state("t")["isr"]) == 3, within_s=60)
    assert [broker.traces() for broker in brokers] == [[], [], []]
    for broker in brokers:
        assert SECRET not in broker.output()
        assert "app-secret" not in broker.output()


def test_sessions_between_brokers_end_and_begin_again(make_broker, tmp_path):
    store_user(tmp_path / "coordination.db", BROKER, SECRET)
    cluster = ThreeBrokers(
        make_broker, tmp_path, **OPTIONS, **{"connections.max.reauth.ms": "2000"}
    )
    cluster.create("t", (1, 2, 3))
    app = client(cluster.brokers.values(), "PLAIN", "app", "app-secret")
    name = "kafka_server_socket_server_metrics_successful_authentication_total"

    leader = cluster.brokers[1]
    before = leader.metric(name, listener="INSIDE")
    wait_for(lambda: leader.metric(name, listener="INSIDE") >= before + 4)
    assert produced(app, "t", b"1") == []
    assert len(cluster.state("t")["isr"]) == 3
    expired = "kafka_server_socket_server_metrics_expired_connections_killed_count"
    assert [b.metric(expired, listener="INSIDE") for b in cluster.brokers.values()] == [0, 0, 0]


def test_a_broker_with_a_wrong_password_says_what_to_do(make_broker, tmp_path):
    store_user(tmp_path / "coordination.db", BROKER, SECRET)
    options = {**OPTIONS, "odradek.store.path": tmp_path / "coordination.db"}
    first = make_broker({**options, "broker.id": 1, "log.dirs": tmp_path / "1"}, name="1").start()
    wrong = {
        **options,
        "broker.id": 2,
        "log.dirs": tmp_path / "2",
        INSIDE: SCRAM.format(BROKER, "x"),
    }
    second = make_broker(wrong, name="2").start()
    wait_for(lambda: len(admin_of([first]).list_topics(timeout=10).brokers) == 2)
    topic = NewTopic("t", 1, replica_assignment=[[1, 2]])
    admin = admin_of([first])
    for future in admin.create_topics([topic]).values():
        future.result(30)

    line = wait_for(
        lambda: [each for each in second.output().splitlines() if "refuses this" in each]
    )
    assert len(line) == 1
    assert "log-in as 'broker' with SCRAM-SHA-512: Authentication failed" in line[0]
    assert f"the same in {INSIDE} here and on that broker" in line[0]
    assert "the proof is wrong for user 'broker' with SCRAM-SHA-512" in first.output()
    command = [sys.executable, "-m", "odradek", "doctor", "--json"]
    command += ["--bootstrap-server", f"127.0.0.1:{first.port},127.0.0.1:{second.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = json.dumps(json.loads(done.stdout))
    assert "the proof is wrong for user 'broker'" in found
    assert "refuses this broker's log-in as 'broker' with SCRAM-SHA-512" in found
    command[command.index("doctor") :] = ["why", "topic", "t", "--partition", "0", *command[-2:]]

    def why():
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout if "out of the ISR" in done.stdout else None

    explained = wait_for(why)
    assert "broker 2 cannot fetch from broker 1: 127.0.0.1:" in explained
    assert "refuses the log-in" in explained
    assert "; it copies what it misses" not in explained


@pytest.fixture
def one(make_broker, tmp_path) -> list[BrokerProcess]:
    options = {**OPTIONS, "default.replication.factor": 1, "min.insync.replicas": 1}
    store_user(tmp_path / "data.coordination.db", BROKER, SECRET)
    return [make_broker({**options, "log.dirs": tmp_path / "data"}).start()]


def test_scram_users_of_librdkafka(one):
    assert "SASL authentication error" in refusal(client(one, "SCRAM-SHA-256", "alice", "first"))
    set_password(one, "alice", "first")
    alice = client(one, "SCRAM-SHA-256", "alice", "first")
    admin = AdminClient(alice)
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result(30)
    assert produced(alice, "t", b"1", b"2") == []
    assert consumed(alice, "t", 2) == [b"1", b"2"]

    set_password(one, "alice", "second")
    assert "SASL authentication error" in refusal(alice)
    alice = client(one, "SCRAM-SHA-256", "alice", "second")
    assert produced(alice, "t", b"3") == []
    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    alter(one, deletion)
    assert "SASL authentication error" in refusal(alice)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_our_client(one, mechanism):
    user, module = (
        ("app", "PlainLoginModule") if mechanism == "PLAIN" else ("alice", "ScramLoginModule")
    )
    set_password(one, "alice", "alice-secret")

    async def written(password):
        properties = {
            "bootstrap.servers": f"127.0.0.1:{one[0].ports[2]}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'x.{module} required username="{user}" password="{password}";',
            "acks": "all",
        }
        async with await Producer.open(ProducerSettings.from_properties(properties)) as producer:
            return await (await producer.send("ours", b"x"))

    assert asyncio.run(written(f"{user}-secret")).offset == 0
    with pytest.raises(AuthenticationError, match="Authentication failed"):
        asyncio.run(written("wrong"))


def test_no_secret_is_shown_at_any_level(one):
    (broker,) = one
    command = [sys.executable, "-m", "odradek", "configs", "--alter", "--entity-type"]
    command += ["broker-loggers", "--entity-name", "0", "--add-config", "root=TRACE"]
    command += ["--bootstrap-server", f"127.0.0.1:{broker.port}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    set_password(one, "alice", "alice-secret")
    assert produced(client(one, "SCRAM-SHA-256", "alice", "alice-secret"), "t", b"1") == []
    assert produced(client(one, "PLAIN", "app", "app-secret"), "t", b"1") == []
    for mechanism, user in (("PLAIN", "app"), ("SCRAM-SHA-256", "alice")):
        refusal(client(one, mechanism, user, "wrong-secret"))
    command = [*command[:3], "configs", "--describe", "--all", "--entity-type", "brokers"]
    command += ["--entity-name", "0", "--bootstrap-server", f"127.0.0.1:{broker.port}"]
    described = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    shown = [broker.output(), described.stdout]
    for path in ("metrics", "health", "broker", "journal", "controller", "replicas", "groups"):
        with urllib.request.urlopen(f"{broker.http}/{path}", timeout=30) as answer:
            shown.append(answer.read().decode())

    assert " DEBUG " in broker.output()
    assert "sasl.jaas.config" in described.stdout
    for text in shown:
        assert "-secret" not in text
        assert "stored_key" not in text


def test_a_wrong_password_of_plain(one):
    assert produced(client(one, "PLAIN", "app", "app-secret"), "t", b"1") == []
    found = refusal(client(one, "PLAIN", "app", "wrong"))
    assert "Authentication failed: Invalid username or password" in found


def test_librdkafka_authenticates_again_before_its_session_ends(make_broker, tmp_path):
    store_user(tmp_path / "data.coordination.db", BROKER, SECRET)
    options = {**OPTIONS, "default.replication.factor": 1, "min.insync.replicas": 1}
    options["listener.name.clients.connections.max.reauth.ms"] = 2000
    broker = make_broker({**options, "log.dirs": tmp_path / "data"}).start()
    producer = confluent_kafka.Producer(client([broker], "PLAIN", "app", "app-secret"))
    name = "kafka_server_socket_server_metrics_successful_reauthentication_total"

    def goes_on():
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        return broker.metric(name, listener="CLIENTS") >= 2

    wait_for(goes_on)
    expired = "kafka_server_socket_server_metrics_expired_connections_killed_count"
    assert broker.metric(expired, listener="CLIENTS") == 0


KEY = ec.generate_private_key(ec.SECP256R1())


def bearer_token(name, **claims):
    now_s = int(time.time())
    claims = {"sub": name, "iat": now_s, "exp": now_s + 60, "aud": "kafka", **claims}
    return jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": "k"})


@pytest.fixture
def bearers(make_broker, tmp_path):
    """A broker with OAUTHBEARER, whose keys are in a file."""
    file = tmp_path / "jwks.json"
    key = {**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}
    file.write_text(json.dumps({"keys": [key]}))
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka,other",
        "log.dirs": tmp_path / "data",
    }
    return make_broker(options).start()


def bearer_client(broker, token):
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.ports[1]}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 3600),
    }


def test_bearer_tokens_of_librdkafka(bearers):
    assert produced(bearer_client(bearers, bearer_token("alice")), "t", b"1") == []
    for wrong in ({"aud": "elsewhere"}, {"exp": 1000}, {"sub": ""}):
        found = refusal(bearer_client(bearers, bearer_token("alice", **wrong)))
        assert "invalid_token" in found
    unsigned = jwt.encode({"sub": "alice", "iat": 0, "exp": 1 << 40}, None, algorithm="none")
    assert "invalid_token" in refusal(bearer_client(bearers, unsigned))
    assert "authentication failed: the token is for another audience" in bearers.output()
    assert bearer_token("alice").partition(".")[0] not in bearers.output()


def test_bearer_tokens_of_our_client(bearers, tmp_path):
    file = tmp_path / "token"
    settings = ClientSettings.from_properties(
        {
            "bootstrap.servers": f"127.0.0.1:{bearers.ports[1]}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
    )

    async def connects():
        async with await Cluster.connect(settings):
            return True

    file.write_text(bearer_token("alice") + "\n")
    assert asyncio.run(connects())
    file.write_text(bearer_token("alice", exp=1000))
    with pytest.raises(AuthenticationError, match="invalid_token"):
        asyncio.run(connects())


def over_tls(authority, properties):
    return {**properties, "security.protocol": "SASL_SSL", "ssl.ca.location": authority.file}


def test_every_mechanism_over_tls_with_sessions_that_end(make_broker, tmp_path):
    authority = Authority(tmp_path / "certificates")
    file = tmp_path / "jwks.json"
    key = {**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}
    file.write_text(json.dumps({"keys": [key]}))
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{PACKAGE}.plain.PlainLoginModule required user_app="app-secret";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "connections.max.reauth.ms": "2000",
        "log.dirs": tmp_path / "data",
        **server_options(authority, authority.issue("127.0.0.1")),
    }
    broker = make_broker(options).start()
    set_password([broker], "alice", "alice-secret")
    address = {"bootstrap.servers": f"127.0.0.1:{broker.ports[1]}"}
    clients = [
        over_tls(authority, {**client([], "PLAIN", "app", "app-secret"), **address}),
        over_tls(authority, {**client([], "SCRAM-SHA-256", "alice", "alice-secret"), **address}),
        over_tls(authority, bearer_client(broker, bearer_token("alice"))),
    ]
    producers = [confluent_kafka.Producer(each) for each in clients]
    metric = "kafka_server_socket_server_metrics_successful_reauthentication_total"

    def all_have_authenticated_again():
        for producer in producers:
            producer.produce("t", b"x")
            assert producer.flush(30) == 0
        return broker.metric(metric, listener="SASL_SSL") >= 2 * len(producers)

    wait_for(all_have_authenticated_again)
    expired = "kafka_server_socket_server_metrics_expired_connections_killed_count"
    assert broker.metric(expired, listener="SASL_SSL") == 0
    wrong = client([], "SCRAM-SHA-256", "alice", "wrong")
    assert "invalid credentials" in refusal(over_tls(authority, {**wrong, **address}))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": None}, "no keys that verify tokens: set sasl.oa"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere"}, "No such file"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1/"}, "must be a file: or https:"),
        ({"odradek.sasl.oauthbearer.unsecured.tokens": "true"}, "are set: remove one"),
        (
            {"inter.broker.listener.name": "SASL_PLAINTEXT"}
            | {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"},
            "oauthbearer.sasl.jaas.config is not set",
        ),
        (
            {"sasl.server.callback.handler.class": "x.OAuthBearerUnsecuredValidator"},
            "classes of Java are not loaded",
        ),
    ],
    ids=["none", "missing", "http", "both", "brokers", "class"],
)
def test_a_broker_without_keys_does_not_start(bearers, options, reason):
    bearers.stop()
    bearers.options |= {name: value for name, value in options.items() if value is not None}
    for name, value in options.items():
        if value is None:
            del bearers.options[name]
    with pytest.raises(BrokerEndedError) as error:
        bearers.start()
    assert reason in error.value.output


ADMIN = SCRAM.format("admin", "admin-secret")


def test_the_first_user_of_a_new_cluster_logs_in(make_broker, tmp_path):
    """Brokers log in to each other as this user, too: no listener lets in other users."""
    store = tmp_path / "coordination.db"
    credential = "SCRAM-SHA-256=[iterations=8192,password=admin-secret]"
    user = ["--entity-type", "users", "--entity-name", "admin"]
    words = ["--zookeeper", str(store), "--alter", "--add-config", credential, *user]
    assert tool("configs", words).returncode == 0
    allow = ["--add", "--allow-principal", "User:app", "--operation", "Read", "--topic", "t"]
    words = ["--authorizer-properties", f"zookeeper.connect={store}", *allow]
    assert tool("acls", words).returncode == 0
    options = {
        "listeners": "SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SECURE",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.secure.scram-sha-256.sasl.jaas.config": ADMIN,
        "odradek.store.path": store,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    brokers = [make_broker({"broker.id": n, **options}, name=f"broker-{n}").start() for n in (1, 2)]
    config = tmp_path / "admin.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={ADMIN}\n"
    )
    where = ["--bootstrap-server", f"127.0.0.1:{brokers[0].port}", "--command-config", str(config)]
    created = tool("topics", [*where, "--create", "--topic", "t", "--replication-factor", "2"])
    acls = tool("acls", [*where, "--list"])

    assert created.returncode == 0, created.stdout + created.stderr
    assert "principal=User:app, host=*, operation=READ" in acls.stdout
    assert [broker.traces() for broker in brokers] == [[], []]
    assert "admin-secret" not in json.dumps([broker.output() for broker in brokers])


def tool(name, words):
    return subprocess.run(
        [sys.executable, "-m", "odradek", name, *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
