"""`odradek up --secure`: TLS, SCRAM and ACLs for a cluster on this machine.

    D/secrets/ca.key, ca.pem    the key and the certificate of the cluster's own CA
    D/secrets/broker-N.pem      the key and the certificates of broker N
    D/secrets/page.pem          those of the page that has a log-in
    D/clients/USER.properties   what a client needs (`odradek.local.client_files`)

A directory is secure if its brokers listen with SASL_SSL and it has a CA; whatever starts a broker
in it keeps it so, and replaces certificates that expire soon. The brokers authenticate each other
with SCRAM, as the user `broker`: it needs no second listener, and Apache Kafka's brokers can do it
with the same options. Credentials are written into the coordination store before the first broker
runs, because without them the brokers cannot connect to each other.
"""

import asyncio
import pathlib
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

from odradek.broker.admin.acls import ACL_AUTHORIZER
from odradek.config.broker import BrokerConfig
from odradek.local.client_files import (
    ADMIN,
    APPLICATION,
    MECHANISM,
    ClientFiles,
    ConnectSettings,
    SaslUser,
    jaas,
    login_of,
    make_private,
    new_password,
)
from odradek.local.directory import ClusterDirectory, LocalError, replace_text
from odradek.local.options import (
    LOOPBACK,
    PLAIN,
    SECURE,
    UpOptions,
    amend,
    options_of,
    write_options,
)
from odradek.local.store_users import has_password, opened_store, set_password
from odradek.model.extras import install

if TYPE_CHECKING:
    from odradek.local.certificates import Certificate

BROKER: Final = "broker"
SUPER_USERS: Final = f"User:{ADMIN};User:{BROKER}"
_LISTENER: Final = f"listener.name.{SECURE.lower()}."
_JAAS: Final = f"{_LISTENER}{MECHANISM.lower()}.sasl.jaas.config"
_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")
# Options of a cluster that was made secure, or got its listeners, in another way.
_BY_HAND: Final = (
    "authorizer.class.name", "inter.broker.listener.name", "listener.", "sasl.",
    "security.inter.broker.protocol", "ssl.", "super.users",
)  # fmt: skip
_NEEDS: Final = f"--secure needs the package cryptography: {install('secure')}"


def connect_of(directory: ClusterDirectory, bootstrap: str) -> ConnectSettings:
    """What clients of a secure cluster have in common."""
    return ConnectSettings(bootstrap, directory.authority.read_text())


# ---------------------------------------------------------------------------------- the options


def secure_options(directory: ClusterDirectory, broker_id: int, login: SaslUser) -> dict[str, str]:
    """The options of a secure broker, beside its listeners; `login` is that of the brokers."""
    return {
        "security.inter.broker.protocol": SECURE,
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        _JAAS: jaas(login),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(_certificate_file(directory, broker_id)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory.authority),
        "authorizer.class.name": ACL_AUTHORIZER,
        "odradek.http.token.file": str(directory.http_token),  # one for all brokers
        "super.users": SUPER_USERS,
    }


def changes_of(directory: ClusterDirectory, brokers: int) -> dict[int, dict[str, str]]:
    """The options by which the brokers of this directory, new or in the clear, become secure.

    Raises:
        LocalError: the package `cryptography` is missing, or the user has configured security
            otherwise.
    """
    _certificates()
    for broker_id in range(brokers):
        _refuse_by_hand(directory, broker_id)
    held = login_of_brokers(directory)
    login = held or SaslUser(BROKER, new_password())
    changes = {i: secure_options(directory, i, login) for i in range(brokers)}
    for broker_id in range(brokers):
        changes[broker_id]["odradek.http.host"] = LOOPBACK  # it has no TLS
        advertised = options_of(directory, broker_id).get("advertised.listeners")
        if advertised is not None:
            changes[broker_id]["advertised.listeners"] = _secured(advertised)
    return changes


def announced(directory: ClusterDirectory, brokers: int) -> list[str]:
    """What changes for the users of a cluster that was in the clear; nothing for a new one."""
    if not directory.properties_file(0).exists():
        return []
    return [
        (
            f"this cluster was in the clear; from now on its {brokers} "
            f"broker{'s' * (brokers > 1)} accept{'s' * (brokers == 1)} only encrypted connections "
            "(SASL_SSL) of users with a password"
        ),
        (
            "its clients need a file of clients/ and permissions (odradek allow); topics, records, "
            "committed offsets and ACLs stay as they are"
        ),
    ]


def _refuse_by_hand(directory: ClusterDirectory, broker_id: int) -> None:
    options = options_of(directory, broker_id)
    file = directory.properties_file(broker_id)
    if options.get("ssl.keystore.location") == str(_certificate_file(directory, broker_id)):
        return  # an `up --secure` that was interrupted has written them
    for name in options:
        if name.startswith(_BY_HAND):
            raise LocalError(
                f"{file} sets {name}: --secure would replace what was configured by hand; remove "
                "the option, or continue by hand (docs/security.md)"
            )
    listeners = options.get("listeners", f"{PLAIN}://")
    if "," in listeners or not listeners.startswith(f"{PLAIN}://"):
        raise LocalError(
            f"{file} has listeners={listeners}: --secure changes one {PLAIN} listener into "
            f"{SECURE}, not others; leave one, or continue by hand (docs/security.md)"
        )


def _secured(listeners: str) -> str:
    return listeners.replace(f"{PLAIN}://", f"{SECURE}://")


# ------------------------------------------------------------------------------- what is prepared


def write_secure_options(
    directory: ClusterDirectory, options: UpOptions, *, brokers: int, say: Callable[[str], None]
) -> None:
    """Write the options of a secure cluster, with what they name and the users they need.

    Each step can be done again, after a run that was interrupted.

    Raises:
        LocalError: the package `cryptography` is missing, or the user has configured security
            otherwise.
        StartupError, StoreError: the coordination store cannot be used.
    """
    changes = {} if directory.is_secured else changes_of(directory, brokers)
    if changes:
        for line in announced(directory, brokers):
            say(line)
        make_private(directory.path)
        make_authority(directory)
        files = ClientFiles(directory.clients)
        make_private(files.folder)
        for name in (ADMIN, APPLICATION):
            with files.written(
                connect_of(directory, ""), files.login(name) or SaslUser(name, new_password())
            ):
                pass  # the brokers' store gets the passwords below
    write_options(directory, options, brokers=brokers, secured=changes)
    for line in renew(directory, range(brokers)):
        say(line)
    config = config_of(directory, 0)
    if changes and config.zookeeper_connect and not config.zookeeper_set_acl:
        say(
            f"every client that reaches ZooKeeper at {config.zookeeper_connect} can change users "
            "and ACLs: docs/operations.md, How do I secure the connection to ZooKeeper?"
        )
    asyncio.run(_write_users(directory))


def refresh_clients(directory: ClusterDirectory, bootstrap: str) -> None:
    ClientFiles(directory.clients).refresh(connect_of(directory, bootstrap))


def renew(directory: ClusterDirectory, broker_ids: Sequence[int]) -> list[str]:
    """Make the certificates of these brokers that are missing or expire soon.

    Returns a line for each that is replaced. Without the package `cryptography` those that exist
    stay.

    Raises:
        LocalError: the package `cryptography` is missing.
    """
    are_there = all(_certificate_file(directory, i).exists() for i in broker_ids)
    if are_there and find_spec("cryptography") is None:
        return []
    certificates = _certificates()
    authority = make_authority(directory)
    now, renewed = datetime.now(UTC), []
    for broker_id in broker_ids:
        file, names = _certificate_file(directory, broker_id), _names(directory, broker_id)
        if file.exists():
            if not certificates.is_due(file.read_text(), authority.certificate, names, now):
                continue
            renewed.append(f"broker {broker_id} has a new certificate")
        made = certificates.issue(authority, f"{BROKER}-{broker_id}", names, now)
        replace_text(file, made.key + made.certificate + authority.certificate, is_secret=True)
    return renewed


def page_certificate(directory: ClusterDirectory, names: Iterable[str]) -> pathlib.Path:
    """The file with the key and the certificates of the page, made anew if it expires soon.

    Raises:
        LocalError: the package `cryptography` is missing.
    """
    certificates = _certificates()
    authority, now = make_authority(directory), datetime.now(UTC)
    file = directory.secrets / "page.pem"
    wanted = {*names, *_LOCAL_NAMES, socket.gethostname(), socket.getfqdn()}
    valid = {name for name in wanted - set(_EVERY_INTERFACE) if name and name.isascii()}
    held = file.read_text() if file.exists() else ""
    if not held or certificates.is_due(held, authority.certificate, valid, now):
        made = certificates.issue(authority, "page", valid, now)
        replace_text(file, made.key + made.certificate + authority.certificate, is_secret=True)
    return file


def make_authority(directory: ClusterDirectory) -> "Certificate":
    """The CA, which is made if there is none and renewed if it would expire too soon."""
    certificates = _certificates()
    key, certificate = directory.secrets / "ca.key", directory.authority
    now = datetime.now(UTC)
    held: Certificate | None = None
    if key.exists() and certificate.exists():
        held = certificates.Certificate(key.read_text(), certificate.read_text())
        if not certificates.authority_is_due(held.certificate, now):
            return held
    made: Certificate = certificates.make_authority(f"odradek {directory.path.name}", now, held)
    make_private(directory.secrets)
    replace_text(key, made.key, is_secret=True)
    replace_text(certificate, made.certificate, is_secret=True)
    return made


def _names(directory: ClusterDirectory, broker_id: int) -> set[str]:
    """The names by which clients may reach a broker."""
    config = config_of(directory, broker_id)
    points = (*config.listeners, *config.advertised_listeners)
    hosts = {point.host for point in points} - set(_EVERY_INTERFACE)
    names = {*hosts, *_LOCAL_NAMES, socket.gethostname(), socket.getfqdn()}
    return {name for name in names if name and name.isascii()}


# ---------------------------------------------------------------------------------------- users


async def _write_users(directory: ClusterDirectory) -> None:
    """Write the users of this directory into the store, if it does not have the brokers' user.

    So they are written again after `--zookeeper` has named another store; a user that was removed
    from the store alone is not.
    """
    brokers = login_of_brokers(directory)
    if brokers is None:
        return
    async with opened_store(config_of(directory, 0)) as store:
        if not await has_password(store, brokers):
            files = ClientFiles(directory.clients)
            for login in [brokers, *filter(None, map(files.login, files.users()))]:
                await set_password(store, login)
    if directory.coordination.exists():
        directory.coordination.chmod(0o600)


def login_of_brokers(directory: ClusterDirectory) -> SaslUser | None:
    options = options_of(directory, 0)
    if _JAAS not in options:
        return None
    return login_of({"sasl.jaas.config": options[_JAAS], "sasl.mechanism": MECHANISM})


def set_login_of_brokers(
    directory: ClusterDirectory, brokers: Iterable[int], login: SaslUser
) -> None:
    """Write the brokers' password into their options; it is in effect when they start."""
    for broker_id in brokers:
        file = directory.properties_file(broker_id)
        replace_text(file, amend(file.read_text(), {_JAAS: jaas(login)}), is_secret=True)


# ---------------------------------------------------------------------------------------- files


def config_of(directory: ClusterDirectory, broker_id: int) -> BrokerConfig:
    return BrokerConfig(options_of(directory, broker_id), host_name=socket.getfqdn())


def _certificate_file(directory: ClusterDirectory, broker_id: int) -> pathlib.Path:
    return directory.secrets / f"broker-{broker_id}.pem"


def _certificates() -> ModuleType:
    try:
        from odradek.local import certificates  # noqa: PLC0415 - an extra
    except ImportError:
        raise LocalError(_NEEDS) from None
    return certificates
