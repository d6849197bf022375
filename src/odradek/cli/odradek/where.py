"""Options of `produce` and `consume` that name the cluster: by address, or by directory."""

import pathlib
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import click

from odradek.cli.connect import properties_of
from odradek.cli.kafka.clients.client_flags import pairs
from odradek.cli.odradek.local import say, unless_server_dir_option
from odradek.client.settings import resolved
from odradek.local.client_files import admin_file
from odradek.local.directory import DEFAULT_DIR, ClusterDirectory
from odradek.local.supervisor import Supervisor

_Command = TypeVar("_Command", bound=Callable[..., Any])


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--bootstrap-server`, `--dir`, `--config` and `--set`, in this order."""
    for option in (
        click.option(
            "--set",
            "words",
            multiple=True,
            metavar="KEY=VALUE",
            help="A client property, under its Java name.",
        ),
        click.option(
            "--config",
            "--command-config",
            "config",
            metavar="FILE",
            help="A file of client properties: security.protocol, sasl.jaas.config ...",
        ),
        unless_server_dir_option,
        click.option(
            "--bootstrap-server",
            "servers",
            metavar="HOST:PORT,...",
            help="Brokers to connect to.",
        ),
    ):
        command = option(command)
    return command


def client_properties(
    servers: str | None, path: pathlib.Path, config: str | None, words: Sequence[str]
) -> dict[str, str]:
    """The client properties that these options give.

    Raises:
        click.UsageError: no server is given, and the directory has no cluster.
        FileError, InvalidConfigError: the file cannot be read, or is not a properties file.
    """
    properties = dict(resolved({**properties_of(config), **pairs(words)}))
    if servers is None and "bootstrap.servers" not in properties:
        servers = bootstrap_of(path)
        if config is None:
            properties = {**properties_of(admin_file(path)), **properties}
    if servers is not None:
        properties["bootstrap.servers"] = servers
    return properties


def bootstrap_of(path: pathlib.Path) -> str:
    """The addresses of the cluster in a directory.

    Raises:
        click.UsageError: the directory has no cluster.
        LocalError: it is a copy beside its original.
    """
    directory = ClusterDirectory(path)
    state = directory.load()
    if state is not None:
        directory.refuse_copy(state)
    known = state is not None and Supervisor(directory, say=say).status()
    if not known or not known["bootstrap"]:
        raise click.UsageError(
            f"there is no cluster in {path}: start one with `{directory.command('up')}`, or name "
            "another with --bootstrap-server HOST:PORT"
        )
    return str(known["bootstrap"])


def cluster_options(*, optional: bool = False) -> Callable[[_Command], _Command]:
    """`--bootstrap-server`, `--command-config` and `--dir` for commands that ask any cluster.

    The command receives `servers` and `command_config`; where no server is named, those of the
    cluster in the directory. `optional`: without both, `servers` is None.
    """
    default = None if optional else DEFAULT_DIR

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def resolved(
            *,
            servers: str | None,
            command_config: str | None,
            path: pathlib.Path | None,
            **given: Any,
        ) -> Any:
            if servers is None and path is not None:
                servers = bootstrap_of(path)
                command_config = command_config or admin_file(path)
            return command(servers=servers, command_config=command_config, **given)

        for option in (
            click.option(
                "--dir", "path", type=click.Path(path_type=pathlib.Path), default=default,
                show_default=True,
                help="The directory of the cluster on this machine, if no server is named.",
            ),
            click.option("--command-config", metavar="FILE", help="A file of client properties."),
            click.option(
                "--bootstrap-server", "servers", metavar="HOST:PORT,...",
                help="Brokers to connect to, on any hosts.",
            ),
        ):  # fmt: skip
            resolved = option(resolved)
        return cast("_Command", resolved)

    return decorate
