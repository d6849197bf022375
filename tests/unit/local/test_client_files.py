"""The files of users: parsed by Java's rules and by librdkafka's, private, complete or absent."""

import stat

import pytest

from odradek.client.settings import ClientSettings
from odradek.config.properties import parse
from odradek.local.client_files import (
    ClientFiles,
    ConnectSettings,
    SaslUser,
    check_password,
    check_user,
    login_of,
    new_password,
)
from odradek.local.directory import LocalError

PEM = "-----BEGIN CERTIFICATE-----\nMIIB=\nabc==\n-----END CERTIFICATE-----\n"
CONNECT = ConnectSettings("127.0.0.1:1,127.0.0.1:2", PEM)
APP = SaslUser("app", "secret")


@pytest.fixture
def files(tmp_path):
    return ClientFiles(tmp_path / "clients")


def write(files, user=APP, connect=CONNECT):
    with files.written(connect, user):
        pass


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def pairs(file):
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_our_client_takes_the_file(files):
    write(files)
    settings = ClientSettings.from_properties(parse(files.java("app").read_text()))

    assert settings.bootstrap_servers == ("127.0.0.1:1", "127.0.0.1:2")
    assert settings.security.protocol == "SASL_SSL"
    assert settings.security.mechanism == "SCRAM-SHA-512"
    assert settings.security.trust_store.certificates == PEM.strip()
    assert settings.security.checks_host_name


def test_librdkafkas_file_is_a_dict_of_its_lines(files):
    write(files)

    assert pairs(files.librdkafka("app")) == {
        "bootstrap.servers": "127.0.0.1:1,127.0.0.1:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": "secret",
        "ssl.ca.location": str(files.folder / "ca.pem"),
    }
    assert (files.folder / "ca.pem").read_text() == PEM


@pytest.mark.parametrize("password", ['a"b', "a\\b", "ü=:# x", None])
def test_any_password_comes_back(files, password):
    password = password or new_password()
    write(files, SaslUser("app", password))

    assert files.login("app") == SaslUser("app", password)
    assert pairs(files.librdkafka("app"))["sasl.password"] == password


def test_files_are_private_and_so_is_the_folder(files):
    write(files)

    assert mode(files.folder) == 0o700
    assert {mode(file) for file in files.folder.iterdir()} == {0o600}


def test_a_new_password_replaces_the_former_only_if_it_is_set(files):
    write(files)
    with (
        pytest.raises(ZeroDivisionError),
        files.written(CONNECT, SaslUser("app", "later")),
    ):
        1 / 0  # noqa: B018

    assert files.login("app") == APP
    assert sorted(file.name for file in files.folder.iterdir()) == [
        "app.librdkafka.properties",
        "app.properties",
        "ca.pem",
    ]
    write(files, SaslUser("app", "later"))
    assert files.login("app") == SaslUser("app", "later")


def test_other_addresses_are_corrected_and_other_lines_kept(files):
    write(files)
    with files.java("app").open("a") as file:
        file.write("# mine\nlinger.ms=7\n")
    files.refresh(ConnectSettings("127.0.0.1:9", PEM.replace("abc", "xyz")))

    java = parse(files.java("app").read_text())
    assert java["bootstrap.servers"] == "127.0.0.1:9"
    assert "xyz" in java["ssl.truststore.certificates"]
    assert java["linger.ms"] == "7"
    assert "# mine" in files.java("app").read_text()
    assert pairs(files.librdkafka("app"))["bootstrap.servers"] == "127.0.0.1:9"
    assert "xyz" in files.authority.read_text()
    assert mode(files.java("app")) == mode(files.librdkafka("app")) == 0o600


def test_the_certificate_of_another_cluster_is_not_overwritten(files):
    write(files)

    with pytest.raises(LocalError, match="certificate of another CA"):
        write(files, SaslUser("kim", "x"), ConnectSettings("h:1", "other"))
    assert files.users() == ["app"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", ".x", "a b", "a\n"])
def test_names_of_which_no_file_can_be_made_are_refused(name):
    with pytest.raises(LocalError, match="the name of a user"):
        check_user(name)


@pytest.mark.parametrize("password", ["", " x", "x ", "a\nb", "a\0b"])
def test_passwords_that_no_file_can_hold_are_refused_without_being_shown(password):
    with pytest.raises(LocalError, match="a password must have") as refused:
        check_password(password)
    assert password.strip() not in str(refused.value) or not password.strip()


def test_passwords_are_random_and_not_printed():
    assert new_password() != new_password()
    assert len(new_password()) == 32
    assert "secret" not in f"{APP} {APP!r}"


def test_properties_without_a_user_have_none():
    assert login_of({}) is None
    assert login_of({"sasl.jaas.config": "x", "sasl.mechanism": "PLAIN"}) is None
