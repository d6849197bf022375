"""Copies of a cluster's directory, which become clusters of their own.

A copy has the same topics, records, committed offsets, users and ACLs. It gets ports and a cluster
id of its own, so that it can run beside the original and no broker of one joins the other.
"""

import asyncio
import base64
import fcntl
import pathlib
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from odradek.coord import layout
from odradek.local import processes
from odradek.local.client_files import make_private
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord, LocalError
from odradek.local.growth import UnusedPorts, all_options, with_other_ports, words_of
from odradek.local.options import LOOPBACK, move_client_files, read_log_dirs, rewrite
from odradek.local.place import RECORD, moved_options
from odradek.local.startable import free_ports

# linux/fs.h: the copy shares the blocks of the file until one of both is written.
_FICLONE: Final = 0x40049409
# What belongs to processes and commands of the original.
_NOT_COPIED: Final = (RECORD, "cluster.lock", "logs", "faults")
_SESSIONS: Final = "coordination.db-session-"
_ID_BYTES: Final = 16


class Copied(NamedTuple):
    """What a copy of a directory took."""

    files: int
    total_bytes: int
    shared_bytes: int  # of blocks that the copy shares with the original


def clone(source: ClusterDirectory, target: ClusterDirectory) -> Copied:
    """Copy the directory of a cluster that does not run.

    Raises:
        LocalError: the cluster runs, has data elsewhere, or the target is not empty.
        StartupError, StoreError: the copied coordination store cannot be used.
    """
    source.expect()
    with source.locked():
        state = source.expect()
        options = all_options(source)
        _refuse_running(source, state)
        _refuse_target(source, target)
        _refuse_elsewhere(source, options)
        if source.path.stat().st_mode & 0o077:
            target.path.mkdir(parents=True, exist_ok=True)
        else:
            make_private(target.path)
        copied = _copy_tree(source.path, target.path)
        places = {source.path: target.path}
        if state.former is not None:
            places = {state.former: source.path, **places}
        _make_own(target, {i: moved_options(each, places) for i, each in options.items()}, places)
    return copied


def adopt(directory: ClusterDirectory) -> None:
    """Make a directory that was copied by other means a cluster of its own.

    Raises:
        LocalError: it is no copy of a directory that still exists, it has data elsewhere, or its
            coordination store was copied while it was written.
        StartupError, StoreError: the coordination store cannot be used.
    """
    directory.expect()
    with directory.locked():
        state = directory.expect()
        if state.original is None or state.former is None:
            raise LocalError(
                f"{directory.path} is not a copy of a directory that still exists: name the new "
                f"directory, {directory.command('clone', 'NEW')}"
            )
        options = all_options(directory)
        _refuse_elsewhere(directory, options)
        _refuse_torn(directory)
        _make_own(directory, options, {state.former: directory.path})


def _make_own(
    directory: ClusterDirectory,
    options: Mapping[int, Mapping[str, str]],
    places: Mapping[pathlib.Path, pathlib.Path],
) -> None:
    """Write what distinguishes a copy from its original; its record last."""
    ports, (base,) = UnusedPorts(options.values()), free_ports(LOOPBACK, 1)
    for broker_id, each in options.items():
        file = directory.properties_file(broker_id)
        other = with_other_ports(each, lambda _: ports.after(base), file)
        rewrite(file, {**each, **other})
    move_client_files(directory, places)
    # Before its record is written the directory has the record of the original, or none.
    _set_cluster_id(directory, options)
    brokers = {broker_id: BrokerRecord() for broker_id in options}
    directory.save(ClusterRecord(up=False, brokers=brokers))


def _set_cluster_id(directory: ClusterDirectory, broker_ids: Iterable[int]) -> None:
    """Give the cluster an id of its own, in its store and in each log directory."""
    if not directory.coordination.exists():
        return  # no broker has started yet
    cluster_id = base64.urlsafe_b64encode(secrets.token_bytes(_ID_BYTES)).decode().rstrip("=")
    asyncio.run(_store_cluster_id(directory, cluster_id))
    for broker_id in broker_ids:
        for log_dir in read_log_dirs(directory, broker_id):
            file = pathlib.Path(log_dir) / "meta.properties"
            if file.exists():
                rewrite(file, {"cluster.id": cluster_id})


async def _store_cluster_id(directory: ClusterDirectory, cluster_id: str) -> None:
    from odradek.local.secure import config_of  # noqa: PLC0415 - only where there is a store
    from odradek.local.store_users import opened_store  # noqa: PLC0415

    async with opened_store(config_of(directory, 0)) as store:
        if await store.exists(layout.CLUSTER_ID) is not None:
            await store.set_data(layout.CLUSTER_ID, layout.encode_cluster_id(cluster_id))


# -------------------------------------------------------------------------- what is not copied


def _refuse_running(source: ClusterDirectory, state: ClusterRecord) -> None:
    for broker_id, record in state.brokers.items():
        if record.process and processes.is_alive(record.process):
            raise LocalError(
                f"broker {broker_id} of {source.path} runs, and would write while its files are "
                f"copied: {source.command('down')} first"
            )


def _refuse_target(source: ClusterDirectory, target: ClusterDirectory) -> None:
    if target.path.exists() and (not target.path.is_dir() or any(target.path.iterdir())):
        raise LocalError(f"{target.path} exists: choose a directory that does not, or is empty")
    if target.path.is_relative_to(source.path):
        raise LocalError(f"{target.path} is inside of {source.path}: choose another directory")


def _refuse_elsewhere(source: ClusterDirectory, options: Mapping[int, Mapping[str, str]]) -> None:
    for broker_id, each in options.items():
        file = source.properties_file(broker_id)
        if each.get("zookeeper.connect"):
            raise LocalError(
                f"{file} has zookeeper.connect={each['zookeeper.connect']}: the state of this "
                "cluster is in ZooKeeper, and a copy of the files is no cluster without it"
            )
        for place in words_of(each.get("log.dirs")):
            if not pathlib.Path(place).is_relative_to(source.path):
                raise LocalError(
                    f"{file} has log.dirs={each['log.dirs']}: {place} is not in {source.path}, and "
                    "would be shared with the copy"
                )


def _refuse_torn(directory: ClusterDirectory) -> None:
    """Refuse a store whose file and write-ahead log were copied at different moments."""
    if not directory.coordination.exists():
        return
    try:
        with closing(sqlite3.connect(directory.coordination)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise LocalError(
            f"{directory.coordination} was copied while brokers wrote it ({found}): stop them with "
            "odradek down before the copy, or copy it alone as docs/operations.md says"
        )


# --------------------------------------------------------------------------------- the files


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
