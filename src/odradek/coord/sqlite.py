"""The store in a SQLite file: for all brokers of one machine, each a process of its own.

`sqlite_file` stores the tree, `presence` finds out which processes run; this module implements the
contract with them.

* **Reads** are short queries on the event loop (microseconds; in WAL mode writers do not block
  them). Each first takes the changes since the last one, in the same snapshot, and calls the
  watchers: so no reader sees a change before its watch has fired.
* **Writes** are queued; all that wait are committed in one transaction, each with an outcome of
  its own. Its statements run on the loop in slices, but what may take long - the wait for the
  write lock, and the commit with its fsync - runs in the one thread, and releases the GIL there.
* **Watches** across processes: after a commit a byte wakes the others, which read the table of
  changes. Once a second every process reads it anyway, in case a byte was lost.
* **Sessions** end by `close`, by the end of their process (noticed within milliseconds), or when
  their process sends nothing for the session's time-out. The first process to notice deletes the
  session; its owner, if it was only suspended, finds that out with its next operation. A process
  stopped in the middle of its own commit blocks all writers until it continues or is killed;
  readers are not blocked.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from odradek.coord.presence import Presence
from odradek.coord.sqlite_file import (
    ROWS_PER_SLICE,
    StoreFile,
    changes_since,
    child_paths,
    find_node,
    find_nodes,
    last_change_and_is_open,
    session_time_outs,
)
from odradek.coord.store import (
    ANY_VERSION,
    EVERYBODY,
    Access,
    Create,
    Delete,
    MultiError,
    NoNodeError,
    Operation,
    Result,
    SessionExpiredError,
    SetData,
    Stat,
    StoreCounts,
    StoreError,
    Watcher,
)
from odradek.coord.tree import Draft, check_path, name_of
from odradek.coord.watches import Watches
from odradek.model.clock import Clock
from odradek.model.errors import StartupError

T = TypeVar("T")

_SLICE_S: Final = 0.002
_WRITES_PER_COMMIT_MAX: Final = 2_000


class _Write:
    """A write that waits for its commit. `session` must still be open then, unless it is 0."""

    __slots__ = ("change", "done", "outcome", "session")

    def __init__(self, session: int, change: Callable[[Draft], Any]) -> None:
        self.session = session
        self.change = change
        self.outcome: Any = None  # a StoreError, or what `change` returned
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def abandon(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.done.cancel()
        elif not self.done.done():
            self.done.set_exception(error)

    def settle(self) -> None:
        if self.done.done():  # the requester was cancelled
            return
        if isinstance(self.outcome, StoreError):
            self.done.set_exception(self.outcome)
        else:
            self.done.set_result(self.outcome)


class SqliteStore:
    """One broker's session; see `odradek.coord.store.Store` for the contract."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        session_timeout_ms: int = 18_000,
        look_every_ms: int = 1_000,
    ) -> None:
        self.on_session_lost: Callable[[], None] | None = None
        self.counts: StoreCounts | None = None
        self._path = path
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        # In case a wake-up was lost or a process hangs; rare enough to cost nothing.
        self._look_every_ms = min(look_every_ms, session_timeout_ms // 4)
        self._session = 0
        self._file: StoreFile | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._presence: Presence | None = None
        self._watches = Watches()
        self._last_change = 0  # the number of the last change whose watches were fired
        self._waiting: deque[_Write] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------- sessions

    @property
    def session_id(self) -> int:
        return self._session

    async def open(self) -> None:
        """Begin a session; end those whose processes have ended.

        Raises:
            StartupError: the file cannot be used; the message says what to do.
        """
        assert not self._session, "the session is still open"
        if self._file is None:
            self._thread = self._thread or ThreadPoolExecutor(1, "odradek-store")
            self._file = await self._in_thread(lambda: StoreFile(self._path))
        presence = Presence(
            self._path,
            look_every_ms=self._look_every_ms,
            woken=self._fire_watches,
            died=self.end_dead_session,
        )
        try:
            session = await self._write(lambda draft: self._register(draft, presence), session=0)
            presence.begin()
        except StoreError as error:
            presence.end()
            raise StartupError(str(error)) from error
        except BaseException:
            presence.end()
            raise
        self._watches.clear()
        self._last_change, _ = last_change_and_is_open(self._file.reader, session)
        self._session = session
        self._presence = presence
        for other in session_time_outs(self._file.reader):
            if other != session:
                presence.connect_to(other)
        self._tick()

    async def close(self) -> None:
        """End the session, and close the file."""
        session = self._session
        try:
            if session:
                await self._write(
                    lambda draft: self._opened().end_session(session, draft), session=0
                )
        finally:
            self._leave()
            while self._writer is not None:
                await asyncio.wait([self._writer])
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None
            if self._file is not None:
                self._file.close()
                self._file = None

    def _register(self, draft: Draft, presence: Presence) -> int:
        file = self._opened()
        for known in file.sessions():
            if presence.is_free(known):  # its process was killed, and no other one ran
                file.end_session(known, draft)
                presence.remove_files(known)
        session = file.next_session(self._session_timeout_ms)
        try:
            # Locked and listening before the commit makes the session visible to others.
            presence.claim(session, timeout_ms=self._session_timeout_ms)
        except OSError as error:
            file.end_session(session, draft)
            raise StoreError(f"coordination store {self._path}: {error}") from error
        return session

    def _leave(self) -> None:
        self._session = 0
        self._watches.clear()
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        if self._presence is not None:
            self._presence.end()
            self._presence = None

    # ------------------------------------------------------------------ other processes

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(self._look_every_ms / 1000, self._tick)
        self._fire_watches()
        if self._presence is not None:  # None: the session has ended
            self._presence.tick(session_time_outs(self._opened().reader))

    def _fire_watches(self) -> None:
        """Fire the watches of what other processes may have changed."""
        if self._session:
            # SessionExpiredError: `on_session_lost` was called. Others: the next tick tries again.
            with suppress(StoreError):
                self._read(lambda _: None)

    def end_dead_session(self, session: int) -> None:
        """A session's process has ended, or sends nothing: end it, unless that was done already."""
        self._fire_watches()
        presence = self._presence
        if presence is None or session not in session_time_outs(self._opened().reader):
            return

        def change(draft: Draft) -> None:
            self._opened().end_session(session, draft)
            presence.remove_files(session)

        # If it fails, the next tick tries again.
        self._enqueue(change).add_done_callback(lambda done: done.cancelled() or done.exception())

    # ---------------------------------------------------------------------------- reads

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        def query(reader: sqlite3.Connection) -> tuple[bytes | None, Stat]:
            node = find_node(reader, path)
            if node is None:
                raise NoNodeError(f"{path} does not exist")
            if watch is not None:
                self._watches.watch_data(path, watch)
            return node.data, node.stat()

        check_path(path)
        return self._read(query)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def query(reader: sqlite3.Connection) -> Stat | None:
            node = find_node(reader, path)
            if watch is not None:
                self._watches.watch_data(path, watch)
            return node.stat() if node else None

        check_path(path)
        return self._read(query)

    async def access(self, path: str) -> list[Access]:
        """A fixed answer: every process that can open the file may do everything."""
        await self.get(path)
        return [EVERYBODY]

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        def query(reader: sqlite3.Connection) -> list[str]:
            if find_node(reader, path) is None:
                raise NoNodeError(f"{path} does not exist")
            if watch is not None:
                self._watches.watch_children(path, watch)
            return [name_of(child) for child in child_paths(reader, path)]

        check_path(path)
        return self._read(query)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """Many nodes, read in slices with other work between them."""
        answers: list[tuple[bytes | None, Stat] | None] = []
        for start in range(0, len(paths), ROWS_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            chunk = list(paths[start : start + ROWS_PER_SLICE])
            found = self._read(partial(find_nodes, paths=chunk))
            for path in chunk:
                node = found.get(path)
                answers.append((node.data, node.stat()) if node else None)
        return answers

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Query one snapshot, after firing the watches of the changes that it contains."""
        session = self._check_session()
        reader = self._opened().reader
        fired: list[Watcher] = []
        try:
            reader.execute("BEGIN")
            try:
                last, is_open = last_change_and_is_open(reader, session)
                if is_open:
                    fired = self._fired_until(reader, last)
                    return query(reader)
            finally:
                reader.execute("COMMIT")
                for watcher in fired:
                    watcher()
        except sqlite3.Error as error:
            raise StoreError(f"coordination store {self._path}: {error}") from error
        self._leave()
        if self.on_session_lost is not None:
            self.on_session_lost()
        raise SessionExpiredError(f"session {session} is over")

    def _fired_until(self, reader: sqlite3.Connection, last: int) -> list[Watcher]:
        if last == self._last_change:
            return []
        changes = changes_since(reader, self._last_change)
        self._last_change = last
        return self._watches.all_fired() if changes is None else self._watches.fired_by(changes)

    def _check_session(self) -> int:
        if not self._session:
            raise SessionExpiredError("the session is over, or was not yet opened")
        return self._session

    def _opened(self) -> StoreFile:
        if self._file is None:
            raise RuntimeError("the store is not open")
        return self._file

    # --------------------------------------------------------------------------- writes

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral=ephemeral, sequential=sequential)
        session = self._check_session()

        def change(draft: Draft) -> str:
            if make_parents:
                return draft.create_with_parents(operation, session=session)
            return draft.single(operation, session=session)

        return await self._write(change)

    async def set_data(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        operation, session = SetData(path, data, version), self._check_session()
        return await self._write(lambda draft: draft.single(operation, session=session))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        operation, session = Delete(path, version), self._check_session()
        await self._write(lambda draft: draft.single(operation, session=session))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        session = self._check_session()
        return await self._write(partial(_multi, operations, session))

    async def multi_many(
        self, batches: Sequence[Sequence[Operation]]
    ) -> list[list[Result] | MultiError]:
        """Many multis, in one commit if they fit."""
        session = self._check_session()
        outcomes = await asyncio.gather(
            *(self._enqueue(partial(_multi, operations, session)) for operations in batches),
            return_exceptions=True,
        )
        results: list[list[Result] | MultiError] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, MultiError):
                raise outcome
            results.append(outcome)
        return results

    async def _write(self, change: Callable[[Draft], T], session: int | None = None) -> T:
        result: T = await self._enqueue(change, session)
        return result

    def _enqueue(
        self, change: Callable[[Draft], Any], session: int | None = None
    ) -> asyncio.Future[Any]:
        """Queue a change for the next commit."""
        write = _Write(self._check_session() if session is None else session, change)
        self._waiting.append(write)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._drain())
        return write.done

    async def _drain(self) -> None:
        """Commit until the queue is empty. What arrives during one commit shares the next."""
        batch: list[_Write] = []
        try:
            while self._waiting:
                count = min(len(self._waiting), _WRITES_PER_COMMIT_MAX)
                batch = [self._waiting.popleft() for _ in range(count)]
                await self._transact(batch)
                for write in batch:
                    write.settle()
        except BaseException as error:  # a bug, or the end of the loop: fail every waiting write
            for write in (*batch, *self._waiting):
                write.abandon(error)
            self._waiting.clear()
            raise
        finally:
            self._writer = None

    async def _transact(self, batch: Sequence[_Write]) -> None:
        """Commit one transaction; sets the outcome of each write."""
        file = self._opened()
        try:
            if not file.try_begin():
                await self._in_thread(file.begin)
            try:
                has_changes = await self._apply(batch)
            except BaseException:
                file.rollback()
                raise
            if not has_changes:
                file.rollback()
                return
            await self._in_thread(file.commit)
        except (StoreError, sqlite3.Error) as error:
            failure = error
            if not isinstance(error, StoreError):
                failure = StoreError(f"coordination store {self._path}: {error}")
            for write in batch:
                write.outcome = failure
            return
        if self._presence is not None:
            self._presence.wake()
        self._fire_watches()

    async def _apply(self, batch: Sequence[_Write]) -> bool:
        file = self._opened()
        loop = asyncio.get_running_loop()
        draft = file.draft(self._clock.wall_ms())
        sessions = {0, *file.sessions()}
        slice_end = loop.time() + _SLICE_S
        for write in batch:
            if write.session not in sessions:
                write.outcome = SessionExpiredError(f"session {write.session} is over")
                continue
            try:
                write.outcome = write.change(draft)
            except StoreError as error:
                write.outcome = error.with_traceback(None)
            if loop.time() > slice_end:
                await asyncio.sleep(0)
                slice_end = loop.time() + _SLICE_S
        if not draft.changes:
            return file.has_changes
        for _ in file.write_draft(draft):
            await asyncio.sleep(0)
        return True

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise RuntimeError("the store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _multi(operations: Sequence[Operation], session: int, draft: Draft) -> list[Result]:
    return draft.multi(operations, session=session)
