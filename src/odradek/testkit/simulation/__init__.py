"""Programs that use Kafka, tested in simulated time: a run is a function of its seed.

    from odradek.testkit.simulation import kafka_simulation

    @kafka_simulation(seeds=200, brokers=3, minutes=0.5)
    def test_no_order_is_lost(sim):
        sim.topic("orders", partitions=2)
        sim.process("shop", shop, instances=2)       # an ordinary asyncio program
        sim.process("till", till)
        sim.at_end(lambda world: world.assert_none_lost(
            sent=world.outside.sent, got=world.outside.got))

docs/simulation.md is the guide. Importing this package imports nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.testkit.simulation.actions import committed as committed
    from odradek.testkit.simulation.actions import controller as controller
    from odradek.testkit.simulation.actions import coordinator as coordinator
    from odradek.testkit.simulation.actions import cut as cut
    from odradek.testkit.simulation.actions import kill as kill
    from odradek.testkit.simulation.actions import leader as leader
    from odradek.testkit.simulation.actions import pause as pause
    from odradek.testkit.simulation.actions import stop as stop
    from odradek.testkit.simulation.asking import kafka_simulation as kafka_simulation
    from odradek.testkit.simulation.asking import simulate as simulate
    from odradek.testkit.simulation.errors import NotSimulatedError as NotSimulatedError
    from odradek.testkit.simulation.errors import SimulationError as SimulationError
    from odradek.testkit.simulation.incidents import FaultKind as FaultKind
    from odradek.testkit.simulation.plan import SimulationPlan as SimulationPlan
    from odradek.testkit.simulation.program import Context as Context
    from odradek.testkit.simulation.world import SimulatedWorld as SimulatedWorld

_HOMES = {
    **dict.fromkeys(
        ("committed", "controller", "coordinator", "cut", "kill", "leader", "pause", "stop"),
        "actions",
    ),
    "kafka_simulation": "asking",
    "simulate": "asking",
    "NotSimulatedError": "errors",
    "SimulationError": "errors",
    "FaultKind": "incidents",
    "SimulationPlan": "plan",
    "Context": "program",
    "SimulatedWorld": "world",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is used first."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only with the first use

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
