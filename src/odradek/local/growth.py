"""More brokers for a cluster on this machine, and copies of its directory.

A broker that is added gets the options of broker 0, with an id, ports, files and a rack of its own.
A copy has the same records, committed offsets, users and cluster id, and other ports.
"""

import fcntl
import pathlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.config.properties import parse
from odradek.local import processes
from odradek.local.client_files import make_private
from odradek.local.directory import (
    BrokerRecord,
    ClusterDirectory,
    ClusterRecord,
    LocalError,
    replace_text,
)
from odradek.local.options import LOOPBACK, amend, free_ports, is_free

_LISTENERS, _ADVERTISED = "listeners", "advertised.listeners"
_HTTP_PORT, _RACK = "odradek.http.port", "broker.rack"
_PORT: Final = re.compile(r":(\d+)(?=\s*(?:,|$))")
_EVERY_INTERFACE: Final = "0.0.0.0"
_PORT_MAX: Final = 65_535
# linux/fs.h: the copy shares the blocks of the file until one of both is written.
_FICLONE: Final = 0x40049409
# What belongs to processes and commands of the original.
_NOT_COPIED: Final = ("cluster.json", "cluster.lock", "logs", "faults")
_SESSIONS: Final = "coordination.db-session-"


class _Ports:
    """Ports that no process and no broker of the cluster uses."""

    def __init__(self, brokers: Iterable[Mapping[str, str]]) -> None:
        self._taken = {
            int(port)
            for options in brokers
            for name in (_LISTENERS, _HTTP_PORT)
            for port in _PORT.findall(f":{options.get(name, '')}")
        }

    def after(self, port: int) -> int:
        """The next one.

        Raises:
            LocalError: there is none.
        """
        for candidate in range(port + 1, _PORT_MAX + 1):
            if candidate not in self._taken and is_free(_EVERY_INTERFACE, candidate):
                self._taken.add(candidate)
                return candidate
        raise LocalError(f"no port above {port} is free")


# ------------------------------------------------------------------------------- another broker


def write_added(directory: ClusterDirectory, broker_ids: Iterable[int], rack: str | None) -> None:
    """Write the properties files of brokers that are added.

    `rack`: None for the rack with the fewest brokers, if the brokers have racks.

    Raises:
        LocalError: broker 0 has an option that another broker cannot take over.
    """
    there = _options_of(directory)
    first = directory.properties_file(0)
    # The file of a secure broker has the brokers' password.
    is_secret = not first.stat().st_mode & 0o077
    for broker_id in broker_ids:
        options = _elsewhere(
            there[0],
            {
                directory.broker(0): directory.broker(broker_id),
                directory.secrets / "broker-0.pem": directory.secrets / f"broker-{broker_id}.pem",
            },
        )
        shared = set(_words(options.get("log.dirs"))) & set(_words(there[0].get("log.dirs")))
        if shared:
            raise LocalError(
                f"{first} has log.dirs={there[0]['log.dirs']}: brokers cannot share "
                f"{min(shared)}, which is not below {directory.broker(0)}"
            )
        ports = _Ports(there.values())
        options |= _with_other_ports(options, ports.after, first)
        options["broker.id"] = str(broker_id)
        if rack is not None or _RACK in options:
            options[_RACK] = rack or _smallest_rack(there.values())
        file = directory.properties_file(broker_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, amend(first.read_text(), options), is_secret=is_secret)
        there[broker_id] = options


def _options_of(directory: ClusterDirectory) -> dict[int, dict[str, str]]:
    return {
        broker_id: parse(directory.properties_file(broker_id).read_text())
        for broker_id in directory.expect().brokers
    }


def _elsewhere(
    options: Mapping[str, str], places: Mapping[pathlib.Path, pathlib.Path]
) -> dict[str, str]:
    """The options with other paths."""
    return {name: _moved(value, places) for name, value in options.items()}


def _moved(text: str, places: Mapping[pathlib.Path, pathlib.Path]) -> str:
    for old, new in places.items():
        whole = re.escape(str(old)) + r"(?=[/,\s]|$)"
        text = re.sub(whole, str(new).replace("\\", r"\\"), text)
    return text


def _with_other_ports(
    options: Mapping[str, str], choose: Callable[[int], int], file: pathlib.Path
) -> dict[str, str]:
    """The options that name ports, with those that `choose` gives for the former ones."""
    chosen: dict[str, str] = {"0": "0"}

    def other(match: re.Match[str]) -> str:
        former = match[1]
        if former not in chosen:
            chosen[former] = str(choose(int(former)))
        return f":{chosen[former]}"

    changed = {
        name: _PORT.sub(other, f":{options[name]}")[1:]
        for name in (_LISTENERS, _HTTP_PORT)
        if name in options
    }
    advertised = options.get(_ADVERTISED, "")
    unknown = set(_PORT.findall(advertised)) - set(chosen)
    if unknown:
        raise LocalError(
            f"{file} has {_ADVERTISED}={advertised}: port {min(unknown)} is not one of the "
            f"broker's {_LISTENERS}, so that of another broker is not known; remove the option"
        )
    return changed | ({_ADVERTISED: _PORT.sub(other, advertised)} if advertised else {})


def _smallest_rack(brokers: Iterable[Mapping[str, str]]) -> str:
    counts = Counter(options[_RACK] for options in brokers if _RACK in options)
    return min(counts, key=lambda rack: (counts[rack], rack))


def _words(value: str | None) -> list[str]:
    return [word.strip() for word in (value or "").split(",") if word.strip()]


# ----------------------------------------------------------------------------------------- copies


class Copied(NamedTuple):
    """What a copy of a directory took."""

    files: int
    total_bytes: int
    shared_bytes: int  # of blocks that the copy shares with the original


def clone(source: ClusterDirectory, target: ClusterDirectory) -> Copied:
    """Copy the directory of a cluster that does not run. The copy has ports of its own.

    Raises:
        LocalError: the cluster runs, has data elsewhere, or the target is not empty.
    """
    source.expect()
    with source.locked():
        state = source.expect()
        options = _options_of(source)
        _refuse_copy(source, target, state, options)
        ports, (base,) = _Ports(options.values()), free_ports(LOOPBACK, 1)
        files = {}
        for broker_id, each in options.items():
            moved = _elsewhere(each, {source.path: target.path})
            file = source.properties_file(broker_id)
            files[broker_id] = moved | _with_other_ports(moved, lambda _: ports.after(base), file)
        if source.path.stat().st_mode & 0o077:
            target.path.mkdir(parents=True, exist_ok=True)
        else:
            make_private(target.path)
        copied = _copy_tree(source.path, target.path)
        for broker_id, each in files.items():
            file = target.properties_file(broker_id)
            is_secret = not file.stat().st_mode & 0o077
            replace_text(file, amend(file.read_text(), each), is_secret=is_secret)
        for file in target.clients.glob("*.properties"):  # librdkafka's name a certificate
            text = _moved(file.read_text(), {source.path: target.path})
            replace_text(file, text, is_secret=True)
        # Last: without it the directory is that of no cluster.
        target.save(ClusterRecord(up=False, brokers={i: BrokerRecord() for i in files}))
    return copied


def _refuse_copy(
    source: ClusterDirectory,
    target: ClusterDirectory,
    state: ClusterRecord,
    options: Mapping[int, Mapping[str, str]],
) -> None:
    for broker_id, record in state.brokers.items():
        if record.process and processes.is_alive(record.process):
            raise LocalError(
                f"broker {broker_id} of {source.path} runs, and would write while its files are "
                f"copied: {source.command('down')} first"
            )
    if target.path.exists() and (not target.path.is_dir() or any(target.path.iterdir())):
        raise LocalError(f"{target.path} exists: choose a directory that does not, or is empty")
    if target.path.is_relative_to(source.path):
        raise LocalError(f"{target.path} is inside of {source.path}: choose another directory")
    for broker_id, each in options.items():
        file = source.properties_file(broker_id)
        if each.get("zookeeper.connect"):
            raise LocalError(
                f"{file} has zookeeper.connect={each['zookeeper.connect']}: the state of this "
                "cluster is in ZooKeeper, and a copy of the files is no cluster without it"
            )
        for place in _words(each.get("log.dirs")):
            if not pathlib.Path(place).is_relative_to(source.path):
                raise LocalError(
                    f"{file} has log.dirs={each['log.dirs']}: {place} is not in {source.path}, and "
                    "would be shared with the copy"
                )


def _copy_tree(source: pathlib.Path, target: pathlib.Path) -> Copied:
    files = total_bytes = shared_bytes = 0

    def copy(from_: str, to: str) -> None:
        nonlocal files, total_bytes, shared_bytes
        size = pathlib.Path(from_).stat().st_size
        files, total_bytes = files + 1, total_bytes + size
        if _reflinked(pathlib.Path(from_), pathlib.Path(to)):
            shared_bytes += size
            shutil.copystat(from_, to)
        else:
            shutil.copy2(from_, to)

    def left_out(folder: str, names: list[str]) -> set[str]:
        if pathlib.Path(folder) != source:
            return set()
        return {n for n in names if n in _NOT_COPIED or n.startswith(_SESSIONS)}

    shutil.copytree(source, target, copy_function=copy, ignore=left_out, dirs_exist_ok=True)
    return Copied(files, total_bytes, shared_bytes)


def _reflinked(source: pathlib.Path, target: pathlib.Path) -> bool:
    """Whether the file system could make a copy that shares its blocks (btrfs, XFS)."""
    with source.open("rb") as original, target.open("wb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, original.fileno())
        except OSError:
            return False
    return True
