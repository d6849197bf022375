"""Everything of the world that a broker touches, handed to it in one piece.

The simulator hands in another one. So there is no path in a broker that is reachable in
production only, and any number of brokers live in one process without knowing of each other.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from odradek.coord.store import Store
from odradek.log.disk import Disk
from odradek.model.clock import Clock, MonotonicMs, WallMs
from odradek.net.channel import Connector
from odradek.net.server import Network

if TYPE_CHECKING:
    from odradek.broker.serving.worker import Worker
    from odradek.broker.storage.cleaner_shell import Cleaner


class WorldNetwork(Network, Connector, Protocol):
    """Both directions of the network."""


class RealClock:
    """The host's clocks.

    A call of `WallMs` or `MonotonicMs` would take a fifth of the time of reading the clock.
    """

    def wall_ms(self) -> WallMs:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000  # type: ignore[return-value]

    def monotonic_ms(self) -> MonotonicMs:
        """Milliseconds since the host started, more or less."""
        return time.monotonic_ns() // 1_000_000  # type: ignore[return-value]


@dataclass(slots=True, kw_only=True)
class World:
    """Clock, randomness, disk, store, network, and the loop on which all of it runs."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    random: random.Random
    disk: Disk
    store: Store
    network: WorldNetwork
    # Who cleans logs elsewhere; None: they are cleaned on the loop.
    make_cleaner: "Callable[[], Cleaner] | None" = None
    # Where records are decompressed that are too many for the loop; None: on the loop.
    worker: "Worker | None" = None
    # How many connections there are files for.
    connections_max: int = 2**31 - 1
    # Why an address cannot be listened on; None if it can.
    why_not_listen: Callable[[str, int], str | None] = lambda _host, _port: None
