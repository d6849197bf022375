"""Troubles of a disk that is sound otherwise: it is slow, or single operations of it fail."""

import asyncio
import errno
import random
from typing import Final, Protocol

from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster
from odradek.sim.world.disk import DiskFault

# All operations of a disk but flushes: after a failed one pages are lost with the power.
OPERATIONS: Final = (
    "open", "create", "write", "read", "rename", "unlink", "list", "mkdir", "truncate", "size",
)  # fmt: skip
_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.EINTR)
_PLACES: Final = (
    "", "", ".log", ".index", ".txnindex", ".snapshot", ".metadata", "checkpoint", ".tmp",
)  # fmt: skip
_FOR_EVER: Final = 1 << 60
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
    """Take all file descriptors of the process for moments; it has closed its idle files."""
    del cluster
    chance = random.Random(fault.detail)
    for _ in range(chance.randint(2, 8)):
        if chance.random() < 0.5:
            broker.disk.rest_all()
        broker.disk.faults += [
            DiskFault(operation, "", errno=errno.EMFILE, times=_FOR_EVER)
            for operation in ("open", "create", "list")
        ]
        await asyncio.sleep(chance.choice((0.01, 0.1, 0.5)) + fault.lasts_s * chance.random() / 4)
        broker.disk.faults.clear()
        await asyncio.sleep(chance.choice((0.01, 0.1, 0.5)))
    await _restart_if_offline(broker)


async def _restart_if_offline(broker: SimulatedBroker) -> None:
    running = broker.broker
    if broker.is_up and running is not None and running.logs.has_offline_dir:
        await broker.stop()
    if not broker.is_up:
        await asyncio.sleep(RESTART_S)
        broker.start()
