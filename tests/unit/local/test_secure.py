"""`up --secure`: options, private files, users in the store, and what it refuses."""

import asyncio
import stat
import sys
from datetime import UTC, datetime, timedelta

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.properties import parse
from odradek.local import certificates
from odradek.local.client_files import ClientFiles, SaslUser
from odradek.local.directory import ClusterDirectory, LocalError
from odradek.local.options import UpOptions, write_options
from odradek.local.secure import (
    config_of,
    login_of_brokers,
    refresh_clients,
    renew,
    set_login_of_brokers,
    write_secure_options,
)
from odradek.local.store_users import has_password, opened_store, remove_user, users


@pytest.fixture
def directory(tmp_path):
    return ClusterDirectory(tmp_path / "D")


def up(directory, *, brokers=2, **options):
    said = []
    write_secure_options(directory, UpOptions(**options), brokers=brokers, say=said.append)
    return said


def options(directory, broker_id=0):
    return parse(directory.properties_file(broker_id).read_text())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def in_store(directory, work):
    async def run():
        async with opened_store(config_of(directory, 0)) as store:
            return await work(store)

    return asyncio.run(run())


def test_all_listeners_are_encrypted_and_acls_are_enforced(directory):
    assert up(directory, secure=True) == []

    for broker_id in (0, 1):
        config = BrokerConfig(options(directory, broker_id), host_name="h")
        assert [point.security_protocol for point in config.listeners] == ["SASL_SSL"]
        assert config.inter_broker_listener == "SASL_SSL"
        assert config.authorizer_class_name == "kafka.security.authorizer.AclAuthorizer"
        assert config.super_users == "User:admin;User:broker"
        assert config.unknown() == []
        assert config.odradek_http_host == "127.0.0.1"
    assert directory.is_secured


def test_secrets_are_readable_by_their_owner_only(directory):
    up(directory, secure=True)

    for folder in (directory.path, directory.secrets, directory.clients):
        assert mode(folder) == 0o700, folder
    files = [*directory.secrets.iterdir(), *directory.clients.iterdir()]
    files += [directory.properties_file(0), directory.properties_file(1), directory.coordination]
    assert {file.name for file in files} >= {
        "ca.key", "ca.pem", "broker-0.pem", "broker-1.pem", "admin.properties", "app.properties",
        "admin.librdkafka.properties", "app.librdkafka.properties",
    }  # fmt: skip
    assert {mode(file) for file in files} == {0o600}


def test_the_users_are_in_the_store_before_a_broker_runs(directory):
    up(directory, secure=True)
    files = ClientFiles(directory.clients)
    logins = [login_of_brokers(directory), files.login("admin"), files.login("app")]

    async def known(store):
        return await users(store), [await has_password(store, login) for login in logins]

    mechanisms = ["SCRAM-SHA-512"]
    assert in_store(directory, known) == (
        {"admin": mechanisms, "app": mechanisms, "broker": mechanisms},
        [True, True, True],
    )
    assert len({login.password for login in logins}) == 3


def test_a_wrong_password_is_not_that_of_the_store(directory):
    up(directory, secure=True)

    async def known(store):
        return [await has_password(store, SaslUser(name, "x")) for name in ("app", "nobody")]

    assert in_store(directory, known) == [False, False]


def test_the_next_up_keeps_it_secure_and_keeps_passwords_and_certificates(directory):
    up(directory, secure=True)
    before = {file: file.read_text() for file in directory.path.rglob("*.p*") if file.is_file()}

    assert up(directory) == []
    assert up(directory, secure=True) == []
    assert {file: file.read_text() for file in before} == before


def test_a_removed_user_is_not_restored_by_the_next_up(directory):
    up(directory, secure=True)
    in_store(directory, lambda store: remove_user(store, "app"))
    up(directory)

    assert "app" not in in_store(directory, users)


def test_another_store_gets_the_users(directory):
    up(directory, secure=True)
    directory.coordination.unlink()
    up(directory)

    assert set(in_store(directory, users)) == {"admin", "app", "broker"}


def test_the_brokers_password_can_be_replaced(directory):
    up(directory, secure=True)
    set_login_of_brokers(directory, (0, 1), SaslUser("broker", "later"))
    up(directory)

    assert login_of_brokers(directory) == SaslUser("broker", "later")

    async def known(store):
        return await has_password(store, SaslUser("broker", "later"))

    assert in_store(directory, known)
    assert mode(directory.properties_file(1)) == 0o600


def test_another_port_keeps_the_listener_encrypted(directory):
    up(directory, secure=True)
    up(directory, port=29092)

    assert options(directory, 1)["listeners"] == "SASL_SSL://127.0.0.1:29093"


def test_a_plaintext_cluster_becomes_secure_on_its_ports_and_says_so(directory):
    write_options(directory, UpOptions(), brokers=2)
    before = options(directory, 1)
    said = up(directory, secure=True)

    assert options(directory, 1)["listeners"] == before["listeners"].replace(
        "PLAINTEXT", "SASL_SSL"
    )
    assert options(directory, 1).items() >= (before.items() - {("listeners", before["listeners"])})
    assert said[0].startswith("this cluster was in the clear; from now on its 2 brokers accept")


def test_advertised_listeners_become_secure_and_are_in_the_certificate(directory):
    listeners = {"advertised.listeners": "PLAINTEXT://kafka.example:9092"}
    write_options(directory, UpOptions(properties=listeners), brokers=1)
    up(directory, brokers=1, secure=True)

    assert options(directory)["advertised.listeners"] == "SASL_SSL://kafka.example:9092"
    certificate = (directory.secrets / "broker-0.pem").read_text()
    authority = directory.authority.read_text()
    names = ["kafka.example", "localhost", "127.0.0.1", "::1"]
    assert not certificates.is_due(certificate, authority, names, datetime.now(UTC))


@pytest.mark.parametrize(
    "by_hand",
    ["super.users=User:x", "ssl.keystore.location=/k", "listeners=PLAINTEXT://:1,EXTRA://:2"],
)
def test_what_was_configured_by_hand_is_refused_and_not_changed(directory, by_hand):
    write_options(directory, UpOptions(), brokers=2)
    file = directory.properties_file(1)
    file.write_text(file.read_text() + by_hand + "\n")
    before = file.read_text()

    with pytest.raises(LocalError, match=f"{by_hand.partition('=')[0]}.*by hand"):
        up(directory, secure=True)
    assert file.read_text() == before
    assert not directory.secrets.exists()


def test_an_interrupted_conversion_is_continued(directory):
    up(directory, secure=True)
    # As after an interruption before the file of broker 0, which is written last.
    text = directory.properties_file(0).read_text().replace("SASL_SSL://", "PLAINTEXT://")
    kept = [line for line in text.splitlines() if not line.startswith(("ssl", "sasl", "super"))]
    kept = [line for line in kept if not line.startswith(("listener.", "auth", "security"))]
    directory.properties_file(0).write_text("\n".join(kept) + "\n")
    assert not directory.is_secured

    up(directory, secure=True)
    assert directory.is_secured
    brokers = login_of_brokers(directory)
    assert brokers.password in directory.properties_file(1).read_text()

    async def known(store):
        return await has_password(store, brokers)

    assert in_store(directory, known)


def test_certificates_that_expire_soon_are_renewed(directory):
    up(directory, secure=True)
    authority = certificates.Certificate(
        (directory.secrets / "ca.key").read_text(), directory.authority.read_text()
    )
    old = certificates.issue(
        authority, "broker-1", ["localhost"], datetime.now(UTC) - timedelta(days=800)
    )
    file = directory.secrets / "broker-1.pem"
    file.write_text(old.key + old.certificate)

    assert renew(directory, [0, 1]) == ["broker 1 has a new certificate"]
    assert certificates.expires(file.read_text()) > datetime.now(UTC) + timedelta(days=800)
    assert renew(directory, [0, 1]) == []


def test_client_files_follow_the_addresses(directory):
    up(directory, secure=True)
    refresh_clients(directory, "127.0.0.1:7,127.0.0.1:8")

    text = ClientFiles(directory.clients).java("app").read_text()
    assert parse(text)["bootstrap.servers"] == "127.0.0.1:7,127.0.0.1:8"
    assert parse(text)["ssl.truststore.certificates"].startswith("-----BEGIN CERTIFICATE-----\n")


def test_without_cryptography_the_command_that_installs_it_is_named(directory, monkeypatch):
    monkeypatch.delitem(sys.modules, "odradek.local.certificates")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delattr("odradek.local.certificates")

    with pytest.raises(LocalError, match=r"-m pip install 'cryptography>=\d+'$"):
        up(directory, secure=True)
    assert not directory.path.exists()
