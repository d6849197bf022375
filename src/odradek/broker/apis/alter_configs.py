"""AlterConfigs (33), versions 0-2: all options of a resource at once.

Options that are not named fall back to their defaults, so that two clients undo each other's
changes. IncrementalAlterConfigs is its successor, and describes the other behaviour.

Versions:
    v2  flexible
"""

from functools import partial

from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.apis.describe_configs import BROKER, TOPIC
from odradek.broker.apis.incremental_alter_configs import alter_each
from odradek.broker.serving.session import Session
from odradek.config.dynamic import is_per_broker, replace_broker, replace_topic
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


async def alter_configs(
    admin: ConfigAdmin, session: Session, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the options of each resource."""
    replace = partial(_replace, admin, validate_only=request.validate_only)
    outcomes = await alter_each(session, request.resources, replace)
    return AlterConfigsResponse(throttle_time_ms=0, responses=outcomes)


async def _replace(
    admin: ConfigAdmin, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    name = resource.resource_name
    entries = [(config.name, config.value) for config in resource.configs]
    if resource.resource_type == TOPIC:
        await admin.alter_topic(
            name, lambda _: replace_topic(name, entries, admin.config), validate_only=validate_only
        )
    elif resource.resource_type == BROKER:
        own = is_per_broker(name, admin.config)
        await admin.alter_broker(
            name,
            lambda current: replace_broker(entries, current, per_broker=own),
            validate_only=validate_only,
        )
    else:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unsupported resource type: {resource.resource_type}; levels of loggers are changed "
            "by IncrementalAlterConfigs",
        )
