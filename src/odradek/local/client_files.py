"""The files with which clients connect to a secure cluster, two for each user, in `D/clients`.

    USER.properties             Java's names; the certificate to trust is in it
    USER.librdkafka.properties  librdkafka's names (confluent-kafka, kcat); it names ca.pem
    ca.pem                      the certificate of the cluster's CA

They hold passwords: mode 0600, the folder 0700. The password of a user is nowhere else: the
coordination store has only what a server needs to check it.
"""

import pathlib
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from odradek.config.properties import parse, render
from odradek.local.directory import LocalError, replace_text
from odradek.local.options import amend
from odradek.security.sasl.jaas import JaasError, parse_jaas

MECHANISM: Final = "SCRAM-SHA-512"
PROTOCOL: Final = "SASL_SSL"
ADMIN: Final = "admin"
APPLICATION: Final = "app"
AUTHORITY: Final = "ca.pem"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_PASSWORD_BYTES: Final = 24
_SUFFIX: Final = ".properties"
_LIBRDKAFKA: Final = ".librdkafka.properties"


class ConnectSettings(NamedTuple):
    """What the clients of a cluster have in common."""

    bootstrap: str
    authority: str | None  # PEM; None: the certificates that the system trusts
    protocol: str = PROTOCOL


class SaslUser(NamedTuple):
    """The name and the password of a user, and for which SASL mechanism."""

    name: str
    password: str
    mechanism: str = MECHANISM

    def __repr__(self) -> str:
        return f"SaslUser({self.name!r})"  # without the password


def new_password() -> str:
    """32 characters that no file format has to escape."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def check_user(name: str) -> None:
    """Refuse a name of which no file can be made.

    Raises:
        LocalError: the name, and the rule.
    """
    if _USER.fullmatch(name) is None:
        raise LocalError(
            f"user {name!r}: the name of a user that gets a file consists of letters, digits, "
            "'_', '-' and '.', and does not begin with '-' or '.'; kafka-configs takes others"
        )


def check_password(password: str) -> None:
    """Refuse a password that clients could not send, or not read from a file.

    Raises:
        LocalError: the rule, without the password.
    """
    if not password or password != password.strip() or not password.isprintable():
        raise LocalError(
            "a password must have at least one character, no white space at its ends and no "
            "control characters"
        )


def java_text(connect: ConnectSettings, login: SaslUser) -> str:
    """A properties file for Java's clients, Kafka's tools and `--command-config`."""
    properties = {
        "bootstrap.servers": connect.bootstrap,
        "security.protocol": connect.protocol,
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": jaas(login),
    }
    if connect.authority is not None and connect.protocol.endswith("SSL"):
        properties["ssl.truststore.type"] = "PEM"
        properties["ssl.truststore.certificates"] = connect.authority
    return f"# User {login.name}: keep this file secret, the password is in it.\n" + "".join(
        _line(key, value) for key, value in properties.items()
    )


def librdkafka_text(connect: ConnectSettings, login: SaslUser, authority: pathlib.Path) -> str:
    """The same for librdkafka, one key=value a line, without escapes."""
    properties = librdkafka(connect, login, authority)
    return f"# User {login.name}: keep this file secret, the password is in it.\n" + "".join(
        f"{key}={value}\n" for key, value in properties.items()
    )


def librdkafka(
    connect: ConnectSettings, login: SaslUser, authority: pathlib.Path
) -> dict[str, str]:
    """The configuration of a librdkafka client, as `confluent_kafka` takes it."""
    properties = {
        "bootstrap.servers": connect.bootstrap,
        "security.protocol": connect.protocol,
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.name,
        "sasl.password": login.password,
    }
    if connect.authority is not None and connect.protocol.endswith("SSL"):
        properties["ssl.ca.location"] = str(authority)
    return properties


def jaas(login: SaslUser) -> str:
    user, password = (
        text.replace("\\", "\\\\").replace('"', '\\"') for text in (login.name, login.password)
    )
    return f'{_MODULE} required username="{user}" password="{password}";'


def login_of(properties: Mapping[str, str]) -> SaslUser | None:
    """The user and password in the properties of a client; None if there are none."""
    try:
        options = parse_jaas(properties["sasl.jaas.config"]).options
        return SaslUser(options["username"], options["password"], properties["sasl.mechanism"])
    except (KeyError, JaasError):
        return None


class ClientFiles:
    """The client files in one folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def java(self, user: str) -> pathlib.Path:
        return self.folder / f"{user}{_SUFFIX}"

    def librdkafka(self, user: str) -> pathlib.Path:
        return self.folder / f"{user}{_LIBRDKAFKA}"

    @property
    def authority(self) -> pathlib.Path:
        return self.folder / AUTHORITY

    def users(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        names = (file.name for file in self.folder.glob(f"*{_SUFFIX}"))
        return sorted(
            name.removesuffix(_SUFFIX) for name in names if not name.endswith(_LIBRDKAFKA)
        )

    def login(self, user: str) -> SaslUser | None:
        """What a user's file has; None if there is no file, or no user is in it."""
        file = self.java(user)
        return login_of(parse(file.read_text())) if file.is_file() else None

    @contextmanager
    def written(self, connect: ConnectSettings, login: SaslUser) -> Iterator[None]:
        """Write or replace the files of one user, if the block, which sets the password, succeeds.

        They are written before it: a password that could not be kept must not be set.

        Raises:
            LocalError: the folder has a certificate of another cluster.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write_authority(connect.authority)
        texts = {
            self.java(login.name): java_text(connect, login),
            self.librdkafka(login.name): librdkafka_text(connect, login, self.authority),
        }
        pending = {file: file.with_name(f"{file.name}.pending") for file in texts}
        try:
            for file, text in texts.items():
                replace_text(pending[file], text, is_secret=True)
            yield
            for file in texts:
                pending[file].replace(file)
        finally:
            for file in pending.values():
                file.unlink(missing_ok=True)

    def _write_authority(self, certificate: str | None) -> None:
        if certificate is None:
            return
        if self.authority.exists() and self.authority.read_text() != certificate:
            raise LocalError(
                f"{self.authority} is the certificate of another CA: name another folder with "
                "--clients"
            )
        replace_text(self.authority, certificate, is_secret=True)

    def refresh(self, connect: ConnectSettings) -> None:
        """Correct the addresses and the certificate in all files; other lines are kept."""
        java = {"bootstrap.servers": connect.bootstrap}
        if connect.authority is not None:
            java["ssl.truststore.certificates"] = connect.authority
            replace_text(self.authority, connect.authority, is_secret=True)
        for user in self.users():
            for file, changes in (
                (self.java(user), java),
                (self.librdkafka(user), {"bootstrap.servers": connect.bootstrap}),
            ):
                if file.is_file() and not changes.items() <= parse(file.read_text()).items():
                    replace_text(file, amend(file.read_text(), changes), is_secret=True)

    def remove(self, user: str) -> None:
        for file in (self.java(user), self.librdkafka(user)):
            file.unlink(missing_ok=True)


def admin_file(path: pathlib.Path) -> str | None:
    """The properties of the administrator of a secure cluster in this directory."""
    file = ClientFiles(path / "clients").java(ADMIN)
    return str(file) if file.is_file() else None


def make_private(folder: pathlib.Path) -> None:
    """Make a folder that only its owner can enter; an existing one becomes such a folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _line(key: str, value: str) -> str:
    r"""`key=value`, with no more escapes than needed: lines of PEM end in `\n`."""
    for line in (f"{key}={value}\n", "{}={}\n".format(key, value.replace("\n", "\\n"))):
        if parse(line) == {key: value}:
            return line
    return render({key: value})
