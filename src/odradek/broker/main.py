"""One broker as a process: the real world built, signals minded, exit codes given.

Exit codes: 0 after a clean stop, 1 when it could not start or had to give up; the reason is the
last line on stderr.
"""

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.broker.server import Broker
from odradek.broker.world import RealClock, World
from odradek.config.broker import BrokerConfig, ConfigConflictError, InvalidConfigError
from odradek.coord.sqlite import SqliteStore
from odradek.coord.store import Store
from odradek.log.disk import RealDisk
from odradek.model.clock import Clock
from odradek.model.errors import OdradekError, StartupError
from odradek.net.server import RealNetwork

OnReady = Callable[[Sequence[str], str | None], None]
log = logging.getLogger(__name__)


def run(properties: Mapping[str, str], source: str, *, on_ready: OnReady | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    if not __debug__:
        print("odradek: asserts guard the data: do not run it with python -O", file=sys.stderr)  # noqa: T201
        return 1
    logging.basicConfig(
        level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
    )
    try:
        config = BrokerConfig(properties, host_name=socket.getfqdn())
    except (InvalidConfigError, ConfigConflictError) as error:
        return _give_up(f"{source}: {error}")
    # What lives long is made at the start; what a request makes dies with it. Looking for
    # cycles among the former again and again costs much and finds nothing.
    gc.set_threshold(50_000, 20, 100)
    return asyncio.run(_serve(config, on_ready))


async def _serve(config: BrokerConfig, on_ready: OnReady | None) -> int:
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def end(reason: str | None) -> None:
        if not over.done():
            over.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(end, None))
    broker = Broker(config, real_world(config, loop), on_fatal=end)
    try:
        await broker.start()
        if on_ready is not None:
            on_ready([point.connection_string for point in broker.end_points], broker.http_url)
        reason: str | None = await over
        log.info("stopping")
    except (OdradekError, OSError) as error:
        reason = str(error)
    await broker.stop()
    return _give_up(reason) if reason else 0


def real_world(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> World:
    """The operating system's clock, disk and network, and the store that was configured."""
    clock = RealClock()
    return World(
        loop=loop,
        clock=clock,
        random=random.Random(),  # noqa: S311 - for spreading, not for secrets
        disk=RealDisk(call_soon=loop.call_soon_threadsafe),
        store=_store(config, clock),
        network=RealNetwork(
            backlog=config.socket_listen_backlog_size,
            send_bytes=config.socket_send_buffer_bytes,
            receive_bytes=config.socket_receive_buffer_bytes,
        ),
    )


def _store(config: BrokerConfig, clock: Clock) -> Store:
    if config.zookeeper_connect is not None:
        raise StartupError(
            "zookeeper.connect is set: this version coordinates on one machine only; "
            "remove it, and let odradek.store.path name a file"
        )
    path = config.odradek_store_path or os.path.join(config.log_dirs[0], "coordination.db")
    return SqliteStore(path, clock=clock)


def _give_up(reason: str) -> int:
    print(f"odradek: {reason}", file=sys.stderr)  # noqa: T201 - for whoever started it
    return 1
