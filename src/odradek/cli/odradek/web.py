"""`odradek web`: the page on a cluster; `odradek stories`: the page without one."""

import asyncio
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from odradek.cli.odradek.local import say, unless_server_dir_option
from odradek.cli.odradek.where import client_properties
from odradek.config.listeners import reaches_other_hosts
from odradek.local.client_files import admin_file
from odradek.local.directory import ClusterDirectory
from odradek.local.secure import page_certificate
from odradek.model.extras import install

if TYPE_CHECKING:
    from odradek.web.facts.source import Source

MISSING = f"the page needs packages that are not installed: {install('web')}"


_ONLY_HERE = (
    "so the page is served to this machine only: on the other one run "
    "ssh -L 8080:127.0.0.1:8080 THIS-HOST, here odradek web --port 8080"
)


class _PageRights(NamedTuple):
    """What viewers may do, and the files of the page's certificate."""

    write: bool = False
    has_log_in: bool = False
    tls: tuple[str, str | None] | None = None


def _serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="P",
                     help="The port of the page.  [default: a free one]"),
        click.option("--host", default="127.0.0.1", show_default=True,
                     help="The address to listen on. Others than this machine's own need TLS and "
                     "a log-in."),
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
@click.option(
    "--log-in/--no-log-in",
    "has_log_in",
    default=None,
    help="Whether each viewer logs in as a user of the cluster. Without it, everybody on this "
    "machine has the rights of the properties.  [default: if the properties have a user]",
)
@click.option(
    "--ssl-certfile",
    "certificates",
    metavar="FILE",
    help="Serve HTTPS with this certificate (PEM).  [default: one of the cluster's own CA]",
)
@click.option("--ssl-keyfile", "key", metavar="FILE", help="Its private key (PEM).")
@_serving_options
def web(  # noqa: PLR0913  one argument for each option
    *,
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
    allowed: tuple[str, ...],
    host: str,
    port: int,
    certificates: str | None,
    key: str | None,
    write: bool,
    has_log_in: bool | None,
) -> int:
    """Serve a page that shows a cluster: what is wrong, and why; topics, replicas.

    The page is read-only unless --write is given. On a cluster with users each viewer logs in and
    has the rights of that user. From other machines it is reached with TLS and a log-in only.
    """
    properties = client_properties(servers, path, command_config, ())
    directory = path if servers is None else None
    config = command_config or (admin_file(path) if directory else None)

    def make() -> "Source":
        from odradek.web.facts.source import Source  # noqa: PLC0415 - needs the extra

        return Source(properties, directory=directory, config=config)

    exposed = reaches_other_hosts(host)
    if exposed and has_log_in is False:
        raise click.UsageError(f"--no-log-in: everybody could use the page, {_ONLY_HERE}")
    asks = exposed or (_has_user(properties) if has_log_in is None else has_log_in)
    if asks and (reason := _why_no_log_in(properties)):
        if has_log_in is None and not exposed:
            raise click.UsageError(
                f"{reason}; with --no-log-in everybody on this machine may use the page with the "
                "rights of these properties"
            )
        raise click.UsageError(f"{_named(host)}: {reason}, {_ONLY_HERE}")
    issuer = directory if asks else None
    tls = _certificate(issuer, host, allowed, certificates, key)
    if exposed and tls is None:
        raise click.UsageError(
            f"{_named(host)}: passwords would not be encrypted: name --ssl-certfile and "
            f"--ssl-keyfile; without TLS {_ONLY_HERE}"
        )
    right = _PageRights(write=write, has_log_in=asks, tls=tls)
    return _serve(make, host, port, allowed, right)


def _named(host: str) -> str:
    return f"--host {host}" if reaches_other_hosts(host) else "--log-in"


def _has_user(properties: Mapping[str, str]) -> bool:
    """Whether clients with these properties have rights that others here may not have."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    return protocol.startswith("SASL") or (
        protocol == "SSL" and any(name.startswith("ssl.keystore.") for name in properties)
    )


def _why_no_log_in(properties: Mapping[str, str]) -> str:
    try:
        from odradek.web.sessions import why_no_log_in  # noqa: PLC0415 - needs the extra
    except ImportError:
        return ""  # `_serve` says what is missing
    return why_no_log_in(properties)


def _certificate(
    directory: pathlib.Path | None,
    host: str,
    allowed: Sequence[str],
    certificates: str | None,
    key: str | None,
) -> tuple[str, str | None] | None:
    """The files of the certificate: those that are named, or one of the cluster's own CA."""
    if key is not None and certificates is None:
        raise click.UsageError("--ssl-keyfile: --ssl-certfile must be given, too")
    for file in filter(None, (certificates, key)):
        if not pathlib.Path(file).is_file():
            raise click.UsageError(f"{file}: there is no such file")
    if certificates is not None:
        return certificates, key
    if directory is None or not ClusterDirectory(directory).is_secured:
        return None
    return str(page_certificate(ClusterDirectory(directory), {host, *allowed})), None


@click.command
@_serving_options
def stories(host: str, port: int) -> int:
    """Serve the stories: simulated clusters that show step by step how Kafka replicates."""
    if reaches_other_hosts(host):
        raise click.UsageError(f"--host {host}: stories have no log-in, {_ONLY_HERE}")
    return _serve(None, host, port, (), _PageRights())


def _serve(
    make: "Callable[[], Source] | None",
    host: str,
    port: int,
    allowed: tuple[str, ...],
    rights: _PageRights,
) -> int:
    try:
        from odradek.web.app import create_app  # noqa: PLC0415
        from odradek.web.guard import WriteAccess  # noqa: PLC0415
        from odradek.web.serve import PageCertificate, PageServer, listen  # noqa: PLC0415
    except ImportError as error:
        say(f"{error}: {MISSING}")
        return 1
    try:
        bound = listen(host, port)
    except OSError as error:
        raise click.UsageError(f"--port {port}: {error.strerror}") from None
    access = WriteAccess(is_enabled=rights.write, has_log_in=rights.has_log_in)
    app = create_app(make() if make else None, write_access=access, allowed_hosts=allowed)
    name = f"[{host}]" if ":" in host else host
    address = f"http{'s' if rights.tls else ''}://{name}:{bound.getsockname()[1]}/"
    address += f"#write={access.code}" if access.code else "" if make else "stories"

    def ready() -> None:
        say("the page is at (Ctrl-C ends it):")
        print(address, flush=True)

    tls = PageCertificate(*rights.tls) if rights.tls else None
    try:
        server = PageServer(app, ready, tls=tls)
        server.config.load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise click.UsageError(f"--ssl-certfile {tls and tls.certificates}: {error}") from None
    try:
        asyncio.run(server.serve([bound]))
    except KeyboardInterrupt:
        return 130
    sys.stdout.flush()
    return 0
