"""Faults of the coordination store: it cannot be reached, loses requests, or answers late.

In all of them `detail`, between 0 and 1, is what further choices derive from.
"""

import asyncio
import random
from typing import Final

from odradek.coord.memory import RequestFate, RequestLoss
from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster, usual_fate
from odradek.sim.world.slow_store import draw_slow_store

_SLOW_S_MIN: Final = 1.0


async def cut_store(broker: SimulatedBroker, lasts_s: float) -> None:
    """Cut one broker off from the store."""
    store = broker.store
    if store is not None:
        store.cut()
        await asyncio.sleep(lasts_s * 2)
        if broker.store is store:
            store.restore()


async def lose_requests(cluster: SimulatedCluster, lasts_s: float, detail: float) -> None:
    """Lose requests of all brokers, or their answers."""
    share = 0.02 + 0.3 * detail

    def fate(chance: random.Random) -> RequestFate:
        loss = (
            chance.choice((RequestLoss.BEFORE, RequestLoss.AFTER))
            if chance.random() < share
            else RequestLoss.NONE
        )
        return RequestFate(
            request_delay_ms=chance.randint(0, 100),
            answer_delay_ms=chance.randint(0, 100),
            loss=loss,
        )

    cluster.draw_fate = fate
    await asyncio.sleep(lasts_s)
    cluster.draw_fate = usual_fate


async def slow_down(
    cluster: SimulatedCluster, broker: SimulatedBroker, lasts_s: float, detail: float
) -> None:
    """Delay some requests and answers, of one broker or of all."""
    slow = draw_slow_store(random.Random(str(detail)), broker.id)
    cluster.trace(f"slow store: {slow}")
    cluster.slow_stores.append(slow)
    await asyncio.sleep(_SLOW_S_MIN + lasts_s)
    cluster.slow_stores.remove(slow)
