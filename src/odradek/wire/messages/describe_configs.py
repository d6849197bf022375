"""DescribeConfigs (32): configs of topics and brokers, and where each value comes from.

Versions:
    v1  sources and synonyms
    v3  types and documentation
    v4  flexible
"""

from odradek.wire.schema import Message, array, bool_, int8, int16, int32, string, string_array


class DescribeConfigsResource(Message):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = string_array(nullable="0+")  # None: all


class DescribeConfigsRequest(Message, api_key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = bool_("1+")
    include_documentation: bool = bool_("3+")


class DescribeConfigsSynonym(Message):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Message):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = bool_()
    is_default: bool = bool_("0")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = bool_()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
