"""Faults of an administrator: the store, or log directories of one broker, are put back.

Before the store is put back, brokers are stopped cleanly: what a store of less than a minute ago
forgets cannot be found out if every broker was killed (docs/decisions.md). Log directories are
copied while their broker is stopped, was killed, or runs; and put back after a stop or a kill.
"""

import asyncio
from typing import Final

from odradek.sim.world.cluster import LOG_DIRS, SimulatedBroker, SimulatedCluster

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


async def put_logs_back(
    cluster: SimulatedCluster, broker: SimulatedBroker, *, lasts_s: float, detail: float
) -> None:
    """Copy all log directories of one broker, or one of them, and put the copy back later."""
    drawn = int(detail * 1_000_000)
    path = ("/", "/", *LOG_DIRS)[drawn % 4]
    if not broker.disk.exists(path):
        return  # the store did not let it start
    how = drawn // 4 % 3
    if how < 2 and broker.is_up:
        await _end(broker, is_killed=how == 1)
    copy = broker.disk.copy(path, is_torn=how == 2)
    if not broker.is_up:
        await asyncio.sleep(_PAUSE_S)
        broker.start()
    await asyncio.sleep(_BETWEEN_S + lasts_s)
    if drawn // 12 % 2:
        for each in cluster.brokers:  # so that nothing is committed that it does not have
            each.kill()
    await _end(broker, is_killed=drawn // 24 % 2 == 1)
    if not cluster.lossy - {broker.id}:  # replication survives the loss of one broker at a time
        cluster.trace(f"{path} of {broker.name} is put back")
        broker.put_back(path, copy)
    await asyncio.sleep(_PAUSE_S * (drawn // 48 % 4))
    if not broker.is_up:
        broker.start()


async def _end(broker: SimulatedBroker, *, is_killed: bool) -> None:
    if is_killed:
        broker.kill()
    elif broker.is_up:
        await broker.stop()


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
