"""One broker as a process: its real world, its signals and its exit code.

Exit codes: 0 after a clean stop; 1 if it could not start or had to stop because of an error. The
reason is the last line on stderr.
"""

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.cluster.generated_id import with_broker_id
from odradek.broker.cluster.stores import store_of
from odradek.broker.exposed import exposed
from odradek.broker.reports import sample_disks
from odradek.broker.server import Broker
from odradek.broker.serving.loop_meter import MeteredSelector
from odradek.broker.serving.worker import ThreadWorker
from odradek.broker.storage.cleaner_process import CleanerProcess
from odradek.broker.storage.open_files import FileShares, raise_limit, shares
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig, ConfigConflictError, InvalidConfigError
from odradek.log.system.disk import RealDisk
from odradek.model.errors import OdradekError, StartupError
from odradek.net.clock import RealClock
from odradek.net.server import RealNetwork, why_not_listen
from odradek.obs.log_limit import INTERVAL_MS, LogLimit
from odradek.obs.log_lines import LineFormatter
from odradek.record.check import fastest_check, plain_check

if TYPE_CHECKING:
    from odradek.broker.faults.control import FaultControl
    from odradek.broker.http import HttpServer

OnReady = Callable[[Sequence[str], str | None], None]
# The brokers that are being stopped at this moment; called when this one is stopped.
Stopping = Callable[[], Collection[int]]
log = logging.getLogger(__name__)
_DISKS_MS = 5_000


def run(
    properties: Mapping[str, str],
    source: str,
    *,
    on_ready: OnReady | None = None,
    stopping: Stopping = frozenset,
    faults: str | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code.

    `faults` is the path of a socket over which faults can be injected (`broker/faults`).
    """
    if not __debug__:
        print("odradek: asserts guard the data: do not run it with python -O", file=sys.stderr)  # noqa: T201
        return 1
    printed = logging.StreamHandler()
    printed.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[printed])
    limit = LogLimit(RealClock().monotonic_ms)
    try:
        config = BrokerConfig(properties, host_name=socket.getfqdn())
    except (InvalidConfigError, ConfigConflictError) as error:
        return _give_up(f"{source}: {error}")
    problem = _log_dirs_problem(config)
    if problem is not None:
        return _give_up(f"{source}: {problem}")
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(limit)
    # A garbage collection blocks the loop: a millisecond for some 3,000 objects. So young objects
    # are collected before there are many (10,000, and 50,000 that have survived once), and old
    # objects, of which a partition has dozens, once in a hundred million allocations.
    gc.set_threshold(10_000, 5, 2_000)
    selector = MeteredSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        try:
            return runner.run(_serve(config, on_ready, stopping, selector, limit, faults))
        finally:
            limit.flush(ends=True)
            for handler in handlers:
                handler.removeFilter(limit)


def _log_dirs_problem(config: BrokerConfig) -> str | None:
    """Why the broker cannot start with these directories; if only some fail, they are offline."""
    failed: dict[str, str] = {}
    for directory in config.log_dirs:
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            failed[directory] = f"{error.filename}: {error.strerror}"
        else:
            if not os.access(directory, os.W_OK | os.X_OK):
                failed[directory] = "no permission to write there"
    first = config.log_dirs[0]
    needs_parent = config.zookeeper_connect is None and config.odradek_store_path is None
    if len(failed) == len(config.log_dirs):
        problems = "; ".join(f"{directory}: {why}" for directory, why in failed.items())
        return f"none of log.dirs can be used: {problems}"
    if needs_parent and not os.path.isdir(os.path.dirname(os.path.abspath(first))):
        return (
            f"log.dirs: {first} cannot be used: {failed[first]}; the coordination store is kept "
            "beside the first of them, unless odradek.store.path or zookeeper.connect is set"
        )
    return None


async def _serve(
    config: BrokerConfig,
    on_ready: OnReady | None,
    stopping: Stopping,
    selector: MeteredSelector,
    limit: LogLimit,
    faults_at: str | None,
) -> int:
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def end(reason: str | None) -> None:
        if not over.done():
            over.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(end, None))
    try:
        world = real_world(config, loop)
        world.is_alone = selector.is_alone
        config = await with_broker_id(config, world)
    except OdradekError as error:
        return _give_up(str(error))
    broker, faults = _broker(config, world, end, faults_at)
    broker.metrics.loop = selector.turns
    broker.housekeeping.also(INTERVAL_MS, limit.flush)
    broker.housekeeping.also(_DISKS_MS, partial(sample_disks, broker))
    http = None
    try:
        await broker.start()
        listeners = [point.connection_string for point in broker.end_points]
        log.info("broker %d serves %s", config.broker_id, ", ".join(listeners))
        _warn(broker)
        http = await _serve_http(broker)
        await faults.start()
        if on_ready is not None:
            on_ready(listeners, http.url if http else None)
        selector.turns.longest_ms = 0.0  # no client has waited during the start
        reason: str | None = await over
        log.info("stopping")
    except OdradekError as error:
        reason = str(error)
    if http is not None:
        http.server.stop()
    faults.stop()
    await broker.stop(together_with=() if reason else stopping())
    return _give_up(reason) if reason else 0


def _broker(
    config: BrokerConfig, world: World, end: Callable[[str | None], None], faults_at: str | None
) -> "tuple[Broker, FaultControl | _NoFaults]":
    if faults_at is None:
        return Broker(config, world, on_fatal=end), _NoFaults()
    from odradek.broker.faults.control import FaultControl  # noqa: PLC0415 - for tests
    from odradek.broker.faults.injected import Faults  # noqa: PLC0415

    faults = Faults(config, world)
    broker = Broker(config, world, on_fatal=end)
    faults.attach(broker)
    log.warning("faults can be injected into this broker: it is for tests")
    return broker, FaultControl(faults, faults_at)


class _NoFaults:
    """In the place of `FaultControl` in every broker that was not started for tests."""

    async def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


def _warn(broker: Broker) -> None:
    for address in exposed(broker.config, broker.server.ports):
        log.warning("%s", address)
    if broker.config.log_validate_records == "full" and fastest_check() is plain_check:
        log.info(
            "records of producers are checked in Python: a produce request of 16 KiB takes "
            "more than twice the processor time; install odradek-fast (in a clone: "
            "pip install ./fast), or set log.validate.records=batch if you trust your producers"
        )


class _Http(NamedTuple):
    server: "HttpServer"
    url: str


async def _serve_http(broker: Broker) -> _Http | None:
    """Start metrics and health; loaded only now, so that clients need not wait for it."""
    if broker.config.odradek_http_port < 0:
        return None
    from odradek.broker.http import HttpServer, health_route, metrics_route  # noqa: PLC0415
    from odradek.broker.http_token import server_token  # noqa: PLC0415
    from odradek.broker.reports import report_routes  # noqa: PLC0415
    from odradek.broker.viewer import Operator  # noqa: PLC0415

    config = broker.config
    files = open_files(config)
    server = HttpServer(
        {
            "/metrics": metrics_route(broker.metrics),
            "/health": health_route(broker.health),
            **{f"/{name}": route for name, route in report_routes(broker, Operator()).items()},
        },
        token=server_token(config),
        allowed_hosts=config.odradek_http_allowed_hosts,
        peers_max=files.http,
        at_once=files.http_at_once,
    )
    host = config.odradek_http_host
    try:
        port = await server.start(host, config.odradek_http_port)
    except OSError as error:
        raise StartupError(
            f"odradek.http.port={config.odradek_http_port} on {host}: {error.strerror}; "
            "choose another, 0 for any that is free, or -1 for none"
        ) from None
    log.info("metrics and health at http://%s:%d", host, port)
    return _Http(server, f"http://{host}:{port}")


def open_files(config: BrokerConfig) -> FileShares:
    """How the open files that the process may have are divided."""
    return shares(
        raise_limit(),
        backlog=config.socket_listen_backlog_size,
        listeners=len(config.listeners),
        directories=len(config.log_dirs),
        cleaners=config.log_cleaner_threads,
    )


def real_world(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> World:
    """The system's clock, disk and network, and the configured store."""
    clock = RealClock()
    files = open_files(config)
    drawn = random.Random()
    return World(
        loop=loop,
        clock=clock,
        random=drawn,
        disk=RealDisk(call_soon=loop.call_soon_threadsafe, descriptors_max=files.logs),
        store=store_of(config, clock, loop, drawn),
        network=RealNetwork(
            backlog=config.socket_listen_backlog_size,
            at_once=files.at_once,
            # Kafka's defaults of 100 KiB are older than kernels that adapt the sizes themselves;
            # setting a size switches that off. So it is only set if the option is.
            send_bytes=_if_set(config, "socket.send.buffer.bytes"),
            receive_bytes=_if_set(config, "socket.receive.buffer.bytes"),
        ),
        make_cleaner=CleanerProcess,
        worker=ThreadWorker(loop),
        connections_max=files.connections,
        why_not_listen=why_not_listen,
    )


def _if_set(config: BrokerConfig, name: str) -> int:
    return config.number(name) if name in config.static else -1


def _give_up(reason: str) -> int:
    print(f"odradek: {reason}", file=sys.stderr)  # noqa: T201 - for the operator
    return 1
