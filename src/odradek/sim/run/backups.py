"""A fault of an administrator: the store is put back to an earlier copy of itself.

Brokers are stopped cleanly before: what a store of less than a minute ago forgets cannot be found
out if every broker was killed (docs/decisions.md).
"""

import asyncio
from typing import Final

from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster

_STOP_S: Final = 30.0
_PAUSE_S: Final = 1.0
_BETWEEN_S: Final = 3.0  # at least, between the backup and its return


async def put_store_back(
    cluster: SimulatedCluster, broker: SimulatedBroker, *, lasts_s: float, detail: float
) -> None:
    """Copy the store, restart some brokers one after the other, and put the copy back."""
    copy = cluster.tree.copy()
    first = broker.id
    for turn in range(1 + int(detail * 100) % len(cluster.brokers)):
        each = cluster.brokers[(first + turn) % len(cluster.brokers)]
        if int(detail * 1000) >> turn & 1:
            each.kill()
        else:
            await each.stop()
        await asyncio.sleep(_PAUSE_S)
        if not each.is_up:
            each.start()
        await asyncio.sleep(_BETWEEN_S + lasts_s / 4)
    if await _stop_all(cluster):
        cluster.trace("the store is put back")
        cluster.tree.put_back_except_topics(copy)
    await asyncio.sleep(_PAUSE_S)
    order = [*cluster.brokers[first:], *cluster.brokers[:first]]
    for each in order:
        if not each.is_up:
            each.start()
        await asyncio.sleep(detail)


async def _stop_all(cluster: SimulatedCluster) -> bool:
    """Stop all brokers at the same time; whether all of them stopped cleanly."""
    running = [broker for broker in cluster.brokers if broker.is_up]
    for broker in running:
        broker.resume()
        broker.request_stop(together_with=[each.id for each in cluster.brokers])
    try:
        async with asyncio.timeout(_STOP_S):
            for broker in running:
                await broker.ended()
    except TimeoutError:
        return False
    return len(running) == len(cluster.brokers) and not any(b.gave_up for b in running)
