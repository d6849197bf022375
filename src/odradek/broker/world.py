"""Everything external that a broker uses, in one object.

The simulator passes another one. So no path of a broker is reachable in production only, and many
brokers run in one process independently of each other.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from odradek.broker.serving.quotas import Quotas
from odradek.broker.serving.session import AllowAll, Authorizer
from odradek.coord.store import Store
from odradek.log.disk import Disk
from odradek.model.clock import Clock
from odradek.net.channel import Connector
from odradek.net.server import Network

if TYPE_CHECKING:
    from odradek.broker.serving.worker import Worker
    from odradek.broker.storage.cleaner_shell import Cleaner


class WorldNetwork(Network, Connector, Protocol):
    """Listening for connections, and connecting."""


@dataclass(slots=True, kw_only=True)
class World:
    """Clock, randomness, disk, store, network, and the loop on which all of it runs."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    random: random.Random
    disk: Disk
    store: Store
    network: WorldNetwork
    # Makes a cleaner outside of the loop; None: logs are cleaned on the loop.
    make_cleaner: "Callable[[], Cleaner] | None" = None
    # Decompresses large batches outside of the loop; None: on the loop.
    worker: "Worker | None" = None
    # The connections for which there are file descriptors.
    connections_max: int = 2**31 - 1
    # Who may do what, and who is throttled. What Kafka loads for `authorizer.class.name` and
    # `client.quota.callback.class`.
    authorizer: Authorizer = field(default_factory=AllowAll)
    # None: the quotas that are set for users and client ids.
    quotas: Quotas | None = None
    # Whether nothing else is ready in the present turn of the loop; False: it is not known.
    is_alone: Callable[[], bool] = lambda: False
    # The processor time of the calling thread so far, in nanoseconds.
    processor_ns: Callable[[], int] = time.thread_time_ns
    # The reason why an address cannot be listened on; None if it can.
    why_not_listen: Callable[[str, int], str | None] = lambda _host, _port: None
