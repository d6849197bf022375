"""IncrementalAlterConfigs (44): single configs set, deleted, appended to, subtracted from.

Versions:
    v1  flexible
"""

from odradek.wire.messages.alter_configs import AlterConfigsResourceResponse
from odradek.wire.schema import Message, array, bool_, int8, int32, string


class AlterableConfig(Message):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = bool_()


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
