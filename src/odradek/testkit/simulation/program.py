"""The user's programs: each instance has a host, and one process after the other."""

import asyncio
import random
import traceback
from collections.abc import Callable
from typing import Any, Final

from odradek.sim.world.network import SimulatedNetwork
from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.frames import is_users
from odradek.testkit.simulation.loop import ProgramLoop, ProgramProcess
from odradek.testkit.simulation.outside import Outside
from odradek.testkit.simulation.program_plan import Ending, ProgramPlan

Note = Callable[[str, str], None]  # who, what

RESTART_S: Final = 1.0  # until a program that has ended is started again, as by a supervisor
GRACE_S: Final = 10.0  # from the request to stop to the kill, as Docker has it


class Context:
    """What a program gets from the simulation; its only link to it."""

    def __init__(self, instance: "Instance", bootstrap: str, outside: Outside) -> None:
        self.bootstrap = bootstrap
        self.name = instance.name
        self.number = instance.number
        self.outside = outside.of(instance.name)
        self.stopping = asyncio.Event()
        self.random: random.Random = random.Random(f"{instance.name}/{instance.starts}")
        self._note = instance.note

    def note(self, what: str) -> None:
        """Write a line into the story of the run."""
        self._note(self.name, what)


class Instance:
    """One instance of a program."""

    def __init__(  # noqa: PLR0913 - everything that it is given from outside
        self,
        loop: ProgramLoop,
        network: SimulatedNetwork,
        *,
        name: str,
        number: int,
        program: ProgramPlan,
        bootstrap: str,
        outside: Outside,
        note: Note,
        failed: Callable[[str], None],
    ) -> None:
        self.name = name
        self.number = number
        self.program = program
        self.starts = 0
        self.is_wanted = False  # whether it is to be started again when it has ended
        self.process: ProgramProcess | None = None
        self.processes: list[ProgramProcess] = []
        self.note = note
        self.slow_s = 0.0
        self.skew_s = 0.0
        self.stopping = False  # told to come to an end
        self._loop = loop
        self._network = network
        self._bootstrap = bootstrap
        self._outside = outside
        self._failed = failed
        self._context: Context | None = None
        self._task: asyncio.Task[Any] | None = None
        self._ended = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def has_faults(self) -> bool:
        """Whether faults are drawn for it."""
        return self.program.has_faults

    @property
    def winds_up(self) -> bool:
        """Whether it is told that the test is over; services are not."""
        return self.program.instances > 0

    @property
    def is_restarted(self) -> bool:
        """Whether it is started again when it has ended by itself."""
        return self.program.ending is Ending.RESTART

    @property
    def is_paused(self) -> bool:
        return self.process is not None and self.process.gate is not None

    # ----------------------------------------------------------------------- start and end

    def start(self) -> None:
        """Start a process, if none runs."""
        self.is_wanted = True
        if self.process is not None:
            return
        self.starts += 1
        process = self.process = ProgramProcess(self._loop, self.name)
        process.slow_s, process.skew_s = self.slow_s, self.skew_s
        process.on_exit = lambda code: self._exited(process, f"exits with {code}")
        self.processes.append(process)
        self._network.join(process)
        self._ended.clear()
        context = self._context = Context(self, self._bootstrap, self._outside)
        if self.stopping:
            context.stopping.set()
        self.note(self.name, "starts")
        inside = process.context.copy()
        task = self._task = self._loop.create_task(
            inside.run(self._run, context), name=self.name, context=inside
        )
        task.add_done_callback(lambda task: self._returned(process, task))

    async def _run(self, context: Context) -> object:
        return await self.program.main(context, *self.program.arguments)

    def _returned(self, process: ProgramProcess, task: "asyncio.Task[Any]") -> None:
        if process.is_dead:
            return
        error = None if task.cancelled() else task.exception()
        if isinstance(error, AssertionError | SimulationError):
            self._failed(f"{self.name}: {describe(error)}")
        if error is None:
            self._exited(process, "is stopped" if task.cancelled() else "ends")
            return
        if self.program.ending is Ending.FAIL:
            self._failed(f"{self.name} ended with {describe(error)}")
        self._exited(process, f"ends with {describe(error)}")

    def _exited(self, process: ProgramProcess, how: str) -> None:
        if process.is_dead:
            return
        self._bring_down(process, how)
        if self.is_restarted and self.is_wanted and not self.stopping:
            self._loop.call_later(RESTART_S, self._start_again)

    def _start_again(self) -> None:
        if self.is_wanted and not self.stopping:
            self.start()

    def _bring_down(self, process: ProgramProcess, how: str) -> None:
        self.note(self.name, how)
        process.kill()
        self._network.host_died(self.name, power=False)
        self.process = self._task = self._context = None
        self._ended.set()

    # ------------------------------------------------------------------------------- faults

    def kill(self) -> None:
        """SIGKILL: no code of it runs any more."""
        if self.process is not None:
            self._bring_down(self.process, "is killed")

    async def stop(self) -> None:
        """Ask it to stop, as a deployment does; kill it if it has not after a while."""
        self.is_wanted = False
        if self.process is None or self._task is None:
            return
        self.note(self.name, "is asked to stop")
        if self._context is not None:
            self._context.stopping.set()
        self._task.cancel()
        try:
            async with asyncio.timeout(GRACE_S):
                await self._ended.wait()
        except TimeoutError:
            self.kill()

    def wind_up(self) -> None:
        """Tell it that the test is over: `context.stopping`. It is not started again."""
        self.stopping = True
        if self._context is not None:
            self._context.stopping.set()

    def pause(self) -> None:
        """SIGSTOP, or a long garbage collection."""
        if self.process is not None and self.process.gate is None:
            self.note(self.name, "pauses")
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None and self.process.gate is not None:
            self.note(self.name, "goes on")
            self.process.resume()

    def slow_down(self, each_turn_s: float) -> None:
        """Each of its turns takes so long from now on; 0 ends it."""
        self.slow_s = each_turn_s
        if self.process is not None:
            self.process.slow_s = each_turn_s
        self.note(self.name, "becomes slow" if each_turn_s else "is as fast as before")

    def set_clock(self, ahead_s: float) -> None:
        """Its wall clock is so far ahead of the others from now on."""
        self.skew_s = ahead_s
        if self.process is not None:
            self.process.skew_s = ahead_s
        self.note(self.name, f"has a clock that is {ahead_s:+.0f} s off")

    def forget(self) -> None:
        """End of the simulation: none of its processes runs any more."""
        for process in self.processes:
            process.forget()

    def bury(self) -> None:
        """After the simulation: free what its processes have left."""
        for process in self.processes:
            process.bury()


def describe(error: BaseException) -> str:
    """An exception in one line, with the last place in the user's code if there is one."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)]
    if own:
        name = own[-1].filename.replace("\\", "/").rsplit("/", 1)[-1]
        text += f" ({name}:{own[-1].lineno})"
    return text
