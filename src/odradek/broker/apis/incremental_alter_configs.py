"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from options.

Behaviour:
    * Topics: Topic AlterConfigs, any broker. Brokers: Cluster AlterConfigs, the broker itself; an
      empty name means all brokers. Broker loggers: the broker itself; set and delete only.
    * The options of a resource after the change are checked as a whole before they are stored.
    * Each resource succeeds or fails on its own; one that is named twice is not changed at all.
    * Answered when this broker has applied what it stored.

Versions:
    v1  flexible
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.apis.describe_configs import (
    BROKER,
    TOPIC,
    check_logger_broker,
    check_may,
)
from odradek.broker.serving.session import Session
from odradek.config.dynamic import (
    Operation,
    OptionAlteration,
    alter_broker,
    alter_topic,
    is_per_broker,
)
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages import alter_configs
from odradek.wire.messages.alter_configs import AlterConfigsResourceResponse
from odradek.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

R = TypeVar("R", AlterConfigsResource, alter_configs.AlterConfigsResource)


async def incremental_alter_configs(
    admin: ConfigAdmin, session: Session, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter the options of each resource."""
    alter = partial(_alter, admin, validate_only=request.validate_only)
    outcomes = await alter_each(session, request.resources, alter)
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=outcomes)


async def alter_each(
    session: Session, resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
) -> list[AlterConfigsResourceResponse]:
    """Alter each resource on its own; one that is named more than once is refused."""
    outcomes = []
    times = Counter((r.resource_type, r.resource_name) for r in resources)
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        outcome = AlterConfigsResourceResponse(
            error_message=None, resource_type=key[0], resource_name=key[1]
        )
        try:
            check_may(session, *key, describe=False)
            _check_once(times[key])
            await alter(resource)
        except ApiError as error:
            outcome.error_code = error.code
            outcome.error_message = error.message
        outcomes.append(outcome)
    return outcomes


def _check_once(times: int) -> None:
    if times > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


async def _alter(
    admin: ConfigAdmin, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    name = resource.resource_name
    alterations = [OptionAlteration(c.config_operation, c.name, c.value) for c in resource.configs]
    if resource.resource_type == TOPIC:
        await admin.alter_topic(
            name,
            lambda stored: alter_topic(name, stored, alterations, admin.config),
            validate_only=validate_only,
        )
    elif resource.resource_type == BROKER:
        own = is_per_broker(name, admin.config)
        await admin.alter_broker(
            name,
            lambda current: alter_broker(alterations, current, per_broker=own),
            validate_only=validate_only,
        )
    else:
        check_logger_broker(admin, name)
        _alter_levels(admin, alterations, validate_only=validate_only)


def _alter_levels(
    admin: ConfigAdmin, alterations: Sequence[OptionAlteration], *, validate_only: bool
) -> None:
    levels = {}
    for operation, logger, level in alterations:
        if operation == Operation.SET:
            levels[logger] = level
        elif operation == Operation.DELETE:
            levels[logger] = None
        else:
            names = {int(known): known.name for known in Operation}
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{names.get(operation, operation)} operation is not allowed for the "
                "BROKER_LOGGER resource",
            )
    admin.loggers.check(levels)
    if not validate_only:
        for logger, level in levels.items():
            admin.loggers.set(logger, level)
