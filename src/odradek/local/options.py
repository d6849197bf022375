"""The properties files that `odradek up` writes.

A new cluster's files get the options below. In a file that exists only those options are changed
that the command line names.

    broker.id                                   0, 1, 2 ...
    listeners                                   PLAINTEXT on --host, --port + id or a free port;
                                                SASL_SSL with --secure
    odradek.http.host, odradek.http.port        likewise, for metrics and health; with --secure on
                                                the loopback interface
    log.dirs                                    D/broker-N/data
    odradek.store.path                          D/coordination.db, one for all brokers
    zookeeper.connect                           --zookeeper, in the place of the former
    broker.rack                                 --racks, in turn
    offsets.topic.replication.factor            min(3, brokers)
    transaction.state.log.replication.factor    min(3, brokers)
    transaction.state.log.min.isr               min(2, brokers)

With --secure also the options of `secure_options`. A file that has such listeners keeps them.
"""

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.config.properties import parse, render
from odradek.local.directory import ClusterDirectory, ClusterRecord, LocalError, replace_text
from odradek.local.place import moved_options, moved_text

BROKERS_MAX: Final = 100
PLAIN: Final = "PLAINTEXT"
SECURE: Final = "SASL_SSL"
LOOPBACK: Final = "127.0.0.1"
_OWN_KEYS: Final = {
    "broker.id": "brokers are numbered from 0 by --brokers",
    "listeners": "use --host and --port",
    "odradek.store.path": "it is in --dir",
    "odradek.http.host": "use --host",
    "odradek.http.port": "use --http-port",
    "zookeeper.connect": "use --zookeeper",
}
_HEADER: Final = (
    "# Written by `odradek up`, which later changes only the options that its user names.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of `odradek up`; None: as it is, or the default."""

    brokers: int | None = None
    host: str | None = None
    port: int | None = None
    http_port: int | None = None
    racks: tuple[str, ...] = ()  # broker N is in rack N modulo their number
    zookeeper: str | None = None
    secure: bool = False
    faults: bool = False  # start the brokers so that faults can be injected
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse impossible combinations.

        Raises:
            LocalError: with the option, its value and the rule.
        """
        brokers = 1 if self.brokers is None else self.brokers
        if not 1 <= brokers <= BROKERS_MAX:
            raise LocalError(f"--brokers {brokers}: must be from 1 to {BROKERS_MAX}")
        for name, port in (("--port", self.port), ("--http-port", self.http_port)):
            if port is not None and not 1 <= port <= 65_536 - brokers:
                raise LocalError(f"{name} {port}: must be from 1 to {65_536 - brokers}")
        if self.port and self.http_port and abs(self.port - self.http_port) < brokers:
            raise LocalError(
                f"--port {self.port} and --http-port {self.http_port}: "
                f"must be at least {brokers} apart, each broker takes the next"
            )
        if any(not rack.strip() for rack in self.racks):
            raise LocalError(f"--racks {','.join(self.racks)}: a rack must have a name")
        if self.racks and self.brokers is not None and self.brokers < len(self.racks):
            raise LocalError(
                f"--racks {','.join(self.racks)} and --brokers {self.brokers}: "
                "there must be a broker for each rack"
            )
        if self.host in {"", "0.0.0.0", "::"}:
            raise LocalError(
                f"--host {self.host!r}: must be an address that clients can connect to"
            )
        for key in self.properties:
            if key in _OWN_KEYS:
                raise LocalError(f"{key}: not to be set here, {_OWN_KEYS[key]}")


def write_options(
    directory: ClusterDirectory,
    wanted: UpOptions,
    *,
    brokers: int,
    secured: Mapping[int, Mapping[str, str]] = {},
) -> None:
    """Write or amend the properties file of each broker.

    `secured` are the options of brokers whose files become those of a secure cluster.

    Raises:
        LocalError: a value is wrong, or a port is in use; nothing is written.
    """
    from odradek.local.startable import (  # noqa: PLC0415 - for starts only
        check_startable,
        free_ports,
    )

    host = wanted.host or LOOPBACK
    ports = free_ports(host, 2 * brokers)
    made: dict[int, tuple[pathlib.Path, str, bool]] = {}
    for broker_id in reversed(range(brokers)):
        file = directory.properties_file(broker_id)
        text = file.read_text() if file.exists() else _HEADER
        is_new = not file.exists()
        options = _first(directory, broker_id, brokers) if is_new else {}
        former = parse(text).get("listeners", "")
        is_secure = broker_id in secured or former.startswith(f"{SECURE}://")
        if is_new or wanted.port or wanted.host:
            port = wanted.port + broker_id if wanted.port else ports[2 * broker_id]
            options["listeners"] = f"{PLAIN}://{_bracketed(host)}:{port}"
        elif broker_id in secured:
            options["listeners"] = former
        if is_secure and "listeners" in options:
            options["listeners"] = options["listeners"].replace(f"{PLAIN}://", f"{SECURE}://")
        if is_new or wanted.http_port or wanted.host:
            port = wanted.http_port + broker_id if wanted.http_port else ports[2 * broker_id + 1]
            http = LOOPBACK if is_secure else host
            options |= {"odradek.http.host": http, "odradek.http.port": str(port)}
        if wanted.racks:
            options["broker.rack"] = wanted.racks[broker_id % len(wanted.racks)]
        if wanted.zookeeper:
            options["zookeeper.connect"] = wanted.zookeeper
        options |= {**secured.get(broker_id, {}), **wanted.properties}
        if "log.dirs" in wanted.properties:
            options["log.dirs"] = _log_dirs(
                wanted.properties["log.dirs"], directory.broker(broker_id), brokers=brokers
            )
        made[broker_id] = (file, amend(text, options), is_secure)
    check_startable({i: parse(text) for i, (_, text, _) in sorted(made.items())})
    # Broker 0's file is written last: it marks the cluster as secure, so an interrupted run is
    # repeated. The file of a secure cluster's broker contains the inter-broker password.
    for file, text, is_secure in made.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, text, is_secret=is_secure)


def options_of(directory: ClusterDirectory, broker_id: int) -> dict[str, str]:
    """The options in a broker's file, with paths as they are since the directory was moved.

    Empty if there is no file yet.
    """
    file = directory.properties_file(broker_id)
    if not file.exists():
        return {}
    options, former = parse(file.read_text()), directory.former()
    return moved_options(options, {former: directory.path}) if former else options


def settle(directory: ClusterDirectory, state: ClusterRecord) -> None:
    """Rewrite the paths of a directory that has been moved; may be repeated if interrupted."""
    if state.former is None:
        return
    for broker_id in state.brokers:
        file = directory.properties_file(broker_id)
        if file.exists():
            rewrite(file, options_of(directory, broker_id))
    move_client_files(directory, {state.former: directory.path})
    state.place = state.former = None
    directory.save(state)


def rewrite(file: pathlib.Path, changes: Mapping[str, str]) -> None:
    """Set options in a properties file, which stays secret if it is."""
    is_secret = not file.stat().st_mode & 0o077
    replace_text(file, amend(file.read_text(), changes), is_secret=is_secret)


def move_client_files(
    directory: ClusterDirectory, places: Mapping[pathlib.Path, pathlib.Path]
) -> None:
    """Rewrite the paths in the files of clients: those of librdkafka name the CA's certificate."""
    for file in directory.clients.glob("*.properties"):
        replace_text(file, moved_text(file.read_text(), places), is_secret=True)


def read_log_dirs(directory: ClusterDirectory, broker_id: int) -> list[str]:
    """The log directories in a broker's properties file."""
    options = options_of(directory, broker_id)
    return [entry.strip() for entry in options.get("log.dirs", "").split(",") if entry.strip()]


def amend(text: str, changes: Mapping[str, str]) -> str:
    """A properties file with some options set; every other line, comments too, is kept."""
    for key, value in changes.items():
        if parse(text).get(key) == value:
            continue
        line = f"{key}={value}"
        if parse(line) != {key: value}:
            line = render({key: value}).rstrip("\n")
        lines = text.splitlines()
        there = [n for n, old in enumerate(lines) if old.partition("=")[0].strip() == key]
        replaced = "\n".join([line if n in there else old for n, old in enumerate(lines)])
        # A line that continues another, or is continued, cannot be replaced alone. Then the
        # option is set once more: of several lines for one option the last is in effect.
        if there and parse(replaced) == parse(text) | {key: value}:
            text = replaced + "\n"
        else:
            text = "\n".join([*lines, *([""] if text.rstrip().endswith("\\") else []), line, ""])
    return text


def _first(directory: ClusterDirectory, broker_id: int, brokers: int) -> dict[str, str]:
    return {
        "broker.id": str(broker_id),
        "log.dirs": str(directory.broker(broker_id) / "data"),
        "odradek.store.path": str(directory.coordination),
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }


def _log_dirs(configured: str, home: pathlib.Path, *, brokers: int) -> str:
    dirs = [pathlib.Path(entry.strip()) for entry in configured.split(",")]
    if brokers > 1 and any(entry.is_absolute() for entry in dirs):
        raise LocalError(
            f"log.dirs={configured}: must be relative (to each broker's directory), "
            f"because {brokers} brokers cannot share one"
        )
    return ",".join(str(home / entry) for entry in dirs)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
