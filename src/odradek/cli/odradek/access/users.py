"""`odradek user add|list|remove|rotate`: users with a password (SCRAM), and their client files."""

import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import click

import odradek.client.admin.security as rights
from odradek.cli.connect import properties_of
from odradek.cli.odradek.access.reached import ReachedCluster, reach, reaching_options
from odradek.cli.odradek.local import say
from odradek.cli.suggesting import SuggestingGroup
from odradek.client.admin.security import Acl
from odradek.local.client_files import (
    ADMIN,
    MECHANISM,
    ClientFiles,
    ConnectSettings,
    SaslUser,
    admin_file,
    check_password,
    check_user,
    login_of,
    new_password,
)
from odradek.local.directory import ClusterDirectory, LocalError
from odradek.local.secure import BROKER, connect_of, set_login_of_brokers
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.command import Command, about, command, flag
from odradek.model.printable import printable
from odradek.security.sasl.scram import SCRAM_HASHES


@click.group(cls=SuggestingGroup)
def user() -> None:
    """Add, list and remove users, and give them new passwords (SCRAM)."""


def _password_options(command: Any) -> Any:
    for option in (
        click.option("--prompt", is_flag=True, help="Ask for the password.  [default: generated]"),
        click.option(
            "--password-file", type=click.File(), metavar="FILE",
            help="Read the password from a file; - for stdin.",
        ),
        click.option(
            "--clients", "folder", type=click.Path(path_type=pathlib.Path), metavar="DIR",
            help="Where the client files are.  [default: beside the administrator's]",
        ),
    ):  # fmt: skip
        command = option(command)
    return reaching_options(command)


def _password(given: Mapping[str, Any]) -> str:
    if given["prompt"]:
        password = str(
            click.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
        )
    elif given["password_file"] is not None:
        password = given["password_file"].read().removesuffix("\n")
    else:
        return new_password()
    check_password(password)
    return password


@user.command
@click.argument("name")
@click.option(
    "--mechanism", type=click.Choice(sorted(SCRAM_HASHES)), help="[default: the administrator's]"
)
@_password_options
def add(name: str, mechanism: str | None, folder: pathlib.Path | None, **given: Any) -> int:
    """Add user NAME, who may connect and has no permission yet."""
    check_user(name)
    where = _where(given)
    files, connect, default = _files(folder, **where)
    made = SaslUser(name, _password(given), mechanism or default)

    async def work(cluster: ReachedCluster) -> int:
        if name in await cluster.users():
            raise LocalError(f"user {name} exists: {_own('rotate', name)} gives another password")
        with files.written(_reached(connect, cluster), made):
            await cluster.set_password(made)
        allow = command("odradek", "allow", name)
        print(f"user {name} may connect, and has no permission yet: {allow} ...")
        _say_files(files, name)
        return 0

    return reach(work, **where)


@user.command
@click.argument("name")
@_password_options
def rotate(name: str, folder: pathlib.Path | None, **given: Any) -> int:
    """Give user NAME another password; the former one is no longer accepted."""
    check_user(name)
    where = _where(given)
    files, connect, _default = _files(folder, **where)
    password = _password(given)

    async def work(cluster: ReachedCluster) -> int:
        mechanisms = (await cluster.users()).get(name)
        if mechanisms is None:
            raise LocalError(f"there is no user {name}: odradek user list")
        if name == BROKER and _is_of_brokers(where):
            return await _rotate_brokers(cluster, ClusterDirectory(where["path"]), password)
        for mechanism in mechanisms:
            made = SaslUser(name, password, mechanism)
            with files.written(_reached(connect, cluster), made):
                await cluster.set_password(made)
        print(f"user {name} has a new password; open connections stay open until they end")
        _say_files(files, name)
        return 0

    return reach(work, **where)


@user.command
@click.argument("name")
@click.option(
    "--clients", "folder", type=click.Path(path_type=pathlib.Path), metavar="DIR",
    help="Where the client files are.  [default: beside the administrator's]",
)  # fmt: skip
@reaching_options
def remove(name: str, folder: pathlib.Path | None, **where: Any) -> int:
    """Remove user NAME and the client files; ACLs that name the user stay."""
    files, _, _ = _files(folder, **where)
    if name in (ADMIN, BROKER) and _is_of_brokers(where):
        raise LocalError(f"user {name}: this cluster cannot be administered, or run, without it")

    async def work(cluster: ReachedCluster) -> int:
        if name not in await cluster.users():
            raise LocalError(f"there is no user {name}: odradek user list")
        await cluster.remove_user(name)
        files.remove(name)
        print(f"user {name} is removed; open connections stay open until they end")
        wanted = Acl(
            ResourceType.ANY, None, rights.ANY, f"User:{name}", None, AclOperation.ANY, rights.ANY
        )
        held = await cluster.rights.describe(wanted)
        if held:
            say(
                f"{len(held)} ACLs still name User:{name}, and apply to a later user of this name: "
                f"{command('odradek', 'permissions', *flag('--principal', name))}"
            )
        return 0

    return reach(work, **where)


@user.command("list")
@reaching_options
def list_users(**where: Any) -> int:
    """List the users with their mechanisms."""

    async def work(cluster: ReachedCluster) -> int:
        for name, mechanisms in sorted((await cluster.users()).items()):
            print(f"{printable(name):<24} {', '.join(mechanisms)}")
        return 0

    return reach(work, **where)


# ---------------------------------------------------------------------------------------- parts


def _where(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("servers", "command_config", "path")}


def _is_of_brokers(where: Mapping[str, Any]) -> bool:
    """Whether the cluster is one of `up --secure`, whose brokers authenticate as `broker`."""
    return where["servers"] is None and ClusterDirectory(where["path"]).is_secured


async def _rotate_brokers(
    cluster: ReachedCluster, directory: ClusterDirectory, password: str
) -> int:
    if cluster.is_running:
        raise LocalError(
            f"the brokers authenticate as {BROKER}, and those that run have the former password: "
            "odradek down, then rotate it, then odradek up"
        )
    made = SaslUser(BROKER, password)
    set_login_of_brokers(directory, directory.expect().brokers, made)
    await cluster.set_password(made)
    print("the brokers have a new password, with which they start")
    return 0


def _files(
    folder: pathlib.Path | None,
    *,
    servers: str | None,
    command_config: str | None,
    path: pathlib.Path,
) -> tuple[ClientFiles, ConnectSettings, str]:
    """Where client files are, what they have in common, and the mechanism of new users."""
    directory = ClusterDirectory(path)
    if servers is None and command_config is None and directory.is_secured:
        return ClientFiles(folder or directory.clients), connect_of(directory, ""), MECHANISM
    config = command_config or (admin_file(path) if servers is None else None)
    properties = properties_of(config)
    protocol = properties.get("security.protocol", "PLAINTEXT")
    authority = properties.get("ssl.truststore.certificates")
    location = properties.get("ssl.truststore.location")
    if authority is None and location and properties.get("ssl.truststore.type") == "PEM":
        authority = pathlib.Path(location).read_text()
    own = login_of(properties)
    mechanism = own.mechanism if own is not None and own.mechanism in SCRAM_HASHES else MECHANISM
    if protocol not in ("SASL_SSL", "SASL_PLAINTEXT"):
        protocol = "SASL_SSL"
        say(
            "the administrator does not connect to a listener with SASL: set security.protocol and "
            "bootstrap.servers of the written files to such a listener"
        )
    beside = pathlib.Path(config).parent if config is not None else pathlib.Path()
    return ClientFiles(folder or beside), ConnectSettings("", authority, protocol), mechanism


def _reached(connect: ConnectSettings, cluster: ReachedCluster) -> ConnectSettings:
    return connect._replace(bootstrap=cluster.caller.bootstrap)


def _own(verb: str, name: str) -> Command:
    return command("odradek", "user", verb, *about(name))


def _say_files(files: ClientFiles, name: str) -> None:
    print(
        f"the password is in {files.java(name)} (Java, Kafka's tools) and "
        f"{files.librdkafka(name)} (librdkafka)",
        file=sys.stderr,
    )
