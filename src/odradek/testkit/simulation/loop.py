"""The event loop of programs in simulated time.

It is the simulator's loop (`sim/world`), with what an ordinary asyncio program asks for besides:
streams, servers, executors, name look-up, signal handlers. What cannot be simulated is refused with
an error that names the call.

    a killed program     none of its callbacks runs any more, not even a `finally`, as after SIGKILL
    a paused program     its callbacks wait, and run in their order when it goes on
    a blocked program    as paused, for the time that it has computed or slept (`time.sleep`)
"""

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar

from odradek.sim.world.loop import Due
from odradek.sim.world.network import SimulatedLoop
from odradek.sim.world.process import MortalLoop, running_process, task_factory
from odradek.testkit.simulation.errors import NotSimulatedError, ProgramSpinsError
from odradek.testkit.simulation.frames import place_of

T = TypeVar("T")
Callback = Callable[..., object]

# With so many turns within one simulated second, a program waits for nothing.
TURNS_MAX: Final = 100_000
# Each turn takes some time: a program that waits for a deadline must see it pass.
TURN_S: Final = 1e-6
_EXECUTOR_MS: Final = (0.05, 5.0)


class ProgramProcess(MortalLoop):
    """A process of the user's: its tasks are plain tasks, and all of its callbacks end with it."""

    def __init__(self, loop: "ProgramLoop", name: str) -> None:
        super().__init__(loop, name)
        self.skew_s = 0.0  # of its wall clock
        self.ahead_s = 0.0  # what it has computed in this turn
        self.slow_s = 0.0  # what each of its turns takes
        self.on_exit: Callable[[int], None] = lambda _code: None
        self._second = -1
        self._turns = 0
        self._kept: list[asyncio.Task[Any]] = []
        self._ready_s = 0.0

    def begin_turn(self, due: Due) -> None:
        """Count a turn.

        Raises:
            ProgramSpinsError: the program has made more turns than a second can have.
        """
        second = int(self.loop.time())
        if second != self._second:
            self._second, self._turns = second, 0
        self._turns += 1
        if self._turns > TURNS_MAX:
            self._turns = 0
            raise ProgramSpinsError(self.name, TURNS_MAX, place_of(due))

    def block(self, seconds: float) -> None:
        """The program computes for so long: it does nothing else meanwhile."""
        if seconds <= 0:
            return
        self.ahead_s += seconds
        self._ready_s = self.loop.time() + self.ahead_s
        if self.gate is None:
            self.pause()
            # Not through this process, which would keep the callback.
            self.loop.put_at(
                self._ready_s, Due(self.loop, self._ready_s, self._unblock, (), copy_context())
            )

    def _unblock(self) -> None:
        now_s = self.loop.time()
        if now_s < self._ready_s:  # it has gone on to compute
            due = Due(self.loop, self._ready_s, self._unblock, (), copy_context())
            self.loop.put_at(self._ready_s, due)
            return
        self.ahead_s = 0.0
        self.resume()

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Hold a task until the end: one that is freed would run its `finally`."""
        self._kept.append(task)
        if len(self._kept) > 1000:
            self._kept = [each for each in self._kept if not each.done()]

    @property
    def tasks(self) -> list["asyncio.Task[Any]"]:
        """The tasks that have not ended."""
        return [task for task in self._kept if not task.done()]

    def forget(self) -> None:
        """End of the simulation: asyncio does not wait for the tasks, which cannot end."""
        self.kill()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            asyncio.tasks._unregister_task(task)  # noqa: SLF001

    def bury(self) -> None:
        """After the simulation: free the tasks. What their `finally` does has no meaning."""
        super().bury()
        kept, self._kept = self._kept, []
        for task in kept:
            work = task.get_coro()
            if not task.done() and work is not None:
                with suppress(BaseException):
                    work.close()


class _ProgramDue(Due):
    """A callback of a program."""

    __slots__ = ("_process",)

    def __init__(
        self,
        process: ProgramProcess,
        when_s: float,
        work: Callback,
        arguments: tuple[Any, ...],
        context: Context,
    ) -> None:
        super().__init__(process.loop, when_s, work, arguments, context)
        self._process = process

    def _run(self) -> None:
        process = self._process
        if process.is_dead:
            return
        if process.gate is not None:
            process.hold_back(self)  # type: ignore[arg-type]
            return
        process.begin_turn(self)
        try:
            self._context.run(self._callback, *self._args)
        except SystemExit as error:
            process.on_exit(error.code if isinstance(error.code, int) else int(bool(error.code)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.failed(error)
        if process.slow_s:
            process.block(process.slow_s)


class ProgramLoop(SimulatedLoop):
    """The loop that brokers and programs of a simulation share."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.turn_s = TURN_S
        self._chance = chance
        self.set_task_factory(_task_factory)

    # ------------------------------------------------------------ callbacks end with a program

    def call_soon(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next turn, unless its program is dead."""
        return self._due(self._now_s, callback, args, context, soon=True)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callback, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback after a delay, unless its program is dead."""
        return self._due(self._now_s + delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callback, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at a time, unless its program is dead."""
        return self._due(when, callback, args, context)

    def _due(
        self,
        when_s: float,
        callback: Callback,
        arguments: tuple[Any, ...],
        context: Context | None,
        *,
        soon: bool = False,
    ) -> Due:
        if context is None:
            context = copy_context()
        process = running_process(context)
        due = (
            _ProgramDue(process, when_s, callback, arguments, context)
            if type(process) is ProgramProcess
            else Due(self, when_s, callback, arguments, context)
        )
        if soon:
            self.put_soon(due)
        else:
            self.put_at(when_s, due)
        return due

    # -------------------------------------------------------------------------------- network

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **_options: Any,
    ) -> tuple[asyncio.Transport, Any]:
        """Connect to a host of the simulation.

        Raises:
            NotSimulatedError: with TLS, or with a socket of one's own.
            OSError: no process listens there, or the link is cut.
        """
        if ssl:
            raise NotSimulatedError("a connection with TLS", place_of(None))
        if sock is not None or host is None or port is None:
            raise NotSimulatedError("create_connection without host and port", place_of(None))
        return await super().create_connection(protocol_factory, _name(host), int(port))

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **_options: Any,
    ) -> "SimulatedServer":
        """Listen on a port of the program's own host; `host` is ignored.

        Raises:
            NotSimulatedError: with TLS, or with a socket of one's own.
            OSError: the port is in use.
        """
        del host
        if ssl or sock is not None:
            what = "a server with TLS" if ssl else "a server with a socket of its own"
            raise NotSimulatedError(what, place_of(None))
        process = running_process()
        if process is None or self.network is None:
            raise NotSimulatedError("a server outside of a program", place_of(None))
        return SimulatedServer(self, self.network.listen(process, port or 0, protocol_factory))

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> list[tuple[Any, ...]]:
        """Hosts of the simulation have their names for addresses."""
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (_name(host), int(port or 0)))]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """The inverse of `getaddrinfo`."""
        del flags
        return str(sockaddr[0]), str(sockaddr[1])

    # ------------------------------------------------------------------- threads and processes

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run a function now; its result is there after a drawn time, as from a thread."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        low_ms, high_ms = _EXECUTOR_MS
        after_s = self._chance.uniform(low_ms, high_ms) / 1000
        try:
            result = func(*args)
        except StopIteration as error:
            # A future refuses it; asyncio's own executor does the same.
            self.call_later(after_s, _fail, future, RuntimeError(repr(error)))
        except Exception as error:
            self.call_later(after_s, _fail, future, error)
        else:
            self.call_later(after_s, _succeed, future, result)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """Accepted, and never used."""

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callback, *args: Any
    ) -> None:
        """Accepted, and never called."""

    def remove_signal_handler(self, sig: int) -> bool:
        """There is none to remove."""
        del sig
        return False


class SimulatedServer(asyncio.AbstractServer):
    """A server of a program, as `asyncio.start_server` returns it."""

    def __init__(self, loop: ProgramLoop, listening: Any) -> None:
        self._loop = loop
        self._listening = listening
        self._closed: asyncio.Future[None] = loop.create_future()
        self.sockets: tuple[Any, ...] = (_ServerSocket(listening.process.name, listening.port),)

    def close(self) -> None:
        """Accept no more connections."""
        self._listening.close()
        self.sockets = ()
        if not self._closed.done():
            self._closed.set_result(None)

    def close_clients(self) -> None:
        """Accepted connections are left to their handlers."""

    abort_clients = close_clients

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return not self._closed.done()

    async def start_serving(self) -> None:
        """It listens since it was made."""

    async def serve_forever(self) -> None:
        """Wait until the server is closed, or the task is cancelled."""
        try:
            await asyncio.shield(self._closed)
        finally:
            self.close()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


class _ServerSocket:
    """What a program may ask the socket of its server: its port."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._address


def _task_factory(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> "asyncio.Task[Any]":
    """Tasks of programs are plain ones; those of brokers are as in the simulator."""
    process = running_process(options.get("context"))
    if type(process) is not ProgramProcess:
        return task_factory(loop, work, **options)
    task = asyncio.Task(work, loop=loop, **options)
    process.keep(task)
    return task


def _refuse(call: str) -> Callable[..., Any]:
    def refuse(*_arguments: object, **_options: object) -> Any:
        raise NotSimulatedError(f"loop.{call}", place_of(None))

    return refuse


# What needs the operating system: real sockets, pipes and processes. `add_reader` and `add_writer`
# stay, because asyncio's own socket pair uses them.
for _call in (
    "connect_accepted_socket", "connect_read_pipe",
    "connect_write_pipe", "create_datagram_endpoint", "create_unix_connection",
    "create_unix_server", "sendfile", "sock_accept", "sock_connect", "sock_recv",
    "sock_recv_into", "sock_recvfrom", "sock_sendall", "sock_sendfile", "sock_sendto",
    "start_tls", "subprocess_exec", "subprocess_shell",
):  # fmt: skip
    setattr(ProgramLoop, _call, _refuse(_call))


def _name(host: str | bytes | None) -> str:
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if name in ("localhost", "127.0.0.1", "::1"):
        process = running_process()
        return process.name if process is not None else name
    return name


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
