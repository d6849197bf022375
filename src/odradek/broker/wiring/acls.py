"""The parts of a broker that store and enforce ACLs, and their start."""

import logging

from odradek.broker.admin.acl_changes import AclChanges
from odradek.broker.admin.acls import AclAdmin
from odradek.broker.cluster.lifecycle import Lifecycle
from odradek.broker.incidents import Incidents
from odradek.broker.serving.acl_authorizer import AclAuthorizer
from odradek.broker.serving.session import ANONYMOUS
from odradek.broker.wiring.authentication import (
    broker_login,
    protocol_between_brokers,
    uses_sasl,
)
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourcePattern, ResourceType
from odradek.model.errors import StartupError
from odradek.security.acls import AclSettings, Requester, parse_super_users

log = logging.getLogger(__name__)


def acls_of(
    config: BrokerConfig, world: World, incidents: Incidents
) -> tuple[AclChanges | None, AclAdmin]:
    """What follows the ACLs (None without an authorizer), and what changes them."""
    if not config.authorizer_class_name:
        return None, AclAdmin(world.store, is_configured=False)
    changes = AclChanges(world.store, AclAuthorizer(incidents), world.clock)
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
    principal = _principal_of_brokers(config)
    if principal is None:
        return
    cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    hosts = {entry.host for entry in authorizer.entries(cluster)} | {"127.0.0.1"}
    if not any(
        authorizer.decide(
            Requester(principal, host),
            AclOperation.CLUSTER_ACTION,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
        ).allowed
        for host in hosts
    ):
        log.warning(
            "the brokers of the cluster are %s to each other, because listener %s is %s, "
            "and %s may not do ClusterAction: this broker refuses what the controller and the "
            "followers request; add it to super.users, or add an ACL that allows "
            "ClusterAction on the cluster",
            principal,
            config.inter_broker_listener,
            protocol_between_brokers(config),
            principal,
        )


def _principal_of_brokers(config: BrokerConfig) -> str | None:
    """The principal of this broker to others; None: a certificate or a token says it."""
    protocol = protocol_between_brokers(config)
    if uses_sasl(protocol):
        user = broker_login(config).user
        return None if user is None else f"User:{user}"
    return ANONYMOUS if protocol == "PLAINTEXT" else None
