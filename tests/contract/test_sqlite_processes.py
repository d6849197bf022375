"""The SQLite store between real processes: kills, hangs, wake-ups; and corrupt files."""

import asyncio
import contextlib
import os
import pathlib
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator

import pytest

from odradek.coord import sqlite_file
from odradek.coord.sqlite import SqliteStore
from odradek.coord.sqlite_file import StoreFile
from odradek.coord.store import (
    ConnectionLostError,
    Create,
    SessionExpiredError,
    StoreError,
)
from odradek.model.errors import StartupError
from odradek.net.clock import RealClock

SRC = pathlib.Path(__file__).parents[2] / "src"

CHILD = """
import asyncio, sys
from odradek.net.clock import RealClock
from odradek.coord.sqlite import SqliteStore
from odradek.coord.store import BadVersionError

async def main():
    path, timeout_ms, *words = sys.argv[1:]
    store = SqliteStore(path, clock=RealClock(), session_timeout_ms=int(timeout_ms))
    store.on_session_lost = lambda: print("lost", flush=True)
    await store.open()
    if words[0] == "register":
        await store.create("/ids/7", ephemeral=True, make_parents=True)
        print("ready", flush=True)
        await asyncio.sleep(60)
    if words[0] == "count":
        print("ready", flush=True)
        for _ in range(int(words[1])):
            while True:
                data, stat = await store.get("/n")
                try:
                    await store.set_data("/n", b"%d" % (int(data) + 1), stat.version)
                    print(int(data) + 1, flush=True)
                    break
                except BadVersionError:
                    pass
        await store.close()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def opened(directory: pathlib.Path, **options: int) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(directory / "store.db"), clock=RealClock(), **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def child(
    directory: pathlib.Path, *words: str, session_timeout_ms: int = 18_000
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(directory / "store.db"), str(session_timeout_ms), *words,
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(SRC)},
    )  # fmt: skip
    try:
        assert await line(process) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        # The transport of the pipe is closed by a callback, after the end was read.
        await process.stdout.read()
        await asyncio.sleep(0)


async def line(process):
    return await asyncio.wait_for(process.stdout.readline(), 30)


async def until(store, path, is_there):
    """Wait, by watches only, until a node exists, or does not."""
    while True:
        changed = asyncio.Event()
        if (await store.exists(path, watch=changed.set) is not None) == is_there:
            return
        await asyncio.wait_for(changed.wait(), 30)


def test_a_killed_process_is_noticed_by_its_end_and_not_by_the_time_out(tmp_path):
    async def scenario():
        async with (
            opened(tmp_path) as store,
            child(tmp_path, "register", session_timeout_ms=3_600_000) as process,
        ):
            assert await store.exists("/ids/7") is not None
            process.kill()
            await until(store, "/ids/7", is_there=False)

    asyncio.run(scenario())


def test_a_killed_broker_registers_at_once_when_it_restarts(tmp_path):
    async def scenario():
        async with child(tmp_path, "register", session_timeout_ms=3_600_000) as process:
            process.kill()
        assert len(list(tmp_path.glob("*session*"))) == 2
        async with opened(tmp_path) as store:
            await store.create("/ids/7", ephemeral=True)
        assert list(tmp_path.glob("*session*")) == []

    asyncio.run(scenario())


def test_a_hung_process_loses_its_session_and_finds_out_when_it_continues(tmp_path):
    async def scenario():
        async with (
            opened(tmp_path, session_timeout_ms=400) as store,
            child(tmp_path, "register", session_timeout_ms=400) as process,
        ):
            process.send_signal(signal.SIGSTOP)
            await until(store, "/ids/7", is_there=False)
            process.send_signal(signal.SIGCONT)
            assert await line(process) == b"lost\n"

    asyncio.run(scenario())


def test_processes_that_write_at_once_lose_no_write(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            await store.create("/n", b"0")
            async with child(tmp_path, "count", "50") as one, child(tmp_path, "count", "50") as two:
                await asyncio.wait_for(asyncio.gather(one.wait(), two.wait()), 30)
            assert (await store.get("/n"))[0] == b"100"

    asyncio.run(scenario())


def test_a_process_in_the_same_directory_wakes_the_watchers(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            await store.create("/n", b"0")
            changed = asyncio.Event()
            await store.get("/n", watch=changed.set)
            async with child(tmp_path, "count", "1"):
                await asyncio.wait_for(changed.wait(), 30)
            assert (await store.get("/n"))[0] == b"1"

    asyncio.run(scenario())


def test_closed_sessions_leave_no_files_but_the_store(tmp_path):
    async def scenario():
        async with opened(tmp_path / "a"), opened(tmp_path / "a"):
            pass

    asyncio.run(scenario())

    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["store.db", "store.db.lock"]


def test_a_socket_left_by_a_process_that_never_registered_is_replaced(tmp_path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as leftover:
        leftover.bind(str(tmp_path / "store.db-session-1.sock"))

    async def scenario():
        async with opened(tmp_path) as store:
            assert store.session_id == 1

    asyncio.run(scenario())


def test_a_session_that_cannot_listen_is_not_opened(tmp_path):
    async def scenario():
        async with opened(tmp_path) as other:
            store = SqliteStore(str(tmp_path / "store.db"), clock=RealClock())
            (tmp_path / "store.db-session-2.sock").mkdir()
            with pytest.raises(StartupError, match="coordination store .*/store.db: .*directory"):
                await store.open()
            (tmp_path / "store.db-session-2.sock").rmdir()
            await store.open()
            await store.create("/e", ephemeral=True)
            await store.close()
            assert await other.children("/") == []

    asyncio.run(scenario())


def test_a_bug_in_one_write_fails_every_waiting_write(tmp_path):
    def bug(_draft):
        raise ZeroDivisionError

    async def scenario():
        async with opened(tmp_path) as store:
            writes = [
                store._enqueue(change) for change in (lambda _: "fine", bug, lambda _: "late")
            ]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError] * 3
            await store.create("/a")

    asyncio.run(scenario())


def test_an_ephemeral_node_created_just_before_the_session_ends_is_removed(tmp_path):
    async def scenario():
        store = SqliteStore(str(tmp_path / "store.db"), clock=RealClock())
        await store.open()
        await asyncio.gather(store.create("/e", ephemeral=True), store.close())
        async with opened(tmp_path) as other:
            assert await other.exists("/e") is None

    asyncio.run(scenario())


def test_only_the_owner_may_read_the_files(tmp_path):
    async def scenario():
        async with opened(tmp_path / "a"):
            names = {path.suffix for path in (tmp_path / "a").iterdir()}
            assert names == {".db", ".db-wal", ".db-shm", ".lock", ".sock"}
            for path in (tmp_path / "a").iterdir():
                assert path.stat().st_mode & 0o077 == 0, path

    asyncio.run(scenario())


def test_a_directory_too_deep_for_a_socket_address_is_usable(tmp_path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)

    async def scenario():
        async with opened(deep) as one, opened(deep) as two:
            changed = asyncio.Event()
            await one.exists("/n", watch=changed.set)
            await two.create("/n")
            await asyncio.wait_for(changed.wait(), 30)

    asyncio.run(scenario())


def test_a_reader_that_missed_too_many_changes_fires_all_watches(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "CHANGES_KEPT", 10)

    async def scenario():
        async with opened(tmp_path) as store, opened(tmp_path) as other:
            fired = []
            await store.exists("/nothing", watch=lambda: fired.append("data"))
            await store.children("/", watch=lambda: fired.append("children"))
            await other.multi([Create(f"/{number}") for number in range(2000)])
            await store.get("/1999")
            assert sorted(fired) == ["children", "data"]

    asyncio.run(scenario())


def test_a_write_in_flight_when_the_session_ends_is_refused(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store, opened(tmp_path) as other:
            other.end_dead_session(store.session_id)
            # The other process commits first; this one has not found out when it starts to write.
            with pytest.raises(SessionExpiredError):
                await store.create("/late")
            assert await other.exists("/late") is None

    asyncio.run(scenario())


def test_what_was_acknowledged_survives_the_writer(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            await store.create("/n", b"0")
            async with child(tmp_path, "count", "1000000") as process:
                acknowledged = 0
                while acknowledged < 100:
                    acknowledged = int(await line(process))
                process.kill()
                rest = (await process.stdout.read()).split()
            acknowledged = int(rest[-1]) if rest else acknowledged
            found = int((await store.get("/n"))[0])
            assert acknowledged <= found <= acknowledged + 1
            await store.set_data("/n", b"0")

    asyncio.run(scenario())


def test_a_full_disk_refuses_the_write_and_nothing_else(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store, opened(tmp_path) as other:
            await store.create("/n", b"1")
            writer = store._file.writer
            (pages,) = writer.execute("PRAGMA page_count").fetchone()
            writer.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(StoreError, match="database or disk is full"):
                await store.create("/big", b"x" * 1_000_000)
            assert (await store.get("/n"))[0] == b"1"
            assert await other.exists("/big") is None
            writer.execute("PRAGMA max_page_count = 1000000")
            await other.create("/other")
            await store.create("/big", b"x" * 1_000_000)

    asyncio.run(scenario())


FAIL_TO_COMMIT = """
PRAGMA foreign_keys = ON;
CREATE TEMP TABLE whole(id INTEGER PRIMARY KEY);
CREATE TEMP TABLE part(id REFERENCES whole DEFERRABLE INITIALLY DEFERRED);
CREATE TEMP TRIGGER spoil AFTER INSERT ON nodes BEGIN INSERT INTO part VALUES (1); END;
"""


def test_a_commit_that_fails_leaves_the_outcome_open_and_releases_the_lock(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store, opened(tmp_path) as other:
            store._file.writer.executescript(FAIL_TO_COMMIT)
            outcomes = await asyncio.gather(
                store.create("/a"), store.create("/b"), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [ConnectionLostError] * 2
            await other.create("/other")
            store._file.writer.execute("DROP TRIGGER spoil")
            await store.create("/a")

    asyncio.run(scenario())


# ------------------------------------------------------------------------------- bad files


def refusal(path: pathlib.Path) -> str:
    with pytest.raises(StartupError) as refused:
        StoreFile(str(path), foreign_wait_ms=10)
    return str(refused.value)


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "store.db").write_bytes(b"what is this? " * 1000)

    assert refusal(tmp_path / "store.db") == (
        f"coordination store {tmp_path}/store.db: file is not a database; "
        "put a backup back (docs/operations.md: what changed since the backup is lost, records are "
        "not), or move it away and lose the topics' metadata"
    )


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "store.db"

    async def fill():
        async with opened(tmp_path) as store:
            await store.multi([Create(f"/{number}", b"x" * 500) for number in range(1000)])

    asyncio.run(fill())
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))

    assert "put a backup back" in refusal(path)


def test_a_file_of_a_newer_odradek_is_refused(tmp_path):
    path = tmp_path / "store.db"
    StoreFile(str(path)).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")

    assert refusal(path) == (
        f"coordination store {path}: written by a newer Odradek (schema 2, readable up to 1); "
        "start that version"
    )


def test_a_file_of_another_program_is_refused(tmp_path):
    path = tmp_path / "store.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE music(title)")

    assert "the file of another program" in refusal(path)


def test_an_impossible_path_is_named(tmp_path):
    (tmp_path / "file").touch()

    assert refusal(tmp_path / "file" / "store.db") == (
        f"coordination store {tmp_path}/file/store.db: File exists"
    )


def test_a_file_that_another_program_writes_is_waited_for_and_then_refused(tmp_path):
    path = tmp_path / "store.db"
    with contextlib.closing(StoreFile(str(path), foreign_wait_ms=10)) as file:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            assert not file.try_begin()
            with pytest.raises(StoreError, match="database is locked"):
                file.begin()
        assert file.try_begin()
        file.rollback()


def test_a_file_locked_by_another_program_is_refused(tmp_path):
    path = tmp_path / "store.db"
    StoreFile(str(path)).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")

        assert "close that one" in refusal(path)
