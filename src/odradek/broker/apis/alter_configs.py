"""AlterConfigs (33), versions 0-2: all options of a resource at once.

Options that are not named fall back to their defaults, so that two clients undo each other's
changes. IncrementalAlterConfigs is its successor, and describes the other behaviour.

Versions:
    v2  flexible
"""

from collections import Counter

from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.apis.describe_configs import BROKER, TOPIC, check_may
from odradek.broker.apis.incremental_alter_configs import check_once
from odradek.broker.serving.session import Session
from odradek.config.dynamic import is_per_broker, replace_broker, replace_topic
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def alter_configs(
    admin: ConfigAdmin, session: Session, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the options of each resource."""
    response = AlterConfigsResponse(throttle_time_ms=0)
    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name
        outcome = AlterConfigsResourceResponse(
            error_message=None, resource_type=key[0], resource_name=key[1]
        )
        try:
            check_may(session, *key, describe=False)
            check_once(times[key])
            await _replace(admin, resource, validate_only=request.validate_only)
        except ApiError as error:
            outcome.error_code = error.code
            outcome.error_message = error.message
        response.responses.append(outcome)
    return response


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
