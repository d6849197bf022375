"""What a test orders by hand: `sim.at(12.5, kill("shop-1"))`.

A target is the name of a program's instance ("shop-1") or of a broker ("broker-0"), or something
that is looked up when the action happens: `leader("orders", 0)`, `coordinator("shop")`,
`controller()`. Brokers and programs that are killed are started again after a while.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.sim.world.cluster import SimulatedBroker
from odradek.testkit.simulation.plan import Action, Condition
from odradek.testkit.simulation.program import Instance
from odradek.testkit.simulation.world import SimulatedWorld

RESTART_S: Final = 2.0

Some = SimulatedBroker | Instance
Target = str | Callable[[SimulatedWorld], Some | None]


def leader(topic: str, partition: int = 0) -> Target:
    """The broker that leads a partition at that time."""
    return lambda world: world.leader(topic, partition)


def coordinator(group: str) -> Target:
    """The broker that coordinates a group at that time."""
    return lambda world: world.coordinator(group)


def controller() -> Target:
    """The broker that is the controller at that time."""
    return lambda world: world.controller()


def kill(target: Target, *, restart_after: float | None = RESTART_S) -> Action:
    """SIGKILL; the process is started again after so many seconds, or not at all (None)."""

    async def act(world: SimulatedWorld) -> None:
        found = _find(world, target)
        if found is None:
            return
        found.kill()
        if restart_after is not None:
            await asyncio.sleep(restart_after)
            _start(found)

    return act


def pause(target: Target, seconds: float) -> Action:
    """SIGSTOP for so many seconds: heartbeats are missed, connections stay."""

    async def act(world: SimulatedWorld) -> None:
        found = _find(world, target)
        if found is None:
            return
        found.pause()
        await asyncio.sleep(seconds)
        found.resume()

    return act


def stop(target: Target, *, restart_after: float | None = RESTART_S) -> Action:
    """Ask a process to stop, and start it again after so many seconds, or not at all (None)."""

    async def act(world: SimulatedWorld) -> None:
        found = _find(world, target)
        if found is None:
            return
        await found.stop()
        if restart_after is not None:
            await asyncio.sleep(restart_after)
            _start(found)

    return act


def cut(one: Target, other: Target, seconds: float) -> Action:
    """Nothing passes between two for so many seconds."""

    async def act(world: SimulatedWorld) -> None:
        first, second = _find(world, one), _find(world, other)
        if first is None or second is None:
            return
        links = [(first.name, second.name), (second.name, first.name)]
        for link in links:
            world.network.cut(*link)
        await asyncio.sleep(seconds)
        world.network.heal(links)

    return act


def committed(group: str, topic: str, partition: int, offset: int) -> Condition:
    """A condition for `sim.when`: the group has committed this offset, or a later one."""
    return lambda world: world.committed(group, topic).get(partition, -1) >= offset


def _find(world: SimulatedWorld, target: Target) -> Some | None:
    return world.named(target) if isinstance(target, str) else target(world)


def _start(found: Some) -> None:
    if not found.is_up:
        found.start()
