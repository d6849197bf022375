"""Troubles of a disk that is sound otherwise: it is slow, or single operations of it fail."""

import asyncio
import errno
import random
from contextlib import suppress
from typing import Final, Protocol

from odradek.sim.world.cluster import PORT, SimulatedBroker, SimulatedCluster
from odradek.sim.world.disk import DiskFault
from odradek.sim.world.process import MortalLoop

# All operations of a disk but flushes: after a failed one pages are lost with the power.
OPERATIONS: Final = (
    "open", "create", "write", "read", "rename", "unlink", "list", "mkdir", "truncate", "size",
)  # fmt: skip
_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.EINTR)
_PLACES: Final = (
    "", "", ".log", ".index", ".txnindex", ".snapshot", ".metadata", "checkpoint", ".tmp",
)  # fmt: skip
RESTART_S: Final = 1.0  # from power on to a process; longer than any delay


class Trouble(Protocol):
    """A fault's duration, and a number between 0 and 1 that decides the rest."""

    @property
    def lasts_s(self) -> float:
        """Its duration in seconds."""

    @property
    def detail(self) -> float:
        """A number between 0 and 1."""


async def slow_disk(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Trouble) -> None:
    """Let operations take up to three seconds, and half of the reads miss the page cache."""
    del cluster
    usual = broker.disk.slowest_ms
    broker.disk.slowest_ms, broker.disk.cold_share = int(50 + 3_000 * fault.detail), 0.5
    await asyncio.sleep(fault.lasts_s)
    broker.disk.slowest_ms, broker.disk.cold_share = usual, 0.0


async def fail_moments(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Trouble) -> None:
    """Let one operation fail, and then another one: of any kind, on any file."""
    del cluster
    chance = random.Random(fault.detail)
    for _ in range(chance.randint(1, 6)):
        broker.disk.faults.append(
            DiskFault(
                chance.choice(OPERATIONS),
                chance.choice(_PLACES),
                errno=chance.choice(_ERRORS),
                after=chance.choice((0, 0, 1, 3, 10)),
            )
        )
        await asyncio.sleep(0.1 + fault.lasts_s * chance.random())
        broker.disk.faults.clear()
    await _restart_if_offline(broker)


async def take_descriptors(
    cluster: SimulatedCluster, broker: SimulatedBroker, fault: Trouble
) -> None:
    """Leave the process hardly any descriptors for moments, or let strangers want them all.

    With the share of connections, strangers take none that the logs need.
    """
    chance = random.Random(fault.detail)
    if chance.random() < 0.3:
        await _crowd(cluster, broker, fault.lasts_s)
    held = broker.descriptors
    for _ in range(chance.randint(2, 8)):
        if chance.random() < 0.5:
            broker.disk.rest_all()
        others_take = chance.random() < 0.7
        held.lower(held.used + chance.choice((0, 0, 0, 1, 3)), others_take=others_take)
        await asyncio.sleep(chance.choice((0.01, 0.1, 0.5)) + fault.lasts_s * chance.random() / 4)
        held.restore()
        await asyncio.sleep(chance.choice((0.01, 0.1, 0.5)))
    await _restart_if_offline(broker)


async def _crowd(cluster: SimulatedCluster, broker: SimulatedBroker, lasts_s: float) -> None:
    """Open more connections than the broker has descriptors, and send nothing on them."""
    strangers = MortalLoop(cluster.loop, f"strangers of {broker.name}")
    cluster.processes.append(strangers)
    cluster.network.join(strangers)
    for _ in range(broker.descriptors.limit):
        with suppress(OSError):
            await cluster.network.connect(strangers, broker.name, PORT, asyncio.Protocol)
    await asyncio.sleep(lasts_s)
    strangers.kill()
    cluster.network.host_died(strangers.name, power=False)


async def _restart_if_offline(broker: SimulatedBroker) -> None:
    running = broker.broker
    if broker.is_up and running is not None and running.logs.has_offline_dir:
        await broker.stop()
    if not broker.is_up:
        await asyncio.sleep(RESTART_S)
        broker.start()
