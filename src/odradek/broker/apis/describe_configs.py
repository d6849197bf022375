"""DescribeConfigs (32), versions 0-4: options, their values, and the source of each.

Behaviour:
    * Topics: Topic DescribeConfigs. Any broker answers; its own options are the defaults of
      topics.
    * Brokers: Cluster DescribeConfigs. The request goes to the broker itself; an empty name means
      what is set for all brokers.
    * Broker loggers (levels): as brokers, by id.
    * Secrets and unknown options are listed without their values.
    * No names, null or an empty list: all options.
    * Each resource fails on its own. One that is named more than `REPEATED_MAX` times is refused
      from then on: a request of eight bytes gets kilobytes.

Versions:
    v0  whether a value is the default (Kafka 3.9 leaves that false for every option)
    v1  sources, synonyms    v3  types, documentation    v4  flexible
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.serving.session import Session
from odradek.config.describe import ConfigSource, DescribedOption
from odradek.config.dynamic import is_per_broker
from odradek.config.option import Type
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
SLICE: Final = 10  # resources described before others may run
REPEATED_MAX: Final = 16


async def describe_configs(
    admin: ConfigAdmin, session: Session, request: DescribeConfigsRequest, api_version: int
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse(throttle_time_ms=0)
    seen: Counter[tuple[int, str]] = Counter()
    outcome: dict[int, tuple[Sequence[DescribedOption], list[DescribeConfigsResourceResult]]] = {}
    for number, resource in enumerate(request.resources):
        if number % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            check_may(session, resource.resource_type, resource.resource_name, describe=True)
            _count(seen, resource)
            entries = await _entries(admin, resource)
        except ApiError as error:
            result.error_code = error.code
            result.error_message = error.message
        else:
            # Most topics have the same options: one list serves all of them.
            known = outcome.get(id(entries))
            if known is None:
                known = outcome[id(entries)] = (
                    entries,
                    [
                        _result(
                            entry,
                            synonyms=request.include_synonyms,
                            documentation=request.include_documentation,
                            marks_default=api_version == 0,
                        )
                        for entry in entries
                    ],
                )
            result.configs = known[1]
        response.results.append(result)
    return response


def _count(seen: Counter[tuple[int, str]], resource: DescribeConfigsResource) -> None:
    key = resource.resource_type, resource.resource_name
    seen[key] += 1
    if seen[key] > REPEATED_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Each resource must appear at most {REPEATED_MAX} times.",
        )


def check_may(session: Session, resource_type: int, name: str, *, describe: bool) -> None:
    """Check that this client may describe (or alter) the options of a resource.

    Raises:
        ApiError: it may not, or this type of resource has no options.
    """
    operation = AclOperation.DESCRIBE_CONFIGS if describe else AclOperation.ALTER_CONFIGS
    if resource_type == TOPIC:
        if not session.authorize(operation, ResourceType.TOPIC, name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif resource_type in (BROKER, BROKER_LOGGER):
        if not session.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    elif resource_type == CLIENT_METRICS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Config type client-metrics is only supported on KRaft clusters",
        )
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def check_logger_broker(admin: ConfigAdmin, resource: str) -> None:
    """Refuse requests for another broker's loggers.

    Raises:
        ApiError: the resource is not this broker.
    """
    if not resource:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    is_per_broker(resource, admin.config)


async def _entries(
    admin: ConfigAdmin, resource: DescribeConfigsResource
) -> Sequence[DescribedOption]:
    names, name = resource.configuration_keys or None, resource.resource_name
    if resource.resource_type == TOPIC:
        return await admin.describe_topic(name, names)
    if resource.resource_type == BROKER:
        return admin.describe_broker(name, names)
    check_logger_broker(admin, name)
    return [
        _level(logger, level)
        for logger, level in admin.loggers.levels().items()
        if names is None or logger in names
    ]


def _level(logger: str, level: str) -> DescribedOption:
    return DescribedOption(
        name=logger,
        value=level,
        read_only=False,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER,
        sensitive=False,
        synonyms=(),
        type=Type.STRING,
        documentation="",
    )


def _result(
    entry: DescribedOption, *, synonyms: bool, documentation: bool, marks_default: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=marks_default and entry.source == ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source)
            for s in entry.synonyms
        ]
        if synonyms
        else [],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )
