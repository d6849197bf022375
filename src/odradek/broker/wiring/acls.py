"""The parts of a broker that store and enforce ACLs, and their start."""

import logging

from odradek.broker.admin.acl_changes import AclChanges
from odradek.broker.admin.acls import AclAdmin
from odradek.broker.cluster.lifecycle import Lifecycle
from odradek.broker.serving.acl_authorizer import AclAuthorizer
from odradek.broker.serving.session import ANONYMOUS
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourcePattern, ResourceType
from odradek.model.errors import StartupError
from odradek.security.acls import AclSettings, Requester, parse_super_users

log = logging.getLogger(__name__)


def acls_of(config: BrokerConfig, world: World) -> tuple[AclChanges | None, AclAdmin]:
    """What follows the ACLs (None without an authorizer), and what changes them."""
    if not config.authorizer_class_name:
        return None, AclAdmin(world.store, is_configured=False)
    changes = AclChanges(world.store, AclAuthorizer(), world.clock)
    return changes, AclAdmin(world.store, is_configured=True, changed=changes.refresh)


async def load_acls(config: BrokerConfig, changes: AclChanges, lifecycle: Lifecycle) -> None:
    """Enforce the ACLs in the store from here on.

    Raises:
        StartupError: `super.users` cannot be parsed, or a node cannot be decoded.
    """
    changes.authorizer.configure(_settings_of(config))
    await lifecycle.persist(changes.load)
    _warn_of_refused_brokers(config, changes.authorizer)


def _settings_of(config: BrokerConfig) -> AclSettings:
    try:
        super_users = parse_super_users(config.super_users)
    except ValueError as error:
        raise StartupError(f"super.users: {error}") from None
    return AclSettings(super_users, config.allow_everyone_if_no_acl_found)


def _warn_of_refused_brokers(config: BrokerConfig, authorizer: AclAuthorizer) -> None:
    protocols = {point.listener: point.security_protocol for point in config.listeners}
    if protocols.get(config.inter_broker_listener) != "PLAINTEXT":
        return  # the principal of the brokers is not known here
    cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    hosts = {entry.host for entry in authorizer.entries(cluster)} | {"127.0.0.1"}
    if not any(
        authorizer.decide(
            Requester(ANONYMOUS, host),
            AclOperation.CLUSTER_ACTION,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
        ).allowed
        for host in hosts
    ):
        log.warning(
            "the brokers of the cluster are %s to each other, because listener %s is PLAINTEXT, "
            "and %s may not do ClusterAction: this broker refuses what the controller and the "
            "followers request; add it to super.users, or add an ACL that allows "
            "ClusterAction on the cluster",
            ANONYMOUS,
            config.inter_broker_listener,
            ANONYMOUS,
        )
