"""`odradek up --secure` with three brokers, used by confluent-kafka and by our tools."""

import asyncio
import contextlib
import io
import json
import pathlib
import stat
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from brokers import BrokerProcess

from odradek.broker.http_token import headers
from odradek.cli.main import run
from odradek.client.cluster import Cluster as Client
from odradek.client.settings import ClientSettings
from odradek.config.properties import parse
from odradek.local.client_files import PROTOCOL, ClientFiles, ConnectSettings, SaslUser
from odradek.local.directory import ClusterDirectory
from odradek.plan.collect import certificates_of

kafka = pytest.importorskip("confluent_kafka", reason="the dependency group `clients`")
certificates = pytest.importorskip("odradek.local.certificates", reason="the extra `secure`")
DENIED = {
    kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
}
WAIT_S = 60.0


def odradek(*arguments: object, expect: int | None = 0) -> tuple[str, str]:
    """Run a command in this process. Returns what it prints on stdout and on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    assert expect in (None, code), (arguments, out.getvalue(), err.getvalue())
    return out.getvalue(), err.getvalue()


class Cluster:
    def __init__(self, directory: ClusterDirectory) -> None:
        self.where = ("--dir", directory.path)
        self.directory = directory
        self.files = ClientFiles(directory.clients)

    @property
    def bootstrap(self) -> str:
        return str(json.loads(odradek("status", "--json", *self.where)[0])["bootstrap"])

    def tool(self, name: str, *arguments: object, user: str = "admin", expect: int = 0) -> str:
        config = ("--command-config", self.files.java(user))
        server = ("--bootstrap-server", self.bootstrap)
        return "".join(odradek(name, *server, *config, *arguments, expect=expect))

    def settings(self, user: str = "app", **more: str) -> dict[str, str]:
        """As docs/security.md reads the file."""
        with self.files.librdkafka(user).open() as lines:
            found = dict(line.rstrip("\n").split("=", 1) for line in lines if line[0] != "#")
        return {**found, **{name.replace("_", "."): value for name, value in more.items()}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(ClusterDirectory(tmp_path_factory.mktemp("secure") / "D"))
    begun_s = time.monotonic()
    printed, _ = odradek("up", "--secure", "--brokers", 3, "--detach", *made.where)
    sys.stdout.write(f"three secure brokers serve after {time.monotonic() - begun_s:.2f} s\n")
    assert printed.strip() == made.bootstrap
    yield made
    odradek("down", *made.where)


def until(true: Callable[[], Any]) -> Any:
    """What `true` returns as soon as it is something: ACLs reach other brokers in a moment."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := true()):
        assert time.monotonic() < deadline_s, true
    return found


def written(settings: Mapping[str, str], topic: str, value: bytes) -> int:
    """Produce one record. Returns the error code, 0 for none."""
    outcome: list[int] = []
    producer = kafka.Producer({**settings, "message.timeout.ms": "30000"})
    producer.produce(
        topic, value, callback=lambda error, _: outcome.append(error.code() if error else 0)
    )
    producer.flush(WAIT_S)
    return outcome[0]


def read_first(settings: Mapping[str, str], topic: str) -> Any:
    """The first value of a topic, or the code of the error that comes instead."""
    consumer = kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = until(lambda: consumer.poll(1.0))
        return message.error().code() if message.error() else message.value()
    finally:
        consumer.close()


def test_the_application_may_do_nothing_until_it_is_granted(cluster: Cluster) -> None:
    cluster.tool("topics", "--create", "--topic", "orders", "--replication-factor", 3)
    app = cluster.settings(group_id="readers-1")

    assert written(app, "orders", b"early") in DENIED
    assert read_first(app, "orders") in DENIED
    assert cluster.tool("topics", "--list", user="app").strip() == ""

    odradek("allow", "app", "read,write", "topic", "orders", "--group", "readers-*", *cluster.where)
    until(lambda: written(app, "orders", b"late") == 0)
    assert until(lambda: read_first(app, "orders")) == b"late"
    assert cluster.tool("topics", "--list", user="app") == "orders\n"
    assert written(app, "payments", b"x") in DENIED
    cluster.tool("topics", "--create", "--topic", "mine", user="app", expect=1)


def test_a_denial_wins_and_can_be_taken_back(cluster: Cluster) -> None:
    cluster.tool("topics", "--create", "--topic", "denied")
    odradek("allow", "app", "all", "topic", "denied", *cluster.where)
    app = cluster.settings()
    until(lambda: written(app, "denied", b"1") == 0)

    odradek("deny", "app", "write", "topic", "denied", *cluster.where)
    until(lambda: written(app, "denied", b"2") in DENIED)
    why, _ = odradek("why", "denied", "--principal", "User:app", "--operation", "Write",
                     "--topic", "denied", *cluster.where)  # fmt: skip
    assert "this ACL denies it" in why
    assert f"--command-config {cluster.files.java('admin')}" in why

    odradek("revoke", "app", "write", "topic", "denied", *cluster.where)
    until(lambda: written(app, "denied", b"3") == 0)


@pytest.mark.parametrize(
    "changed",
    [{"sasl_password": "wrong"}, {"sasl_username": "nobody"}, {"sasl_mechanism": "PLAIN"}],
    ids=["password", "user", "mechanism"],
)
def test_wrong_credentials_are_refused(cluster: Cluster, changed: dict[str, str]) -> None:
    errors: list[Any] = []
    producer = kafka.Producer({**cluster.settings(**changed), "error_cb": errors.append})

    def failed() -> bool:
        producer.poll(0.1)
        return any(error.code() == kafka.KafkaError._AUTHENTICATION for error in errors)

    assert until(failed)


def test_a_client_without_encryption_or_without_a_user_is_refused(cluster: Cluster) -> None:
    config = cluster.directory.path / "plain.properties"
    config.write_text("default.api.timeout.ms=3000\nrequest.timeout.ms=3000\n")
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", config)
    odradek("topics", *where, "--list", expect=1)
    said = odradek("doctor", "--bootstrap-server", cluster.bootstrap, expect=1)[1]
    assert "if the listener uses TLS or SASL, name a file with --command-config" in said

    admin = kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    with pytest.raises(kafka.KafkaException):
        admin.list_topics(timeout=3)


def test_the_certificate_of_another_ca_is_refused(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    other = certificates.make_authority("other", datetime.now(UTC))
    files = ClientFiles(tmp_path)
    user = cluster.files.login("admin")
    assert isinstance(user, SaslUser)
    with files.written(ConnectSettings(cluster.bootstrap, other.certificate), user):
        pass

    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", files.java("admin"))
    assert "certificate" in "".join(odradek("topics", *where, "--list", expect=1))


def test_our_commands_find_the_administrator_by_the_directory(cluster: Cluster) -> None:
    cluster.tool("topics", "--create", "--topic", "found")

    findings = json.loads(odradek("doctor", "--json", *cluster.where)[0])["findings"]
    assert {finding["kind"] for finding in findings} <= {"refused"}  # by the tests above
    assert (
        "found-0: the preferred replica leads"
        in odradek("why", "topic", "found", *cluster.where)[0]
    )
    assert "admin" in odradek("user", "list", *cluster.where)[0]
    assert "User:broker may do everything" in odradek("permissions", *cluster.where)[0]
    assert '"reassignment"' in odradek("plan", "rebalance", "--json", *cluster.where)[0]
    rows = cluster.directory.path / "rows.txt"
    rows.write_text("a\nb\n")
    odradek("produce", "found", "--from", rows, *cluster.where)
    assert odradek("consume", "found", *cluster.where)[0] == "a\nb\n"
    assert str(cluster.files.java("admin")) in odradek("status", *cluster.where)[0]


def test_the_http_port_names_nothing_to_who_has_no_token(cluster: Cluster) -> None:
    cluster.tool("topics", "--create", "--topic", "payroll", "--partitions", 1)
    report = json.loads(odradek("status", "--json", *cluster.where)[0])
    files = {broker["http_token_file"] for broker in report["brokers"]}
    assert files == {str(cluster.directory.http_token)}
    assert stat.S_IMODE(cluster.directory.http_token.stat().st_mode) == 0o600

    def asked(broker: Mapping[str, Any], path: str, given: Mapping[str, str]) -> tuple[int, str]:
        request = urllib.request.Request(f"{broker['http']}/{path}", headers=dict(given))
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    token = headers(str(cluster.directory.http_token))
    for broker in report["brokers"]:
        for name in (
            "broker",
            "replicas",
            "groups",
            "journal",
            "controller",
            "replicas?topic=payroll",
        ):
            status, text = asked(broker, name, {})
            assert (status, "payroll" in text) == (401, False)
            assert asked(broker, name, {"Authorization": f"{token['Authorization']}x"})[0] == 401
            assert asked(broker, name, token)[0] == 200
        assert asked(broker, "health", {})[0] == 200
        status, text = asked(broker, "metrics", {})
        assert status == 200
        assert "kafka_server_replicamanager_partitioncount " in text
        assert "payroll" not in text
    assert any("payroll" in asked(broker, "metrics", token)[1] for broker in report["brokers"])
    assert "payroll" in odradek("why", "topic", "payroll", *cluster.where)[0]


def test_every_tool_takes_the_administrators_file(cluster: Cluster) -> None:
    cluster.tool("topics", "--create", "--topic", "tools")
    odradek("produce", "tools", "--from", __file__, *cluster.where)

    config = ("--command-config", cluster.files.java("admin"))
    where = ("--bootstrap-server", cluster.bootstrap, *config)
    assert "Cluster ID" in odradek("cluster", "cluster-id", *where)[0]
    assert "tools:0:" in cluster.tool("get-offsets", "--topic", "tools")
    assert "tools" in cluster.tool("log-dirs", "--describe", "--topic-list", "tools")
    assert "transaction.version" in cluster.tool("features", "describe")
    assert "Produce(0)" in cluster.tool("broker-api-versions")
    cluster.tool("consumer-groups", "--list")
    cluster.tool("transactions", "list")
    cluster.tool("acls", "--list")
    cluster.tool("configs", "--describe", "--topic", "tools")
    cluster.tool("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    read = cluster.tool("console-consumer", "--topic", "tools", "--from-beginning",
                        "--max-messages", 1)  # fmt: skip
    assert "odradek up --secure" in read
    size = ("--num-records", 5, "--record-size", 10, "--throughput", -1)
    assert "5 records sent" in odradek("producer-perf-test", "--topic", "tools", *size, *config)[0]
    count = ("--max-messages", 3)
    assert '"name":"shutdown_complete"' in cluster.tool(
        "verifiable-producer", "--topic", "tools", *count
    )
    consumed = ("--topic", "tools", "--group-id", "v", "--reset-policy", "earliest", *count)
    assert '"name":"shutdown_complete"' in cluster.tool("verifiable-consumer", *consumed)


def test_passwords_are_replaced_and_users_removed_while_the_brokers_run(cluster: Cluster) -> None:
    odradek("user", "add", "kim", *cluster.where)
    odradek("allow", "kim", "write", "topic", "kims", *cluster.where)
    cluster.tool("topics", "--create", "--topic", "kims")
    before = cluster.settings("kim")
    until(lambda: written(before, "kims", b"1") == 0)

    odradek("user", "rotate", "kim", *cluster.where)
    after = cluster.settings("kim")
    assert after["sasl.password"] != before["sasl.password"]
    until(lambda: written(after, "kims", b"2") == 0)
    odradek("user", "rotate", "admin", *cluster.where)
    assert "kims" in until(lambda: cluster.tool("topics", "--list"))

    assert (
        "those that run have the former password"
        in odradek("user", "rotate", "broker", *cluster.where, expect=1)[1]
    )
    for name in ("admin", "broker"):
        assert (
            "cannot be administered" in odradek("user", "remove", name, *cluster.where, expect=1)[1]
        )
    odradek("user", "remove", "kim", *cluster.where)
    assert not cluster.files.java("kim").exists()


def test_a_restart_keeps_it_secure_also_without_the_flag(cluster: Cluster) -> None:
    cluster.tool("topics", "--create", "--topic", "kept", "--replication-factor", 3)
    odradek("restart", 1, *cluster.where)
    bootstrap = cluster.bootstrap
    odradek("down", *cluster.where)
    odradek("user", "rotate", "broker", *cluster.where)
    cluster.files.java("admin").unlink()  # as if it were lost
    odradek("user", "rotate", "admin", *cluster.where)
    odradek("up", "--detach", *cluster.where)

    status = json.loads(odradek("status", "--json", *cluster.where)[0])
    assert status["bootstrap"] == bootstrap
    for broker in status["brokers"]:
        (listener,) = broker["listeners"]
        assert listener.startswith(f"{PROTOCOL}://")
    in_sync = ("--describe", "--under-replicated-partitions")
    until(lambda: not cluster.tool("topics", *in_sync))
    assert "kept" in cluster.tool("topics", "--list")
    for file in cluster.directory.clients.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def expiry(cluster: Cluster) -> dict[int, float]:
    """In how many days the certificate of each broker expires, as the doctor finds it."""
    properties = parse(cluster.files.java("admin").read_text())

    async def ask() -> dict[int, int]:
        settings = ClientSettings.from_properties(properties)
        async with await Client.connect(settings, wait_ms=30_000) as client:
            await client.refresh()
            return await certificates_of(client)

    now_ms = time.time() * 1000
    return {id_: (ends_ms - now_ms) / 86_400_000 for id_, ends_ms in asyncio.run(ask()).items()}


def test_a_certificate_that_expires_soon_is_seen_and_renewed_by_a_restart(cluster: Cluster) -> None:
    assert expiry(cluster) == pytest.approx(dict.fromkeys(range(3), 825), abs=1)

    odradek("stop", 0, *cluster.where)
    write_certificate(cluster, days=20)

    _, said = odradek("start", 0, *cluster.where)
    assert "broker 0 has a new certificate" in said
    assert expiry(cluster)[0] == pytest.approx(825, abs=1)


def write_certificate(cluster: Cluster, *, days: int) -> None:
    """Give broker 0 a certificate that expires in so many days; with -1 it has expired."""
    secrets = cluster.directory.secrets
    key, certificate = (secrets / "ca.key").read_text(), (secrets / "ca.pem").read_text()
    authority = certificates.Certificate(key, certificate)
    issued = datetime.now(UTC) - certificates.VALID + timedelta(days=days)
    made = certificates.issue(authority, "broker-0", ["localhost", "127.0.0.1"], issued)
    (secrets / "broker-0.pem").write_text(made.key + made.certificate)


@pytest.mark.parametrize(
    ("days", "kind", "printed"),
    [
        (20, "certificate", "its TLS certificate expires in 19 days"),
        (-1, "unreachable", "TLS: certificate has expired"),
    ],
)
def test_the_doctor_names_a_broker_whose_certificate_expires_or_has_expired(
    cluster: Cluster, tmp_path: pathlib.Path, days: int, kind: str, printed: str
) -> None:
    odradek("stop", 0, *cluster.where)
    write_certificate(cluster, days=days)
    # `odradek start` would renew it.
    options = parse(cluster.directory.properties_file(0).read_text())
    broker = BrokerProcess(tmp_path / "broker", options).start()
    where = ("--bootstrap-server", cluster.bootstrap)
    config = ("--command-config", cluster.files.java("admin"))

    def found() -> list[dict[str, str]]:
        reported = json.loads(odradek("doctor", "--json", *where, *config, expect=None)[0])
        return [finding for finding in reported["findings"] if finding["kind"] == kind]

    try:
        (finding,) = until(found)
    finally:
        broker.stop()
        odradek("start", 0, *cluster.where)
    assert finding["subject"] == "broker 0"
    assert printed in finding["why"]


def test_no_password_is_in_a_log_or_a_report(cluster: Cluster) -> None:
    passwords = [cluster.files.login(user) for user in cluster.files.users()]
    texts = [file.read_text() for file in (cluster.directory.path / "logs").iterdir()]
    texts.append(json.dumps(json.loads(odradek("status", "--json", *cluster.where)[0])))
    texts.append(cluster.tool("configs", "--describe", "--broker", 0, "--all"))

    assert len(passwords) >= 2
    for each in passwords:
        assert each is not None
        assert not any(each.password in text for text in texts)
