"""Clocks, chance and system calls of the thread that simulates, for the length of a run.

    time.*, datetime.now, date.today    the simulated time of the program that asks
    random, secrets, uuid, os.urandom   derived from the seed
    time.sleep                          the program is busy for so long
    signal.signal                       accepted; no signal comes
    threads, processes, sockets         `NotSimulatedError`, with the place of the call

Other threads (of pytest-xdist, of a debugger) keep the real ones. Names that a module has imported
from these modules (`from time import monotonic`) are replaced in it, too. `Replacements` puts
everything back at its end, also in modules that were imported meanwhile.
"""

import datetime
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Container
from types import ModuleType
from typing import Any, Final

from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.process import running_process
from odradek.testkit.simulation.errors import NotSimulatedError
from odradek.testkit.simulation.frames import place_of
from odradek.testkit.simulation.loop import ProgramLoop, ProgramProcess

# What the even clock shows when a run begins: no program may think that it is a wall clock.
_STARTED_S: Final = 1_000.0
_REAL_DATETIME: Final = datetime.datetime
_REAL_DATE: Final = datetime.date


class Replacements:
    """A context manager. It may be used again after its end."""

    def __init__(self, loop: ProgramLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._thread = threading.get_ident()
        self._undo: list[tuple[Any, str, Any]] = []
        self._replaced: dict[int, tuple[Any, Any]] = {}  # by the id of the real one
        self._random_state: Any = None

    def __enter__(self) -> "Replacements":
        self._random_state = random.getstate()
        random.seed(self._chance.getrandbits(64))
        try:
            self._install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        simulated = {id(fake): real for real, fake in self._replaced.values()}
        for owner, name, real in reversed(self._undo):
            setattr(owner, name, real)
        self._undo.clear()
        # A module that was imported during the run may hold what was in place then.
        for module, name, value in _names_of(simulated):
            setattr(module, name, simulated[id(value)])
        self._replaced.clear()
        random.setstate(self._random_state)

    # ------------------------------------------------------------------------------ install

    def _install(self) -> None:
        for module, name, fake in self._clocks():
            self._replace(module, name, fake)
        for module, name, fake in self._chances():
            self._replace(module, name, fake)
        self._replace(signal, "signal", self._here(signal.signal, lambda *_: signal.SIG_DFL))
        for owner, name, call in (
            (threading.Thread, "start", "threading.Thread.start"),
            (subprocess.Popen, "__init__", "subprocess.Popen"),
            (socket.socket, "connect", "socket.connect"),
            (socket.socket, "connect_ex", "socket.connect_ex"),
            (socket.socket, "bind", "socket.bind"),
        ):
            self._patch(owner, name, self._refusing(getattr(owner, name), call))
        for name in ("getaddrinfo", "gethostbyname", "create_connection"):
            self._replace(socket, name, self._refusing(getattr(socket, name), f"socket.{name}"))
        for name in ("fork", "posix_spawn", "system"):
            if hasattr(os, name):
                self._replace(os, name, self._refusing(getattr(os, name), f"os.{name}"))
        for owner, name, fake in stamped_batches(self.wall_s):
            self._patch(owner, name, fake)
        self._replace_imported()

    def _replace(self, module: ModuleType, name: str, fake: Any) -> None:
        """Replace a module's name, here and wherever it was imported from it."""
        real = getattr(module, name)
        self._replaced[id(real)] = (real, fake)
        self._patch(module, name, fake)

    def _patch(self, owner: Any, name: str, fake: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, fake)

    def _replace_imported(self) -> None:
        for module, name, value in _names_of(self._replaced):
            self._patch(module, name, self._replaced[id(value)][1])

    def _here(self, real: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
        """The fake one in the thread that simulates, the real one in others."""
        thread, ident = self._thread, threading.get_ident

        def called(*arguments: Any, **options: Any) -> Any:
            return (fake if ident() == thread else real)(*arguments, **options)

        return called

    def _refusing(self, real: Callable[..., Any], call: str) -> Callable[..., Any]:
        """Refuse programs, and let everything else pass: asyncio needs a socket pair of its own."""

        def called(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() == self._thread and _program() is not None:
                raise NotSimulatedError(call, place_of(None))
            return real(*arguments, **options)

        return called

    # -------------------------------------------------------------------------------- time

    def wall_s(self) -> float:
        """The time of day as the running program believes, in seconds since 1970."""
        process = _program()
        own_s = process.skew_s + process.ahead_s if process is not None else 0.0
        return EPOCH_MS / 1000 + self._loop.time() + own_s

    def even_s(self) -> float:
        """The running program's even clock, in seconds."""
        process = _program()
        return _STARTED_S + self._loop.time() + (process.ahead_s if process is not None else 0.0)

    def _sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        process = _program()
        if process is not None:
            process.block(seconds)

    def _clocks(self) -> list[tuple[ModuleType, str, Any]]:
        even, wall = self.even_s, self.wall_s
        clocks: list[tuple[ModuleType, str, Any]] = [
            (time, "time", self._here(time.time, wall)),
            (time, "time_ns", self._here(time.time_ns, lambda: int(wall() * 1e9))),
            (time, "sleep", self._here(time.sleep, self._sleep)),
        ]
        for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
            ns = f"{name}_ns"
            clocks.append((time, name, self._here(getattr(time, name), even)))
            clocks.append((time, ns, self._here(getattr(time, ns), lambda: int(even() * 1e9))))
        for name in ("localtime", "gmtime", "strftime", "ctime", "asctime"):
            real = getattr(time, name)
            clocks.append((time, name, self._here(real, _at(real, name, wall))))
        simulated = _datetime_of(self._here(_REAL_NOW, wall))
        clocks += [(datetime, "datetime", simulated[0]), (datetime, "date", simulated[1])]
        return clocks

    # ------------------------------------------------------------------------------ chance

    def _chances(self) -> list[tuple[Any, str, Any]]:
        chance = self._chance
        urandom = self._here(os.urandom, chance.randbytes)
        seed = random.Random.seed

        def seeded(itself: random.Random, a: Any = None, version: int = 2) -> None:
            if a is None and threading.get_ident() == self._thread:
                a = chance.getrandbits(128)
            seed(itself, a, version)

        self._patch(random.Random, "seed", seeded)
        self._patch(random, "_urandom", urandom)
        # uuid1 reads the clock in C, unless it is told that it cannot.
        for name in ("_generate_time_safe", "_UuidCreate", "_last_timestamp"):
            if hasattr(uuid, name):
                self._patch(uuid, name, None)
        self._patch(uuid, "_node", 0x0D2ADE_000001)
        return [(os, "urandom", urandom)]


_REAL_NOW: Final = time.time


def stamped_batches(wall_s: Callable[[], float]) -> list[tuple[Any, str, Any]]:
    """In aiokafka: it asks the system for the time of a record in C, unless it is told the time."""
    module = sys.modules.get("aiokafka.producer.message_accumulator")
    builder = getattr(module, "BatchBuilder", None)
    if builder is None:
        return []
    append = builder.append

    def stamped(itself: Any, *, timestamp: int | None, **record: Any) -> Any:
        if timestamp is None:
            timestamp = int(wall_s() * 1000)
        return append(itself, timestamp=timestamp, **record)

    return [(builder, "append", stamped)]


def _program() -> ProgramProcess | None:
    process = running_process()
    return process if type(process) is ProgramProcess else None


def _at(real: Callable[..., Any], name: str, wall: Callable[[], float]) -> Callable[..., Any]:
    """A function of `time` whose time is now if it is given none."""
    if name in ("strftime", "asctime"):

        def of_now(*arguments: Any) -> Any:
            needed = 2 if name == "strftime" else 1
            if len(arguments) < needed:
                arguments = (*arguments, _LOCALTIME(wall()))
            return real(*arguments)

        return of_now
    return lambda seconds=None: real(wall() if seconds is None else seconds)


_LOCALTIME: Final = time.localtime


def _datetime_of(wall_s: Callable[[], float]) -> tuple[type, type]:
    """Classes in place of `datetime` and `date`, whose instances are the real ones."""

    class _Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, cls.__mro__[1])

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, cls.__mro__[1])

    class SimulatedDatetime(_REAL_DATETIME, metaclass=_Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            return _REAL_DATETIME.__new__(_own(cls, _REAL_DATETIME), *arguments, **options)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return _own(cls, _REAL_DATETIME).fromtimestamp(wall_s(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            of_utc = _REAL_DATETIME.fromtimestamp(wall_s(), datetime.UTC)
            return of_utc.replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return _own(cls, _REAL_DATETIME).fromtimestamp(wall_s())

    class SimulatedDate(_REAL_DATE, metaclass=_Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            return _REAL_DATE.__new__(_own(cls, _REAL_DATE), *arguments, **options)

        @classmethod
        def today(cls) -> Any:
            return _own(cls, _REAL_DATE).fromtimestamp(wall_s())

    def _own(cls: type, real: Any) -> Any:
        return real if cls in (SimulatedDatetime, SimulatedDate) else cls

    SimulatedDatetime.__name__, SimulatedDate.__name__ = "datetime", "date"
    return SimulatedDatetime, SimulatedDate


# Their clocks are not the programs': pytest measures tests, and Odradek is given its clocks.
_LEFT_ALONE: Final = ("odradek", "_pytest", "pytest", "xdist", "execnet", "asyncio", "threading")


def _names_of(ids: Container[int]) -> list[tuple[ModuleType, str, Any]]:
    """The names of modules that programs may use, whose values have these ids."""
    modules: dict[str, Any] = dict(sys.modules)
    return [
        (module, name, value)
        for module_name, module in modules.items()
        if module_name.partition(".")[0] not in _LEFT_ALONE
        for name, value in list(getattr(module, "__dict__", {}).items())
        if id(value) in ids
    ]
