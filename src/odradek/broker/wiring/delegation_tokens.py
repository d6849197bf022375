"""The part of a broker that has the delegation tokens."""

from odradek.broker.admin.delegation_tokens import DelegationTokens
from odradek.broker.admin.topics import TopicAdmin
from odradek.broker.cluster.topic_ids import draw_topic_id
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.model.ids import uuid_text
from odradek.security.delegation_tokens import TokenOptions


def delegation_tokens_of(
    config: BrokerConfig, world: World, controller: TopicAdmin
) -> DelegationTokens | None:
    """What has the delegation tokens; None without their secret."""
    secret = config.delegation_token_secret_key or config.delegation_token_master_key
    if not secret:
        return None
    return DelegationTokens(
        world.store,
        world.clock,
        options=TokenOptions(
            secret=secret,
            lifetime_ms=config.delegation_token_max_lifetime_ms,
            renewal_ms=config.delegation_token_expiry_time_ms,
        ),
        draw_id=lambda: uuid_text(draw_topic_id(world.random)),
        is_controller=lambda: controller.is_controller,
    )
