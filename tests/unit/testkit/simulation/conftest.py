"""Programs on a simulated network without brokers."""

import asyncio
import random

import pytest

from odradek.sim.world.network import SimulatedNetwork
from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.loop import ProgramLoop
from odradek.testkit.simulation.outside import Outside
from odradek.testkit.simulation.patches import Replacements
from odradek.testkit.simulation.plan import ProgramPlan
from odradek.testkit.simulation.program import Ending, Instance


class Programs:
    def __init__(self, seed=1):
        self.loop = ProgramLoop(random.Random(seed))
        self.network = SimulatedNetwork(self.loop, random.Random(seed))
        self.loop.network = self.network
        self.instances = []
        self.events = []
        self.failures = []
        self.unhandled = []
        self.outside = Outside(lambda who, ledger, value: self.note(who, f"{ledger}: {value}"))
        self.patches = Replacements(self.loop, random.Random(seed))

    def note(self, who, what):
        self.events.append((round(self.loop.time(), 2), who, what))

    def add(self, name, main, ending=Ending.STAY):
        plan = ProgramPlan(name, main, (), 1, ending, has_faults=True)
        instance = Instance(
            self.loop,
            self.network,
            name=name,
            number=1,
            program=plan,
            bootstrap="",
            outside=self.outside,
            note=self.note,
            failed=self.failures.append,
        )
        self.instances.append(instance)
        return instance

    def play(self, seconds=10.0, script=None):
        """Start all instances, run the script beside them, and look for so long."""

        async def main():
            for instance in self.instances:
                instance.start()
            if script is not None:
                await script()
            await asyncio.sleep(seconds)

        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().set_exception_handler(
                lambda _, context: self.unhandled.append(context.get("exception"))
            )
            try:
                with self.patches:
                    runner.run(main())
            finally:
                for instance in self.instances:
                    instance.forget()
        for instance in self.instances:
            instance.bury()

    def said(self, who):
        return [what for _, name, what in self.events if name == who]

    def error(self, main):
        """The error with which a program ends that asks for what is not simulated."""
        self.add("shop", main)
        self.play(1.0)
        errors = [*self.failures, *map(str, filter(_is_ours, self.unhandled))]
        assert errors, self.events
        return errors[0]


def _is_ours(error):
    return isinstance(error, SimulationError)


@pytest.fixture
def programs():
    return Programs()
