"""Options of `produce` and `consume` that name the cluster: by address, or by directory."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import click

from odradek.cli.connect import properties_of
from odradek.cli.kafka.clients.client_flags import pairs
from odradek.cli.odradek.local import say, unless_server_dir_option
from odradek.local.directory import ClusterDirectory
from odradek.local.supervisor import Supervisor


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
    properties = {**properties_of(config), **pairs(words)}
    if servers is None and "bootstrap.servers" not in properties:
        directory = ClusterDirectory(path)
        known = directory.load() is not None and Supervisor(directory, say=say).status()
        if not known or not known["bootstrap"]:
            raise click.UsageError(
                f"there is no cluster in {path}: start one with `odradek up --dir {path}`, or name "
                "another with --bootstrap-server HOST:PORT"
            )
        servers = known["bootstrap"]
    if servers is not None:
        properties["bootstrap.servers"] = servers
    return properties
