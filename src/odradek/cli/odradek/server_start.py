"""`odradek server-start FILE`: one broker in this process, configured as Apache Kafka's is.

odradek server-start server.properties --override broker.id=3
"""

import pathlib
from collections.abc import Sequence

import click

from odradek.cli.near_names import check_broker_options
from odradek.cli.odradek.local import say
from odradek.config.option import InvalidConfigError
from odradek.config.properties import parse, parse_overrides
from odradek.config.providers import left, resolve
from odradek.local.directory import ClusterDirectory
from odradek.local.ready import report_ready
from odradek.net.config_sources import HostSources


@click.command("server-start")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path))
@click.option("--override", multiple=True, metavar="KEY=VALUE", help="Set or replace one option.")
@click.option(
    "--ready-fd",
    type=int,
    metavar="FD",
    help="Write one line of JSON to this file descriptor when the broker serves.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=pathlib.Path),
    metavar="PATH",
    help="The cluster's directory, which shows whether the whole cluster is stopped.",
)
@click.option(
    "--faults",
    type=click.Path(path_type=pathlib.Path),
    metavar="PATH",
    help="A socket over which faults can be injected: for tests.",
)
def server_start(
    file: pathlib.Path,
    override: Sequence[str],
    ready_fd: int | None,
    directory: pathlib.Path | None,
    faults: pathlib.Path | None,
) -> int:
    """Run one broker until SIGTERM or SIGINT, with the options of a properties file."""
    from odradek.broker.main import run  # noqa: PLC0415 - a broker, only where one is started

    try:
        properties = parse(file.read_text())
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{file}: {error}") from None
    overrides = parse_overrides(override)
    for unknown in check_broker_options(overrides):
        say(f"--override {unknown}: this broker option is unknown; it has no effect")
    properties |= overrides
    try:
        properties = resolve(properties, HostSources())
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{file}: {error}") from None
    for option in left(properties):
        say(f"{file}: {option}: no config provider has this name, so ${{...}} is the value")

    def serves(listeners: Sequence[str], http: str | None) -> None:
        if ready_fd is not None:
            report_ready(ready_fd, listeners=listeners, http=http)

    stopping = ClusterDirectory(directory).stopping if directory is not None else frozenset
    return run(
        properties,
        str(file),
        on_ready=serves,
        stopping=stopping,
        faults=str(faults) if faults is not None else None,
    )
