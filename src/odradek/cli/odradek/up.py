"""`odradek up`: a cluster on this machine, in one command.

In the foreground it shows the state of the brokers on the terminal until Ctrl-C, SIGTERM or
`odradek down`; then it stops the brokers it started. With --detach it returns and the brokers run
on. The bootstrap address is printed last, and is the only output on stdout.
"""

import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

import click

from odradek.cli.near_names import check_broker_options
from odradek.cli.odradek.local import dir_option, say
from odradek.cli.odradek.status_screen import watch_live
from odradek.config.listeners import is_exposed
from odradek.config.properties import parse_overrides
from odradek.local.client_files import ADMIN, APPLICATION, ClientFiles
from odradek.local.cores import one_per_core, usable_cores
from odradek.local.directory import ClusterDirectory, unless_default
from odradek.local.options import UpOptions
from odradek.local.supervisor import Supervisor
from odradek.model.command import command
from odradek.plan.commands import Caller

_AUTO: Final = "auto"


def _number_or_auto(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> int | str | None:
    if value is None or value == _AUTO:
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a number, nor {_AUTO} for one broker for each core"
        ) from None


_ALLOW_EXAMPLE: Final = "odradek allow app read,write,create topic greetings --group greeters"


@click.command
@click.option(
    "--brokers",
    callback=_number_or_auto,
    metavar="N",
    help="The number of brokers; auto: one for each core.  [default: 1]",
)
@dir_option
@click.option("--detach", is_flag=True, help="Return as soon as all brokers serve.")
@click.option("--host", help="The address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=int, metavar="P", help="The brokers' ports: P, P+1 ...  [default: free ports]"
)
@click.option("--racks", metavar="A,B,...", help="The racks of brokers 0, 1, ...")
@click.option("--zookeeper", metavar="HOST:PORT", help="Use ZooKeeper, not a file.")
@click.option("--http-port", type=int, metavar="P", help="Likewise for /metrics and /health.")
@click.option("--web", "has_web", is_flag=True, help="Serve the page on it, too: odradek web.")
@click.option("--faults", is_flag=True, help="Let faults be injected (docs/testing.md).")
@click.option("--secure", is_flag=True, help="TLS, users with passwords, and ACLs (SASL_SSL).")
@click.option(
    "--timeout", type=float, default=300.0, show_default=True, metavar="S",
    help="Fail if a broker does not serve within S seconds.",
)  # fmt: skip
@click.argument("properties", nargs=-1, metavar="[-- KEY=VALUE ...]")
def up(  # noqa: PLR0913  one argument for each option
    *,
    brokers: int | str | None,
    path: pathlib.Path,
    detach: bool,
    host: str | None,
    port: int | None,
    racks: str | None,
    zookeeper: str | None,
    http_port: int | None,
    timeout: float,
    secure: bool,
    faults: bool,
    has_web: bool,
    properties: Sequence[str],
) -> None:
    """Start a cluster on this machine: each broker is a process.

    Arguments after -- are broker options, as in server.properties. The cluster of an existing
    directory is started with its former ports and options, and stays secure if it is.
    """
    if has_web and detach:
        raise click.UsageError("--web serves the page until Ctrl-C: with --detach run odradek web")
    overrides = parse_overrides(properties)
    for unknown in check_broker_options(overrides):
        say(f"{unknown}: this broker option is unknown; it is kept and has no effect")
    directory = ClusterDirectory(path)
    count, rack_names = _counted(directory, brokers, racks)
    options = UpOptions(
        brokers=count, host=host, port=port, http_port=http_port,
        racks=rack_names, zookeeper=zookeeper,
        secure=secure, faults=faults, properties=overrides,
    )  # fmt: skip
    # SIGHUP and SIGTERM (a closed terminal, a service manager) stop it as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    supervisor = Supervisor(directory, say=say, start_timeout_s=timeout)
    supervisor.up(options)
    report = supervisor.status()
    for broker in report["brokers"]:
        say(f"broker {broker['id']} serves {', '.join(broker['listeners'])} (pid {broker['pid']})")
    if report["http"]:
        say(f"metrics at {report['http']}/metrics")
    listeners = [each for broker in report["brokers"] for each in broker["listeners"]]
    if any(map(is_exposed, listeners)):
        say(
            "warning: other hosts reach these brokers, and nothing is encrypted: odradek down and "
            "odradek up --secure, or --host 127.0.0.1 (docs/security.md)"
        )
    if directory.is_secured:
        for line in _how_to_connect(path, report["bootstrap"], is_new=secure):
            say(line)
    say(f"files in {path.absolute()}" + ("" if detach else "; Ctrl-C stops the cluster"))
    say("connect to:")
    print(report["bootstrap"], flush=True)
    if not detach:
        with _page(path) if has_web else nullcontext():
            _stay(supervisor)


def _counted(
    directory: ClusterDirectory, brokers: int | str | None, racks: str | None
) -> tuple[int | None, tuple[str, ...]]:
    """The number of brokers and their racks."""
    rack_names = tuple(racks.split(",")) if racks is not None else ()
    if not isinstance(brokers, str):
        return brokers, rack_names
    cores = usable_cores()
    count, host_rack = one_per_core(directory, cores)
    how_many = "1 core" if cores == 1 else f"{cores} cores"
    say(f"--brokers {brokers}: {count}, because {how_many} can be used")
    return count, rack_names or host_rack


@contextmanager
def _page(path: pathlib.Path) -> Iterator[None]:
    """The page in a process of its own, which prints its address and ends with this one."""
    command = [sys.executable, "-m", "odradek", "web", "--dir", str(path), "--write"]
    page = subprocess.Popen(command, stdout=sys.stderr)
    try:
        yield
    finally:
        page.terminate()
        page.wait()


def _how_to_connect(path: pathlib.Path, bootstrap: str, *, is_new: bool) -> list[str]:
    """What a client of a secure cluster needs, and an example for each kind of client."""
    files = ClientFiles(path / "clients")
    if not is_new:
        return [f"clients need a file of {files.folder}: docs/security.md"]
    where = unless_default(path)
    admin, app = files.java(ADMIN), files.librdkafka(APPLICATION)
    quoted = json.dumps(str(app))
    begins = f"{files.java(APPLICATION)}; it may do nothing until it is allowed to, such as:"
    return [
        "clients connect with TLS, as a user with a password; for each user there is a file:",
        f"  administrator  {admin}",
        f"  application    {begins}",
        f"    {command(*_ALLOW_EXAMPLE.split(), *where)}",
        "  Kafka's tools, Odradek's and Java's:",
        f"    {Caller(bootstrap, config=str(admin)).kafka('kafka-topics', '--list')}",
        f"  librdkafka     {app}; in Python, as a dict:",
        f'    settings = dict(line.rstrip("\\n").split("=", 1) for line in open({quoted})',
        '                    if not line.startswith("#"))',
        "    confluent_kafka.Producer(settings)",
        f"  other users    {command('odradek', 'user', 'add', 'NAME', *where)}",
    ]


def _stay(supervisor: Supervisor) -> None:
    try:
        if sys.stderr.isatty():
            watch_live(supervisor)
        else:
            supervisor.watch()
    except KeyboardInterrupt:
        say("stopping; once more to kill")
        try:
            supervisor.down()
        except KeyboardInterrupt:
            supervisor.kill_all()
            sys.exit(130)
