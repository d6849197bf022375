"""The directory of a cluster on this machine: what is written down, and where.

    D/cluster.json                  which brokers there are, which process is which, what is wanted
    D/coordination.db               the coordination store of all its brokers
    D/cluster.lock                  held by whoever changes any of this
    D/broker-N/server.properties    one broker's options: its owner may edit them
    D/broker-N/data/                its log directory, in Kafka's format
    D/logs/broker-N.log             what it says

`cluster.json` is replaced in one step, so a reader finds the old one or the new one and needs no
lock. Everything else about a broker stands in its properties file and nowhere else.
"""

import fcntl
import json
import os
import pathlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from odradek.local.processes import ProcessId
from odradek.model.errors import OdradekError

FORMAT: Final = 1
LOG_BYTES_MAX: Final = 64 << 20
_LOCK_WAIT_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.02


class LocalError(OdradekError):
    """What was asked for cannot be done; the message says why, and what can be done instead."""


class Wanted(StrEnum):
    """What the last command wanted of a broker. A running one that is gone has crashed."""

    RUNNING = "running"
    STOPPED = "stopped"
    KILLED = "killed"


@dataclass(slots=True)
class BrokerRecord:
    """One broker, as far as it is not in its properties file."""

    wanted: Wanted = Wanted.STOPPED
    process: ProcessId | None = None
    ready: bool = False
    # What it told when it was ready, in this life or the last.
    listeners: list[str] = field(default_factory=list)
    http: str | None = None


@dataclass(slots=True)
class ClusterState:
    """What `cluster.json` holds."""

    up: bool  # whether `up` came after the last `down`
    brokers: dict[int, BrokerRecord]


class ClusterDirectory:
    """One such directory. Makes nothing before `save`."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path.absolute()

    def properties_file(self, broker_id: int) -> pathlib.Path:
        """A broker's options."""
        return self.broker(broker_id) / "server.properties"

    def broker(self, broker_id: int) -> pathlib.Path:
        """What belongs to one broker alone."""
        return self.path / f"broker-{broker_id}"

    @property
    def coordination(self) -> pathlib.Path:
        """The coordination store's file."""
        return self.path / "coordination.db"

    def log(self, broker_id: int) -> pathlib.Path:
        """What a broker says."""
        return self.path / "logs" / f"broker-{broker_id}.log"

    def load(self) -> ClusterState | None:
        """What is written down; None if nothing is.

        Raises:
            LocalError: there is something, but not a cluster of ours.
        """
        file = self.path / "cluster.json"
        try:
            text = file.read_text()
        except FileNotFoundError:
            # With the lock's file there a cluster is being made, or was about to be.
            there = {e.name for e in self.path.iterdir()} if self.path.is_dir() else set()
            if there and "cluster.lock" not in there:
                raise LocalError(
                    f"{self.path} is not empty and holds no cluster: choose another --dir"
                ) from None
            return None
        except NotADirectoryError:
            raise LocalError(f"{self.path} is not a directory: choose another --dir") from None
        try:
            return _decode(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LocalError(f"{file} is damaged ({error!r}): mend or remove it") from None

    def expect(self) -> ClusterState:
        """What is written down.

        Raises:
            LocalError: nothing is.
        """
        state = self.load()
        if state is None:
            raise LocalError(f"there is no cluster in {self.path}: odradek up makes one, or --dir")
        return state

    def stopping(self) -> tuple[int, ...]:
        """The brokers of a cluster that is being taken down as a whole; none if it is not.

        For a broker that is asked to stop: it never fails, for then the broker stops alone.
        """
        try:
            state = self.load()
        except (LocalError, OSError):
            return ()
        if state is None or state.up:
            return ()
        return tuple(i for i, record in state.brokers.items() if record.wanted is Wanted.STOPPED)

    def save(self, state: ClusterState) -> None:
        """Write it down, all or nothing."""
        self.path.mkdir(parents=True, exist_ok=True)
        replace_text(self.path / "cluster.json", json.dumps(_encode(state), indent=1) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with this directory; two commands at once would each undo what the other wrote.

        Raises:
            LocalError: somebody else has been at it for too long.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            self.path / "cluster.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            deadline_s = time.monotonic() + _LOCK_WAIT_S
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline_s:
                    raise LocalError(
                        f"another odradek command has been changing {self.path} for "
                        f"{_LOCK_WAIT_S:.0f} s: wait for it, or end it"
                    )
                time.sleep(_LOOK_AGAIN_S)
            yield
        finally:
            os.close(descriptor)  # and with it goes the lock

    def open_log(self, broker_id: int) -> pathlib.Path:
        """The file for a broker's output, begun anew (the old one kept) when it is large."""
        log = self.log(broker_id)
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        return log


def replace_text(file: pathlib.Path, text: str) -> None:
    """Put `text` in the place of what `file` holds, in one step."""
    new = file.with_name(file.name + ".new")
    with new.open("w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    new.replace(file)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _encode(state: ClusterState) -> dict[str, Any]:
    return {
        "format": FORMAT,
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


def _decode(raw: dict[str, Any]) -> ClusterState:
    if raw["format"] != FORMAT:
        raise ValueError(f"format {raw['format']}, this version reads {FORMAT}")
    return ClusterState(
        up=bool(raw["up"]),
        brokers={
            int(broker_id): BrokerRecord(
                wanted=Wanted(entry["wanted"]),
                process=ProcessId(entry["pid"], entry["born"]) if entry["pid"] else None,
                ready=bool(entry["ready"]),
                listeners=[str(listener) for listener in entry["listeners"]],
                http=entry["http"],
            )
            for broker_id, entry in sorted(raw["brokers"].items(), key=lambda item: int(item[0]))
        },
    )
