"""The store in ZooKeeper: for brokers on many machines, and beside Apache Kafka's own.

ZooKeeper's guarantees are the contract's; this module adds asyncio and error handling.

* **Order.** Kazoo reads answers and events from the socket in one thread. Each is passed to
  the event loop from that thread, as it arrives: with a worker thread between, an answer could
  overtake an event. So a watch fires before its reader can read the change. (Hence kazoo's
  `_call`, with a result object of our own: its public calls attach a callback after sending, and
  an event may overtake it.)
* **In flight.** At most `in_flight_max` requests are sent and not answered; others wait in order.
* **A lost connection.** Kazoo connects to the next server and keeps the session. A write that was
  in flight raises `ConnectionLostError` and is never sent again from here: it may have happened.
  Reads are sent again, and requests that were not sent yet wait: for the session's time-out at
  most, then they raise `ConnectionLostError` too. A server that does not answer is left after two
  thirds of the session's time-out.
* **Watches** of a lost connection are all fired once after the next connection: what changed
  meanwhile is not known. Their owners read again.
* **An expired session** stays expired; kazoo must not begin a new one by itself, because its
  owner has to register again.

Only this module and the other `zookeeper_*` modules import kazoo: an extra of the package.
"""

import asyncio
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final, TypeVar, overload

from kazoo.client import KazooClient, KazooState  # type: ignore[import-untyped]
from kazoo.exceptions import (  # type: ignore[import-untyped]
    ConnectionLoss,
    KazooException,
    UnimplementedError,
)
from kazoo.exceptions import SessionExpiredError as SessionExpired
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    Exists,
    GetACL,
    GetChildren,
    GetData,
)
from kazoo.protocol.states import EventType, WatchedEvent  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]

from odradek.coord.store import (
    ANY_VERSION,
    Access,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
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
from odradek.coord.tree import ROOT, Change, ChangeKind, check_path, parent_of
from odradek.coord.watches import Watches
from odradek.coord.zookeeper_kazoo import Handler, KazooAnswer, KazooLog
from odradek.coord.zookeeper_messages import (
    REQUEST_BYTES_MAX,
    MultiRead,
    check_size,
    error_of,
    found_node,
    letters,
    message_of,
    multi_of,
    node_of,
    result_of,
    results_of,
    stat_of,
)
from odradek.model.errors import StartupError

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

_READS_PER_REQUEST: Final = 200
_CLOSE_TIMEOUT_S: Final = 5.0
_DEFAULT_PORT: Final = 2181
# In the order in which ZooKeeper's shell prints them.
_CHANGE_KINDS: Final = {
    EventType.CREATED: ChangeKind.CREATED,
    EventType.CHANGED: ChangeKind.WRITTEN,
    EventType.DELETED: ChangeKind.DELETED,
}


def parse_servers(text: str) -> tuple[list[str], str]:
    """`zookeeper.connect` as servers and chroot ("" if there is none).

    Raises:
        StartupError: naming what cannot be read.
    """
    hosts, slash, chroot = text.strip().partition("/")
    servers = []
    for part in hosts.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or part.strip().endswith("]"):
            host, port = part.strip(), str(_DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise StartupError(
                f"zookeeper.connect={text}: {part.strip()!r} is not a server; "
                "it must be host:port,host:port/chroot"
            )
        servers.append(f"{host}:{port}")
    root = (slash + chroot).rstrip("/")
    try:
        check_path(root or ROOT)
    except StoreError as error:
        raise StartupError(f"zookeeper.connect={text}: chroot: {error}") from error
    return servers, root


class ZooKeeperStore:
    """One broker's session; see `odradek.coord.store.Store` for the contract."""

    def __init__(  # noqa: PLR0913 - ZooKeeper's options
        self,
        servers: str,
        *,
        call_soon: Callable[[Callable[[], object]], object],
        randomness: Random,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        in_flight_max: int = 10,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        tls: ssl.SSLContext | None = None,
        auth: Sequence[tuple[str, str]] = (),
        is_secured: bool = False,
        make_client: Callable[..., Any] = KazooClient,
    ) -> None:
        """Not connected until `open`.

        Args:
            servers: `zookeeper.connect`: `host:port,host:port/chroot`.
            call_soon: schedules a callback on the event loop; called in other threads.
            randomness: distributes the brokers over the servers.
            session_timeout_ms: `zookeeper.session.timeout.ms`.
            connection_timeout_ms: `zookeeper.connection.timeout.ms`, for `open`.
            in_flight_max: `zookeeper.max.in.flight.requests`.
            request_bytes_max: the servers' jute.maxbuffer.
            tls: the trusted CAs and our certificate; None: no TLS.
            auth: scheme and credential, as in ("digest", "user:password").
            is_secured: `zookeeper.set.acl`.
            make_client: makes a kazoo client.
        """
        self.on_session_lost: Callable[[], None] | None = None
        self.counts: StoreCounts | None = StoreCounts()
        self._counts = self.counts
        self._connect = servers
        self._servers, self._root = parse_servers(servers)
        randomness.shuffle(self._servers)
        self._call_soon = call_soon
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._in_flight_max = in_flight_max
        self._request_bytes_max = request_bytes_max
        self._tls = tls
        self._auth = list(auth)
        self._is_secured = is_secured
        self._make_client = make_client

        self._session = 0
        self._client: Any = None
        self._connected: asyncio.Future[int] | None = None  # the session, while `open` waits
        self._watches = Watches()
        self._on_event: Callable[[WatchedEvent], None] | None = None
        self._has_multi_read = True  # until a server answers that it is not implemented
        # Reads whose connection was lost are sent before requests that were never sent.
        self._again: deque[_ZooKeeperRequest] = deque()
        self._waiting: deque[_ZooKeeperRequest] = deque()
        self._in_flight: dict[_ZooKeeperRequest, None] = {}
        self._waiting_timer: asyncio.TimerHandle | None = None  # set while there is no connection

    # ------------------------------------------------------------------------- sessions

    @property
    def session_id(self) -> int:
        return self._session

    async def open(self) -> None:
        """Connect, begin a session, and create the chroot if it is missing, as Apache Kafka does.

        Raises:
            StartupError: ZooKeeper cannot be used; the message says what to do.
        """
        assert self._client is None, "the session is still open"
        log = KazooLog(_LOG)
        try:
            async with asyncio.timeout(self._connection_timeout_ms / 1000):
                session = await self._begin(log)
        except TimeoutError:
            why = f"; the last attempt: {log.last_warning}" if log.last_warning else ""
            raise self._given_up(
                f"not ready within {self._connection_timeout_ms} ms "
                f"(zookeeper.connection.timeout.ms){why}. Is it running, is the address right?"
            ) from None
        except StoreError as error:
            raise self._given_up(str(error)) from error
        except BaseException:
            self._end()
            raise
        self._session = session

    async def _begin(self, log: KazooLog) -> int:
        """Start a client, wait for its session, and create the chroot."""
        handler = Handler(
            connect_timeout_ms=self._session_timeout_ms // len(self._servers), tls=self._tls
        )
        client = self._make_client(
            hosts=",".join(self._servers),
            timeout=self._session_timeout_ms / 1000,
            handler=handler,
            auth_data=self._auth,
            # In turn, so that a stopped server is not tried twice before a running one.
            randomize_hosts=False,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.1, backoff=1.5, max_delay=1.0, sleep_func=handler.sleep_func
            ),
            logger=log,
            use_ssl=self._tls is not None,
        )
        self._client = client
        self._watches.clear()
        self._on_event = partial(self._on_kazoo_event, client)
        self._connected = asyncio.get_running_loop().create_future()
        client.add_listener(partial(self._on_kazoo_state, client, handler))
        client.start_async()
        session = await self._connected
        if self._root:
            # Read first: creating it may be forbidden.
            message = Exists(self._root, None)
            if (
                await self._submit(_ZooKeeperRequest(message, self._root, bool, is_read=True))
                is False
            ):
                with suppress(NodeExistsError):  # another broker has created it already
                    await self._make(Create(self._root), root="")
        if client is not self._client:
            raise SessionExpiredError("the session ended as soon as it had begun")
        return session

    def _given_up(self, reason: str) -> StartupError:
        self._end()
        return StartupError(f"ZooKeeper at {self._connect}: {reason}")

    async def close(self) -> None:
        """End the session. If ZooKeeper does not answer now, the session expires."""
        stopped = self._end()
        if stopped is not None:
            await asyncio.wait([stopped], timeout=_CLOSE_TIMEOUT_S)

    def _end(self) -> asyncio.Future[None] | None:
        """Drop the session and the client; the future is done when the client has stopped."""
        client, self._client = self._client, None
        self._session = 0
        self._connected = None
        self._on_event = None
        self._watches.clear()
        self._limit_waiting(False)
        for request in (*self._in_flight, *self._again, *self._waiting):
            request.fail(SessionExpired())
        for requests in (self._in_flight, self._again, self._waiting):
            requests.clear()
        if client is None:
            return None
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def stop() -> None:  # blocks until kazoo's thread has ended
            try:
                client.stop()
                client.close()
            except KazooException as error:
                _LOG.warning("ZooKeeper's client does not stop: %s", error)
            self._post(partial(_settle, stopped))

        threading.Thread(target=stop, name="zookeeper-stop", daemon=True).start()
        return stopped

    # --------------------------------------------------------- callbacks in kazoo's thread

    def _post(self, call: Callable[[], object]) -> None:
        """In any thread: schedule a callback on the event loop."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._call_soon(call)

    def _on_kazoo_state(self, client: Any, handler: Handler, state: str) -> None:
        if state == KazooState.LOST:
            handler.may_connect = False
        session = client.client_id[0] if state == KazooState.CONNECTED else 0
        self._post(partial(self._state_changed, client, state, session))

    def _state_changed(self, client: Any, state: str, session: int) -> None:
        if client is not self._client:
            return
        connected = self._connected
        if state == KazooState.CONNECTED:
            self._counts.connection(is_there=True)
            self._limit_waiting(False)
            if connected is not None and not connected.done():
                connected.set_result(session)
            else:
                _LOG.info("session 0x%x: connected to ZooKeeper again", session)
            for watcher in self._watches.all_fired():
                watcher()
            self._pump()
        elif state == KazooState.SUSPENDED:
            self._counts.connection(is_there=False)
            _LOG.warning("session 0x%x: the connection to ZooKeeper was lost", self._session)
            self._limit_waiting(True)
        elif connected is not None and not connected.done():
            connected.set_exception(StoreError("it refused us: are the credentials right?"))
        else:
            self._lose_session()

    def _lose_session(self) -> None:
        had_session = self._session
        self._counts.expiries += bool(had_session)
        self._end()
        if had_session and self.on_session_lost is not None:
            self.on_session_lost()

    def _on_kazoo_event(self, client: Any, event: WatchedEvent) -> None:
        self._post(partial(self._event_happened, client, event))

    def _event_happened(self, client: Any, event: WatchedEvent) -> None:
        if client is not self._client:
            return
        path = event.path and (event.path[len(self._root) :] or ROOT)
        fired: list[Watcher] = []
        if event.type in _CHANGE_KINDS:
            fired = self._watches.fired_by([Change(path, _CHANGE_KINDS[event.type])])
        elif event.type == EventType.CHILD:
            fired = self._watches.fired_by_children_of(path)
        # Else: kazoo drops its watches with the connection. Ours fire after the next connection.
        for watcher in fired:
            watcher()

    def _limit_waiting(self, is_cut: bool) -> None:
        """While there is no connection, let no request wait longer than a session's time-out."""
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
            self._waiting_timer = None
        if is_cut:
            loop = asyncio.get_running_loop()
            self._waiting_timer = loop.call_later(
                self._session_timeout_ms / 1000, self._fail_waiting
            )

    def _fail_waiting(self) -> None:
        _LOG.warning("ZooKeeper at %s: no connection for a session's time-out", self._connect)
        for requests in (self._again, self._waiting):
            for request in requests:
                request.fail(ConnectionLoss())
            requests.clear()
        self._limit_waiting(True)

    # ------------------------------------------------------------------------- requests

    def _submit(self, request: "_ZooKeeperRequest") -> "asyncio.Future[Any]":
        if self._client is None:  # the session ended between two requests of one call
            request.fail(SessionExpired())
        else:
            self._waiting.append(request)
            self._pump()
        return request.done

    def _pump(self) -> None:
        client = self._client
        while len(self._in_flight) < self._in_flight_max and (self._again or self._waiting):
            # Kazoo would queue it and send it later, but a write that was reported as lost
            # before it was sent must not happen.
            if not client.connected:
                return
            request = (self._again or self._waiting).popleft()
            if request.done.cancelled():
                continue
            self._in_flight[request] = None
            request.sent_s = request.done.get_loop().time()
            client._call(request.message, KazooAnswer(self._post, self._answered, request))  # noqa: SLF001

    def _answered(self, request: "_ZooKeeperRequest", answer: Any) -> None:
        if request not in self._in_flight:  # the session is over
            return
        del self._in_flight[request]
        self._counts.request_ms.observe(1000 * (request.done.get_loop().time() - request.sent_s))
        if isinstance(answer, SessionExpired):
            request.fail(answer)
            self._lose_session()
            return
        if isinstance(answer, ConnectionLoss) and request.is_read:
            self._again.append(request)
        elif isinstance(answer, Exception):
            request.fail(answer)
        else:
            request.finish(answer)
        self._pump()

    def _check_session(self) -> None:
        if not self._session:
            raise SessionExpiredError("the session is over, or was not yet opened")

    # ---------------------------------------------------------------------------- reads

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        def arrive(answer: Any) -> tuple[bytes | None, Stat]:
            if watch is not None:
                self._watches.watch_data(path, watch)
            return node_of(answer)

        return await self.ask(path, GetData, watch, arrive)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def arrive(answer: Any) -> Stat | None:
            if watch is not None:
                self._watches.watch_data(path, watch)
            return stat_of(answer) if answer is not None else None

        return await self.ask(path, Exists, watch, arrive)

    async def access(self, path: str) -> list[Access]:
        def arrive(answer: Any) -> list[Access]:
            return [Access(acl.id.scheme, acl.id.id, letters(acl.perms)) for acl in answer[0]]

        return await self.ask(path, lambda whole, _: GetACL(whole), None, arrive)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        def arrive(answer: Any) -> list[str]:
            if watch is not None:
                self._watches.watch_children(path, watch)
            return sorted(answer)

        return await self.ask(path, GetChildren, watch, arrive)

    async def ask(
        self, path: str, kind: Any, watch: Watcher | None, arrive: Callable[[Any], T]
    ) -> T:
        """Send what `kind` makes of the complete path and a watcher; again if it was lost."""
        self._check_session()
        check_path(path)
        message = kind(self._whole(path), self._on_event if watch is not None else None)
        result: T = await self._submit(_ZooKeeperRequest(message, path, arrive, is_read=True))
        return result

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """Many nodes: `_READS_PER_REQUEST` in each request, several requests in flight."""
        self._check_session()
        for path in paths:
            check_path(path)
        starts = range(0, len(paths), _READS_PER_REQUEST)
        slices = [paths[start : start + _READS_PER_REQUEST] for start in starts]
        found = await asyncio.gather(*map(self._get_slice, slices))
        return [node for nodes in found for node in nodes]

    async def _get_slice(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        if self._has_multi_read:
            message = MultiRead([self._whole(path) for path in paths])
            try:
                answers = await self._submit(
                    _ZooKeeperRequest(message, paths[0], list, is_read=True)
                )
            except StoreError as error:
                if not isinstance(error.__cause__, UnimplementedError):
                    raise
                self._has_multi_read = False
            else:
                return [
                    found_node(path, answer) for path, answer in zip(paths, answers, strict=True)
                ]
        return await asyncio.gather(*map(self._get_if_there, paths))

    async def _get_if_there(self, path: str) -> tuple[bytes | None, Stat] | None:
        with suppress(NoNodeError):
            return await self.get(path)
        return None

    def _whole(self, path: str) -> str:
        return self._root + path if path != ROOT else self._root or ROOT

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
        self._check_session()
        operation = Create(path, data, ephemeral=ephemeral, sequential=sequential)
        if make_parents:
            return await self._make(operation, root=self._root)
        return await self._write(operation, root=self._root)

    async def _make(self, operation: Create, *, root: str) -> str:
        """Create a node and its missing ancestors."""
        try:
            return await self._write(operation, root=root)
        except NoNodeError:
            with suppress(NodeExistsError):  # another client has created it already
                await self._make(Create(parent_of(operation.path)), root=root)
            return await self._write(operation, root=root)

    async def set_data(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        self._check_session()
        return await self._write(SetData(path, data, version), root=self._root)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._check_session()
        await self._write(Delete(path, version), root=self._root)

    @overload
    async def _write(self, operation: Create, *, root: str) -> str: ...
    @overload
    async def _write(self, operation: SetData, *, root: str) -> Stat: ...
    @overload
    async def _write(self, operation: Delete, *, root: str) -> None: ...
    async def _write(self, operation: Operation, *, root: str) -> Result:
        check_path(operation.path)
        message = message_of(operation, root=root, is_secured=self._is_secured)
        check_size(message, [operation], bytes_max=self._request_bytes_max)
        arrive = partial(result_of, operation, root=root)
        result: Result = await self._submit(_ZooKeeperRequest(message, operation, arrive))
        return result

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        (outcome,) = await self.multi_many([operations])
        if isinstance(outcome, MultiError):
            raise outcome
        return outcome

    async def multi_many(
        self, batches: Sequence[Sequence[Operation]]
    ) -> list[list[Result] | MultiError]:
        """Many multis, a transaction each."""
        self._check_session()
        outcomes = await asyncio.gather(*map(self._multi, batches), return_exceptions=True)
        results: list[list[Result] | MultiError] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, MultiError):
                raise outcome
            results.append(outcome)
        return results

    def _multi(self, operations: Sequence[Operation]) -> "asyncio.Future[Any]":
        request = _ZooKeeperRequest(
            multi_of(operations, root=self._root, is_secured=self._is_secured),
            operations[0].path if operations else ROOT,
            partial(results_of, operations, root=self._root),
        )
        if not operations:
            request.finish([])
            return request.done
        for index, operation in enumerate(operations):
            try:
                check_path(operation.path)
                if not index:
                    check_size(request.message, operations, bytes_max=self._request_bytes_max)
            except StoreError as error:
                request.done.set_result(MultiError(index, error))
                return request.done
        return self._submit(request)


class _ZooKeeperRequest:
    """A request that waits to be sent, or for its answer."""

    __slots__ = ("_arrive", "done", "is_read", "message", "sent_s", "subject")

    def __init__(
        self,
        message: Any,
        subject: Operation | str,
        arrive: Callable[[Any], Any],
        *,
        is_read: bool = False,
    ) -> None:
        self.message = message
        self.subject = subject
        self.is_read = is_read
        self.sent_s = 0.0  # when it was last sent, by the loop's clock
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._arrive = arrive  # converts the answer, on the loop, in the order of arrival

    def finish(self, answer: Any) -> None:
        result = self._arrive(answer)
        if not self.done.done():  # else the requester was cancelled
            self.done.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            failure = error_of(error, self.subject)
            failure.__cause__ = error
            self.done.set_exception(failure)


def _settle(stopped: asyncio.Future[None]) -> None:
    if not stopped.done():
        stopped.set_result(None)
