"""The file of the SQLite store: its tables, its write lock, and the errors of opening it.

    nodes      the tree, a row each
    changes    which node changed how, numbered: every process fires its watches from it.
               Old rows are deleted; a process that misses some fires all of its watches.
    sessions   the sessions that are open
    counters   last transaction id, last session id, last change

Blocking calls, without threads or loop of their own: `odradek.coord.sqlite` decides where they
run. Two connections: `reader` for short reads on the loop, which in WAL mode neither wait for
writers nor block them, and `writer` for the one transaction at a time. Writers of all processes
queue at a file lock, because it is fair and wakes the next one at once; with SQLite's own lock
they would sleep and try again.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import islice
from typing import Final

from odradek.coord.store import ConnectionLostError, StoreError
from odradek.coord.tree import EMPTY_ROOT, ROOT, Change, ChangeKind, Draft, TreeNode, parent_of
from odradek.model.clock import WallMs
from odradek.model.errors import StartupError

APPLICATION_ID: Final = 0x4F647261  # "Odra"
SCHEMA_VERSION: Final = 1
CHANGES_KEPT: Final = 16_384
ROWS_PER_SLICE: Final = 400  # about a millisecond

_SCHEMA: Final = """
CREATE TABLE nodes(
    path TEXT PRIMARY KEY, parent TEXT, data BLOB, version INTEGER, created_id INTEGER,
    modified_id INTEGER, created_ms INTEGER, modified_ms INTEGER, owner INTEGER,
    children_count INTEGER, creations INTEGER
) WITHOUT ROWID;
CREATE INDEX nodes_by_parent ON nodes(parent);
CREATE INDEX nodes_by_owner ON nodes(owner) WHERE owner != 0;
CREATE TABLE changes(number INTEGER PRIMARY KEY, path TEXT, kind INTEGER);
CREATE TABLE sessions(id INTEGER PRIMARY KEY, timeout_ms INTEGER);
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
INSERT INTO counters VALUES ('transaction', 0), ('session', 0), ('change', 0);
"""
_NODE: Final = (
    "data, version, created_id, modified_id, created_ms, modified_ms, owner, "
    "children_count, creations"
)
_FIND: Final = f"SELECT {_NODE} FROM nodes WHERE path = ?"
_PUT: Final = f"INSERT OR REPLACE INTO nodes(path, parent, {_NODE}) VALUES (?,?,?,?,?,?,?,?,?,?,?)"


class StoreFile:
    """One process's connections to the file, which is created if it does not exist.

    Raises:
        StartupError: the file cannot be used; the message says what to do.
    """

    def __init__(self, path: str, *, foreign_wait_ms: int = 5_000) -> None:
        self.path = path
        self.has_changes = False  # of sessions, in this transaction
        self._foreign_wait_ms = foreign_wait_ms  # while another program has the write lock
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Opened only by SQLite once it exists: closing any other descriptor of the file
            # would release the POSIX locks that this process has on it.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StartupError(f"coordination store {path}: {error.strerror}") from error
        with ExitStack() as undo:
            undo.callback(os.close, self._lock)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.writer = undo.enter_context(closing(self._connect()))
            self._check(_prepare)
            self.reader = undo.enter_context(closing(self._connect()))
            self.writer.execute("PRAGMA busy_timeout = 0")
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._undo = undo.pop_all()

    def close(self) -> None:
        self._undo.close()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path,
            timeout=self._foreign_wait_ms / 1000,
            isolation_level=None,  # transactions begin and end explicitly
            check_same_thread=False,  # one thread at a time, though not always the same
        )

    def _check(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        try:
            prepare(self.writer)
        except sqlite3.OperationalError as error:
            problem = f"{error}; if another program has it open, close that one"
        except sqlite3.DatabaseError as error:
            problem = (
                f"{error}; put a backup back (docs/operations.md: what changed since the backup is "
                "lost, records are not), or move it away and lose the topics' metadata"
            )
        except StartupError as error:
            problem = str(error)
        else:
            return
        raise StartupError(f"coordination store {self.path}: {problem}")

    # --------------------------------------------------------------------- transactions

    def try_begin(self) -> bool:
        """Begin a transaction if no other process is in one."""
        self.has_changes = False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            self.writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            return False
        return True

    def begin(self) -> None:
        """Wait for the write lock and begin a transaction.

        Raises:
            StoreError: another program holds the database's lock.
        """
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self.writer.execute(f"PRAGMA busy_timeout = {self._foreign_wait_ms}")
            self.writer.execute("BEGIN IMMEDIATE")
            self.writer.execute("PRAGMA busy_timeout = 0")
        except sqlite3.Error as error:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            raise StoreError(f"coordination store {self.path}: {error}") from error

    def commit(self) -> None:
        """End the transaction: its changes are on the disk when this returns.

        Raises:
            ConnectionLostError: the disk failed; whether the changes are on it is not known.
        """
        try:
            self.writer.execute("COMMIT")
        except sqlite3.Error as error:
            raise ConnectionLostError(f"coordination store {self.path}: {error}") from error
        finally:
            self.rollback()

    def rollback(self) -> None:
        """Undo the transaction, if it has not ended; release the write lock."""
        if self.writer.in_transaction:
            self.writer.execute("ROLLBACK")
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    # ------------------------------------------------------------- within a transaction

    def draft(self, wall_ms: WallMs) -> Draft:
        """A draft over the nodes as they are in this transaction."""
        seen: dict[str, TreeNode | None] = {}  # many multis check the same /controller_epoch

        def find(path: str) -> TreeNode | None:
            if path not in seen:
                seen[path] = find_node(self.writer, path)
            return seen[path]

        return Draft(find, last_transaction_id=self._counter("transaction"), wall_ms=wall_ms)

    def write_draft(self, draft: Draft) -> Iterator[None]:
        """Write the changes of a draft; yields between slices, so that other work can run."""
        put = (
            (path, None if path == ROOT else parent_of(path), *node)
            for path, node in draft.nodes.items()
            if node is not None
        )
        deleted = ((path,) for path, node in draft.nodes.items() if node is None)
        number = self._counter("change")
        changes = ((number + 1 + i, *change) for i, change in enumerate(draft.changes))
        for statement, rows in (
            (_PUT, put),
            ("DELETE FROM nodes WHERE path = ?", deleted),
            ("INSERT INTO changes VALUES (?,?,?)", changes),
        ):
            while chunk := list(islice(rows, ROWS_PER_SLICE)):
                self.writer.executemany(statement, chunk)
                yield
        self._set_counter("transaction", draft.last_transaction_id)
        self._count_changes(number, len(draft.changes))

    def sessions(self) -> list[int]:
        """All sessions, as of this transaction."""
        return [row[0] for row in self.writer.execute("SELECT id FROM sessions ORDER BY id")]

    def next_session(self, timeout_ms: int) -> int:
        session = self._counter("session") + 1
        self._set_counter("session", session)
        self.writer.execute("INSERT INTO sessions VALUES (?,?)", (session, timeout_ms))
        self.has_changes = True
        return session

    def end_session(self, session: int, draft: Draft) -> bool:
        """Delete a session and its ephemeral nodes. False if it was deleted before."""
        if not self.writer.execute("DELETE FROM sessions WHERE id = ?", (session,)).rowcount:
            return False
        rows = self.writer.execute("SELECT path FROM nodes WHERE owner = ?", (session,))
        stored = {path for (path,) in rows if path not in draft.nodes}
        drafted = {p for p, node in draft.nodes.items() if node and node.owner == session}
        draft.expire(sorted(stored | drafted))
        self.has_changes = True
        return True

    def _counter(self, name: str) -> int:
        row = self.writer.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
        return int(row[0])

    def _set_counter(self, name: str, value: int) -> None:
        self.writer.execute("UPDATE counters SET value = ? WHERE name = ?", (value, name))

    def _count_changes(self, number: int, more: int) -> None:
        self._set_counter("change", number + more)
        # Rarely, because a delete costs more than the insert did.
        if number // 1024 != (number + more) // 1024:
            self.writer.execute(
                "DELETE FROM changes WHERE number <= ?", (number + more - CHANGES_KEPT,)
            )


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the tables, or check that the file is an Odradek store that this version can use."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and tables:
        raise StartupError("the file of another program; give Odradek a directory of its own")
    if version > SCHEMA_VERSION:
        raise StartupError(
            f"written by a newer Odradek (schema {version}, readable up to {SCHEMA_VERSION}); "
            "start that version"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if tables:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        return
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(_PUT, (ROOT, None, *EMPTY_ROOT))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


# ---------------------------------------------------------------------------------- reads


def find_node(connection: sqlite3.Connection, path: str) -> TreeNode | None:
    row = connection.execute(_FIND, (path,)).fetchone()
    return TreeNode(*row) if row else None


def find_nodes(connection: sqlite3.Connection, paths: list[str]) -> dict[str, TreeNode]:
    """Those of the nodes that exist, at most ROWS_PER_SLICE."""
    marks = ",".join("?" * len(paths))
    rows = connection.execute(f"SELECT path, {_NODE} FROM nodes WHERE path IN ({marks})", paths)
    return {row[0]: TreeNode(*row[1:]) for row in rows}


def child_paths(connection: sqlite3.Connection, path: str) -> list[str]:
    """The paths of the children, sorted."""
    rows = connection.execute("SELECT path FROM nodes WHERE parent = ? ORDER BY path", (path,))
    return [row[0] for row in rows]


def session_time_outs(connection: sqlite3.Connection) -> dict[int, int]:
    """The time-out of every session, in milliseconds."""
    return dict(connection.execute("SELECT id, timeout_ms FROM sessions").fetchall())


def last_change_and_is_open(connection: sqlite3.Connection, session: int) -> tuple[int, bool]:
    """The number of the last change, and whether a session is open."""
    last, is_open = connection.execute(
        "SELECT value, EXISTS (SELECT 1 FROM sessions WHERE id = ?) "
        "FROM counters WHERE name = 'change'",
        (session,),
    ).fetchone()
    return last, bool(is_open)


def changes_since(connection: sqlite3.Connection, since: int) -> list[Change] | None:
    """The changes after this number; None if some of them are deleted already."""
    rows = connection.execute(
        "SELECT number, path, kind FROM changes WHERE number > ? ORDER BY number", (since,)
    ).fetchall()
    if not rows or rows[0][0] != since + 1:
        return None
    return [Change(path, ChangeKind(kind)) for _, path, kind in rows]
