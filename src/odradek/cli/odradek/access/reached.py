"""Users and ACLs of a cluster: through its brokers, or in its store while none of them runs."""

import asyncio
import pathlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import click

import odradek.client.admin.security as rights
from odradek.broker.admin.acls import ACL_AUTHORIZER, AclAdmin
from odradek.cli.connect import properties_of, with_own_cluster
from odradek.cli.kafka.acls import ClusterRights, Rights
from odradek.cli.kafka.support.acls_zookeeper import StoredRights
from odradek.cli.odradek.local import say, unless_server_dir_option
from odradek.cli.odradek.where import bootstrap_of
from odradek.client.admin.topics import BROKER, describe_configs
from odradek.client.cluster import Cluster
from odradek.coord.store import Store
from odradek.local import store_users
from odradek.local.client_files import SaslUser, admin_file
from odradek.local.directory import ClusterDirectory
from odradek.local.secure import config_of
from odradek.local.supervisor import Supervisor
from odradek.model.errors import ApiError
from odradek.plan.commands import Caller
from odradek.plan.denied import settings_of
from odradek.security.acls import AclSettings, parse_super_users

_Command = TypeVar("_Command", bound=Callable[..., Any])
Settings = Mapping[int, AclSettings | None]
_RUN: Final = ("running", "starting", "paused")


class ReachedCluster(Protocol):
    """A cluster whose users and ACLs can be read and changed."""

    caller: Caller
    rights: Rights
    is_running: bool

    async def users(self) -> Mapping[str, list[str]]:
        """The mechanisms of each user with a SCRAM credential."""

    async def set_password(self, user: SaslUser) -> None:
        """Store the credential of a user, who may exist."""

    async def remove_user(self, name: str) -> None:
        """Delete all credentials of a user, who exists."""

    async def settings(self) -> Settings:
        """The options of each broker's authorizer; None for a broker without one."""


Work = Callable[[ReachedCluster], Awaitable[int]]


def reaching_options(command: _Command) -> _Command:
    """`--bootstrap-server`, `--command-config` and `--dir`, for `reach`."""
    for option in (
        unless_server_dir_option,
        click.option("--command-config", metavar="FILE", help="A file of client properties."),
        click.option(
            "--bootstrap-server", "servers", metavar="HOST:PORT,...", help="Brokers to connect to."
        ),
    ):
        command = option(command)
    return command


def reach(
    work: Work, *, servers: str | None, command_config: str | None, path: pathlib.Path
) -> int:
    """Run `work` on the cluster that these options name. Returns the exit code.

    Raises:
        OdradekError: no broker answers, the store cannot be used, or any failure of the work.
    """
    if servers is None:
        directory = ClusterDirectory(path)
        directory.expect()
        brokers = Supervisor(directory, say=say).status()["brokers"]
        if not any(broker["state"] in _RUN for broker in brokers):
            return asyncio.run(_in_store(directory, work))
        servers = bootstrap_of(path)
        command_config = command_config or admin_file(path)
    caller = Caller(bootstrap=servers, config=command_config or "")

    async def connected(cluster: Cluster) -> int:
        return await work(_ThroughBrokers(cluster, caller))

    return with_own_cluster(servers, properties_of(command_config), connected)


async def _in_store(directory: ClusterDirectory, work: Work) -> int:
    async with store_users.opened_store(config_of(directory, 0)) as store:
        return await work(_InStore(store, directory))


class _ThroughBrokers:
    is_running = True

    def __init__(self, cluster: Cluster, caller: Caller) -> None:
        self._cluster = cluster
        self.caller = caller
        self.rights: Rights = ClusterRights(cluster)

    async def users(self) -> Mapping[str, list[str]]:
        described = await rights.describe_scram(self._cluster, [])
        return {
            user: [mechanism for mechanism, _ in found]
            for user, found in described.items()
            if not isinstance(found, ApiError)
        }

    async def set_password(self, user: SaslUser) -> None:
        made = rights.scram_credential(user.mechanism, user.password, rights.SCRAM_ITERATIONS_MIN)
        await rights.alter_scram(self._cluster, user.name, upsertions=[made])

    async def remove_user(self, name: str) -> None:
        await rights.alter_scram(self._cluster, name, deletions=(await self.users())[name])

    async def settings(self) -> Settings:
        await self._cluster.refresh()
        ids = sorted(await self._cluster.nodes())
        configs = await describe_configs(self._cluster, [(BROKER, str(id_)) for id_ in ids])
        settings = {}
        for (_, id_), found in configs.items():
            if isinstance(found, ApiError):
                raise found
            settings[int(id_)] = settings_of(found)
        return settings


class _InStore:
    is_running = False

    def __init__(self, store: Store, directory: ClusterDirectory) -> None:
        self._store = store
        self._directory = directory
        self.caller = Caller(
            bootstrap=Supervisor(directory, say=say).status()["bootstrap"],
            config=admin_file(directory.path) or "",
        )
        self.rights: Rights = StoredRights(AclAdmin(store, is_configured=True))

    async def users(self) -> Mapping[str, list[str]]:
        return await store_users.users(self._store)

    async def set_password(self, user: SaslUser) -> None:
        await store_users.set_password(self._store, user)

    async def remove_user(self, name: str) -> None:
        await store_users.remove_user(self._store, name)

    async def settings(self) -> Settings:
        found = {}
        for broker_id in self._directory.expect().brokers:
            config = config_of(self._directory, broker_id)
            found[broker_id] = (
                AclSettings(
                    parse_super_users(config.super_users), config.allow_everyone_if_no_acl_found
                )
                if config.authorizer_class_name == ACL_AUTHORIZER
                else None
            )
        return found
