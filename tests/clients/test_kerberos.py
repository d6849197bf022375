"""GSSAPI with a real KDC of MIT Kerberos, on loopback: our client and Java's log in to our broker,
and brokers to each other.

apt-get install libkrb5-dev krb5-kdc krb5-admin-server && pip install gssapi
"""

import asyncio
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import apache
import pytest
import raw
from confluent_kafka.admin import AdminClient
from mixed import OurBroker, until
from tool_stories import JavaTools

from odradek.client.admin.topics import describe_cluster
from odradek.client.cluster import Cluster
from odradek.client.security.protocol import AuthenticationError
from odradek.client.settings import ClientSettings

pytest.importorskip("gssapi", reason="needs the package gssapi")
KDC = shutil.which("krb5kdc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(KDC is None, reason="needs krb5-kdc and krb5-admin-server")

REALM = "TEST.ODRADEK"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


class Kerberos:
    """A realm with its KDC and keytabs."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        port = apache.free_port()
        (home / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\n"
            "dns_lookup_realm = false\nrdns = false\ndns_canonicalize_hostname = false\n"
            f"udp_preference_limit = 1\n[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{port}\n}}\n"
        )
        (home / "kdc.conf").write_text(
            f'[kdcdefaults]\nkdc_listen = ""\nkdc_tcp_listen = 127.0.0.1:{port}\n'
            f"[realms]\n{REALM} = {{\ndatabase_name = {home}/principal\n"
            f"key_stash_file = {home}/stash\nacl_file = {home}/kadm5.acl\n}}\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(home / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(home / "kdc.conf"),
            "KRB5RCACHENAME": f"dfl:{home}/rcache",
            "KRB5CCNAME": f"FILE:{home}/tickets",
        }
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        with (home / "kdc.log").open("ab") as log:
            self.process = subprocess.Popen(
                [KDC, "-n"], env=os.environ | self.environment, stdout=log, stderr=log
            )
        deadline_s = time.monotonic() + 30
        while True:
            assert self.process.poll() is None, (home / "kdc.log").read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    def _run(self, command: str, *words: str) -> None:
        path = shutil.which(command, path=f"{os.environ['PATH']}:/usr/sbin")
        done = subprocess.run(
            [str(path), *words], env=os.environ | self.environment,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def keytab(self, principal: str) -> str:
        """A new principal; the file with its key."""
        file = str(self.home / f"{principal.replace('/', '.')}.keytab")
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {file} {principal}")
        return file

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Secured:
    """Our broker in the realm."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.kerberos = Kerberos(home)
        service = self.kerberos.keytab("kafka/localhost")
        self.users = {name: self.kerberos.keytab(name) for name in ("alice", "bob/admin")}
        self.port = apache.free_port()
        inside = apache.free_port()
        options = {
            "listeners": f"PLAINTEXT://127.0.0.1:{inside},CLIENTS://localhost:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "listener.name.clients.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.clients.gssapi.sasl.jaas.config": (
                f'{MODULE} keyTab="{service}" principal="kafka/localhost@{REALM}";'
            ),
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2](.*-admin),DEFAULT",
            "odradek.store.path": str(home / "coordination.db"),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:bob-admin",
        }
        self.broker = OurBroker(home / "broker", None, 1, options)
        self.broker.port = inside

    def properties(self, user: str, *, keytab: str | None = None) -> dict[str, str]:
        jaas = f'{MODULE} keyTab="{keytab or self.users[user]}" principal="{user}@{REALM}";'
        return {
            "bootstrap.servers": f"localhost:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        made = Secured(tmp_path_factory.mktemp("kerberos"))
        for name, value in made.kerberos.environment.items():
            patch.setenv(name, value)
        try:
            made.broker.start()
            yield made
        finally:
            made.broker.end()
            made.kerberos.close()


def log_in(properties: dict[str, str]) -> None:
    async def work() -> None:
        settings = ClientSettings.from_properties(properties, client_id="k", kind="test")
        async with await Cluster.connect(settings, wait_ms=0) as cluster:
            assert await describe_cluster(cluster)

    asyncio.run(asyncio.wait_for(work(), 60))


def test_our_client_logs_in_with_a_keytab(secured: Secured) -> None:
    log_in(secured.properties("alice"))


def test_a_key_of_another_principal_is_refused(secured: Secured) -> None:
    wrong = secured.properties("alice", keytab=secured.users["bob/admin"])
    with pytest.raises(AuthenticationError, match="GSSAPI"):
        log_in(wrong)


def test_a_service_that_the_realm_does_not_have_is_named(secured: Secured) -> None:
    with pytest.raises(AuthenticationError, match="GSSAPI: .*not found in Kerberos database"):
        log_in(secured.properties("alice") | {"sasl.kerberos.service.name": "nobody"})


@pytest.mark.parametrize(("user", "may"), [("alice", False), ("bob/admin", True)])
def test_the_rules_give_the_principal_that_acls_are_for(
    secured: Secured, user: str, *, may: bool
) -> None:
    config = secured.home / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in secured.properties(user).items()))
    words = ["--bootstrap-server", f"localhost:{secured.port}", "--command-config", str(config)]
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "acls", *words, "--list"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode == 0) is may, done.stdout + done.stderr


@pytest.mark.jvm
def test_javas_client_logs_in_with_a_keytab(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = secured.kerberos.environment["KRB5_CONFIG"]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={conf}")
    config = secured.home / "java.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in secured.properties("bob/admin").items()))
    tools = JavaTools(secured.home)
    try:
        words = ["--bootstrap-server", f"localhost:{secured.port}"]
        words += ["--command-config", str(config), "--list"]
        code, out, err = tools.run("acls", words)
    finally:
        tools.close()
    assert code == "0", out + err


@pytest.mark.jvm
def test_our_client_logs_in_to_kafkas_broker(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    conf = secured.kerberos.environment["KRB5_CONFIG"]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={conf}")
    keytab = secured.kerberos.home / "kafka.localhost.keytab"
    port = apache.free_port()
    options = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.clients.gssapi.sasl.jaas.config": (
            f'{MODULE} keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
        ),
    }
    zookeeper = apache.ZooKeeper(tmp_path / "zookeeper")
    broker = apache.Broker(
        tmp_path / "kafka", zookeeper.address, properties=options,
        listeners=[f"CLIENTS://localhost:{port}"],
    )  # fmt: skip
    try:
        broker.wait()
        log_in(secured.properties("alice") | {"bootstrap.servers": f"localhost:{port}"})
    finally:
        broker.stop()
        zookeeper.stop()


def between_brokers(keytab: str, keys: dict[str, str]) -> dict[str, str]:
    """The options of brokers that log in to each other with this key."""
    module = f'{MODULE} keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
    return {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": module,
        "sasl.kerberos.service.name": "kafka",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:kafka;User:ANONYMOUS",
        "connections.max.reauth.ms": "5000",
        **keys,
    }


def is_replicated(address: str, topic: str) -> bool:
    found = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=30)
    return len(found.topics[topic].partitions[0].isrs) == 3


def test_three_brokers_log_in_to_each_other(secured: Secured, tmp_path: pathlib.Path) -> None:
    keytab = str(secured.kerberos.home / "kafka.localhost.keytab")
    options = between_brokers(keytab, {"odradek.store.path": str(tmp_path / "coordination.db")})
    brokers = [
        OurBroker(
            tmp_path / str(number), None, number, options,
            [f"SASL_PLAINTEXT://localhost:{apache.free_port()}"],
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    try:
        for broker in brokers:
            broker.start()
        raw.wait_for_brokers(brokers[0].address, 3, timeout_s=60)
        raw.create_topic(brokers[0].address, "t", 1, replication=3)
        until("all replicas are in sync", lambda: is_replicated(brokers[0].address, "t"))
    finally:
        for broker in brokers:
            broker.end()


@pytest.mark.jvm
def test_brokers_of_both_kinds_log_in_to_each_other(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    conf = secured.kerberos.environment["KRB5_CONFIG"]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={conf}")
    options = between_brokers(str(secured.kerberos.home / "kafka.localhost.keytab"), {})
    zookeeper = apache.ZooKeeper(tmp_path / "zookeeper")
    listeners = [f"SASL_PLAINTEXT://localhost:{apache.free_port()}" for _ in range(3)]
    ours = [
        OurBroker(tmp_path / str(number), zookeeper.address, number, options, [listener])
        for number, listener in enumerate(listeners[1:], 1)
    ]
    kafkas = apache.Broker(
        tmp_path / "kafka", zookeeper.address,
        brokers=3, properties=options, listeners=listeners[:1], heap="512M",
    )  # fmt: skip
    try:
        kafkas.wait()
        for broker in ours:
            broker.start()
        addresses = [kafkas.address, *(broker.address for broker in ours)]
        for number, address in enumerate(addresses):
            raw.wait_for_brokers(address, 3, timeout_s=60)
            raw.create_topic(address, f"t{number}", 3, replication=3)
        for number, address in enumerate(addresses):
            until(
                "all replicas are in sync",
                lambda where=address, what=f"t{number}": is_replicated(where, what),
            )
    finally:
        for broker in ours:
            broker.end()
        kafkas.stop()
        zookeeper.stop()
