"""`odradek web`: the page on a cluster; `odradek stories`: the page without one."""

import asyncio
import pathlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.odradek.local import say, unless_server_dir_option
from odradek.cli.odradek.where import client_properties
from odradek.config.listeners import reaches_other_hosts
from odradek.local.client_files import admin_file
from odradek.model.extras import install

if TYPE_CHECKING:
    from odradek.web.facts.source import Source

MISSING = f"the page needs packages that are not installed: {install('web')}"


def _serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="P",
                     help="The port of the page.  [default: a free one]"),
        click.option("--host", default="127.0.0.1", show_default=True,
                     help="The address to listen on; only of the loopback interface."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command
@click.option(
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT,...",
    help="Brokers of the cluster, of Odradek or of Apache Kafka.",
)
@click.option("--command-config", metavar="FILE", help="A file of client properties.")
@unless_server_dir_option
@click.option("--write", is_flag=True, help="Let the page change the cluster.")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="A name, besides addresses and localhost, under which the page is opened.",
)
@_serving_options
def web(  # noqa: PLR0913  one argument for each option
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
    allowed: tuple[str, ...],
    host: str,
    port: int,
    *,
    write: bool,
) -> int:
    """Serve a page that shows a cluster: what is wrong, and why; topics, replicas.

    The page is read-only unless --write is given.
    """
    properties = client_properties(servers, path, command_config, ())
    directory = path if servers is None else None
    config = command_config or (admin_file(path) if directory else None)

    def make() -> "Source":
        from odradek.web.facts.source import Source  # noqa: PLC0415 - needs the extra

        return Source(properties, directory=directory, config=config)

    return _serve(make, host, port, write=write, allowed=allowed)


@click.command
@_serving_options
def stories(host: str, port: int) -> int:
    """Serve the stories: simulated clusters that show step by step how Kafka replicates."""
    return _serve(None, host, port, write=False, allowed=())


def _serve(
    make: "Callable[[], Source] | None",
    host: str,
    port: int,
    *,
    write: bool,
    allowed: tuple[str, ...],
) -> int:
    try:
        from odradek.web.app import create_app  # noqa: PLC0415
        from odradek.web.guard import WriteAccess  # noqa: PLC0415
        from odradek.web.serve import PageServer, listen  # noqa: PLC0415
    except ImportError as error:
        say(f"{error}: {MISSING}")
        return 1
    if reaches_other_hosts(host):
        raise click.UsageError(
            f"--host {host}: the page has no log-in, so it is served to this machine only; reach "
            "it from another one through ssh -L"
        )
    try:
        bound = listen(host, port)
    except OSError as error:
        raise click.UsageError(f"--port {port}: {error.strerror}") from None
    access = WriteAccess(is_enabled=write)
    app = create_app(make() if make else None, write_access=access, allowed_hosts=allowed)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{bound.getsockname()[1]}/"
    address += f"#write={access.code}" if write else "" if make else "stories"

    def ready() -> None:
        say("the page is at (Ctrl-C ends it):")
        print(address, flush=True)

    server = PageServer(app, ready)
    try:
        asyncio.run(server.serve([bound]))
    except KeyboardInterrupt:
        return 130
    sys.stdout.flush()
    return 0
