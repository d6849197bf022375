"""The directory of a cluster on this machine: its files, and the record of its brokers.

    D/cluster.json                  the brokers, their processes and their target states
    D/coordination.db               the coordination store of all its brokers
    D/cluster.lock                  held by a command that changes any of this
    D/broker-N/server.properties    one broker's options: the user may edit them
    D/broker-N/data/                its log directory, in Kafka's format
    D/logs/broker-N.log             its output
    D/faults/                       sockets over which faults are injected, if asked for
    D/secrets/                      of a secure cluster: keys and certificates of CA and brokers
    D/clients/                      of a secure cluster: what clients need, one file for each user

`cluster.json` is replaced atomically, so a reader finds the old one or the new one and needs no
lock. Everything else about a broker is in its properties file only.
"""

import fcntl
import json
import os
import pathlib
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from odradek.local import processes
from odradek.local.place import RECORD, DirectoryPlace, former_of, original_of, place_of
from odradek.local.processes import ProcessId
from odradek.model.command import Command, command, flag
from odradek.model.errors import OdradekError

FORMAT: Final = 1
DEFAULT_DIR: Final = "odradek-data"

LOG_BYTES_MAX: Final = 64 << 20
LOCK_WAIT_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.02


def unless_default(path: pathlib.Path) -> tuple[str, ...]:
    """The words that name a directory in a command of `odradek`; none for the default one."""
    return () if str(path) == DEFAULT_DIR else flag("--dir", path)


class LocalError(OdradekError):
    """A command cannot be carried out; the message has the reason, and what to do instead."""


class TargetState(StrEnum):
    """The state that the last command set. A broker that should run and does not has crashed."""

    RUNNING = "running"
    STOPPED = "stopped"
    KILLED = "killed"


@dataclass(slots=True)
class BrokerRecord:
    """What is recorded of one broker beside its properties file."""

    wanted: TargetState = TargetState.STOPPED
    process: ProcessId | None = None
    ready: bool = False
    # As it reported when it was ready, in this process or the last.
    listeners: list[str] = field(default_factory=list)
    http: str | None = None


@dataclass(slots=True)
class ClusterRecord:
    """The content of `cluster.json`, and what the directory's place says about it."""

    up: bool  # whether the last of `up` and `down` was `up`
    brokers: dict[int, BrokerRecord]
    # Copies of the directory have the same one. It is not the cluster id of Kafka's protocol.
    id: str = field(default="", compare=False)
    # Where the directory was when its files were written; None for where it is now.
    place: DirectoryPlace | None = field(default=None, compare=False)
    former: pathlib.Path | None = field(default=None, compare=False)  # what its files contain
    original: pathlib.Path | None = field(default=None, compare=False)  # it is a copy of that one


class ClusterDirectory:
    """The directory of one cluster. Nothing is created before `save`."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = pathlib.Path(os.path.abspath(path))

    def properties_file(self, broker_id: int) -> pathlib.Path:
        return self.broker(broker_id) / "server.properties"

    def broker(self, broker_id: int) -> pathlib.Path:
        return self.path / f"broker-{broker_id}"

    @property
    def coordination(self) -> pathlib.Path:
        return self.path / "coordination.db"

    @property
    def secrets(self) -> pathlib.Path:
        return self.path / "secrets"

    @property
    def authority(self) -> pathlib.Path:
        """The certificate of the cluster's own CA."""
        return self.secrets / "ca.pem"

    @property
    def http_token(self) -> pathlib.Path:
        """The token for the HTTP ports of a secure cluster's brokers."""
        return self.secrets / "http.token"

    @property
    def is_secured(self) -> bool:
        """Whether `up --secure` has made this cluster secure: its brokers listen with SASL_SSL."""
        if not self.authority.exists():
            return False
        lines = self.properties_file(0).read_text().splitlines()
        return any(line.startswith("listeners=SASL_SSL://") for line in lines)

    @property
    def clients(self) -> pathlib.Path:
        return self.path / "clients"

    def faults(self, broker_id: int) -> pathlib.Path:
        """The socket over which faults of a broker are injected (`odradek.local.faults`)."""
        return self.path / "faults" / f"broker-{broker_id}.sock"

    @property
    def has_faults(self) -> bool:
        """Whether the brokers are started so that faults can be injected."""
        return (self.path / "faults").is_dir()

    def log(self, broker_id: int) -> pathlib.Path:
        return self.path / "logs" / f"broker-{broker_id}.log"

    def load(self) -> ClusterRecord | None:
        """The record of the cluster; None if there is none.

        Raises:
            LocalError: the directory has other files, or the record is damaged.
        """
        file = self.path / RECORD
        try:
            text = file.read_text()
        except FileNotFoundError:
            # With only the lock's file a cluster is being created, or its creation was interrupted.
            there = {e.name for e in self.path.iterdir()} if self.path.is_dir() else set()
            if there and "cluster.lock" not in there:
                raise LocalError(
                    f"{self.path} is not empty and contains no cluster: choose another --dir"
                ) from None
            return None
        except NotADirectoryError:
            raise LocalError(f"{self.path} is not a directory: choose another --dir") from None
        try:
            raw = json.loads(text)
            _refuse_other_version(file, raw)
            state = _decode(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LocalError(f"{file} is damaged ({error!r}): repair or remove it") from None
        self._locate(state)
        return state

    def _locate(self, state: ClusterRecord) -> None:
        """Compare the recorded place of the directory with where it is.

        In a copy nothing is kept of the processes and their addresses: they are the original's.
        """
        if state.place is not None:
            state.original = original_of(self.path, state.place, state.id)
            state.former = former_of(self.path, state.place)
        if state.original is not None:
            state.up = False
            state.brokers = {broker_id: BrokerRecord() for broker_id in state.brokers}
        for record in state.brokers.values():
            if record.process and not self._has_started(record.process):
                record.process = None

    def _has_started(self, process: ProcessId) -> bool:
        """Whether a process writes its output here, or into a file that was deleted.

        A directory that was copied, and whose original has been moved since, has the processes of
        the original in its record.
        """
        output = processes.output_of(process)
        if output is None or not output.exists():
            return True
        logs = place_of(self.path / "logs")
        theirs = place_of(output.parent)
        return logs is not None and theirs is not None and logs.identity == theirs.identity

    def command(self, *words: str) -> Command:
        """A command of `odradek` about this directory."""
        return command("odradek", *words, *flag("--dir", self.path))

    def expect(self) -> ClusterRecord:
        """The record of the cluster.

        Raises:
            LocalError: there is none.
        """
        state = self.load()
        if state is None:
            raise LocalError(
                f"there is no cluster in {self.path}: create one with odradek up, "
                "or choose another --dir"
            )
        return state

    def former(self) -> pathlib.Path | None:
        """The former path of this directory that its files contain; None if it is the present."""
        state = self.load() if (self.path / RECORD).exists() else None
        return state.former if state is not None else None

    def refuse_copy(self, state: ClusterRecord) -> None:
        """Refuse to start or stop brokers in a copy beside its original.

        Raises:
            LocalError: it is a copy; with what makes it a cluster of its own.
        """
        if state.original is not None:
            raise LocalError(
                f"{self.path} is a copy of {state.original}, with its ports, and runs no broker: "
                f"{self.command('clone')} makes it a cluster of its own; those of the original are "
                f"started and stopped in {state.original}"
            )

    def stopping(self) -> tuple[int, ...]:
        """The brokers of a cluster that is being taken down as a whole; none if it is not.

        For a broker that was asked to stop. It never raises: without an answer the broker stops
        by itself.
        """
        try:
            state = self.load()
        except (LocalError, OSError):
            return ()
        if state is None or state.up:
            return ()
        return tuple(
            i for i, record in state.brokers.items() if record.wanted is TargetState.STOPPED
        )

    def save(self, state: ClusterRecord) -> None:
        """Replace the record of the cluster atomically."""
        self.path.mkdir(parents=True, exist_ok=True)
        state.id = state.id or uuid.uuid4().hex
        place = state.place if state.former else place_of(self.path)
        text = json.dumps(_encode(state, place), indent=1) + "\n"
        replace_text(self.path / RECORD, text)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock this directory, because two commands at once would overwrite each other's record.

        Raises:
            LocalError: another command holds the lock for too long.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            self.path / "cluster.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            deadline_s = time.monotonic() + LOCK_WAIT_S
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline_s:
                    raise LocalError(
                        f"another odradek command has been changing {self.path} for "
                        f"{LOCK_WAIT_S:.0f} s: wait for it, or end it"
                    )
                time.sleep(_LOOK_AGAIN_S)
            yield
        finally:
            os.close(descriptor)  # which releases the lock

    def open_log(self, broker_id: int) -> pathlib.Path:
        """The file for a broker's output; a large one is renamed and a new one begun."""
        log = self.log(broker_id)
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        return log


def replace_text(file: pathlib.Path, text: str, *, is_secret: bool = False) -> None:
    """Replace a file atomically; a secret one is readable by its owner only, from its creation."""
    new = file.with_name(file.name + ".new")
    new.unlink(missing_ok=True)
    mode = 0o600 if is_secret else 0o666
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        new.replace(file)
    except OSError as error:
        new.unlink(missing_ok=True)
        # An error of write or fsync has no name: of which file, and so of which disk, is it?
        raise OSError(error.errno, error.strerror, str(file)) from error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _encode(state: ClusterRecord, place: DirectoryPlace | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "id": state.id,
        "path": place.path if place else None,
        "identity": place.identity if place else None,
        "up": state.up,
        "brokers": {
            str(broker_id): {
                "wanted": record.wanted,
                "pid": record.process.pid if record.process else None,
                "born": record.process.born if record.process else None,
                "ready": record.ready,
                "listeners": record.listeners,
                "http": record.http,
            }
            for broker_id, record in sorted(state.brokers.items())
        },
    }


def _refuse_other_version(file: pathlib.Path, raw: dict[str, Any]) -> None:
    if not raw or "format" not in raw:
        raise LocalError(f"{file} is not written by odradek: choose another --dir")
    if raw["format"] != FORMAT:
        raise LocalError(
            f"{file} is written by another version of odradek (format {raw['format']}, and this "
            f"one reads {FORMAT}): use that version, or choose another --dir"
        )


def _decode(raw: dict[str, Any]) -> ClusterRecord:
    path, identity = raw.get("path"), raw.get("identity")
    return ClusterRecord(
        up=bool(raw["up"]),
        id=str(raw.get("id", "")),
        place=DirectoryPlace(str(path), str(identity)) if path else None,
        brokers={
            int(broker_id): BrokerRecord(
                wanted=TargetState(entry["wanted"]),
                process=ProcessId(entry["pid"], entry["born"]) if entry["pid"] else None,
                ready=bool(entry["ready"]),
                listeners=[str(listener) for listener in entry["listeners"]],
                http=entry["http"],
            )
            for broker_id, entry in sorted(raw["brokers"].items(), key=lambda item: int(item[0]))
        },
    )
