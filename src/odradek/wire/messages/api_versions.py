"""ApiVersions (18): which APIs this broker serves, in which versions.

It is the first request of a connection, sent before the client has the broker's versions. So an
unsupported version is answered in the layout of v0 with UNSUPPORTED_VERSION, and the response
header never has a tagged section.

Versions:
    v3  flexible; client software; features
    v4  a supported feature may have minimum version 0
"""

from odradek.wire.schema import Message, array, bool_, int16, int32, int64, string


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersion(Message):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Message):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Message):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", ignorable=True, tag=0
    )
    finalized_features_epoch: int = int64("3+", default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", ignorable=True, tag=2
    )
    zk_migration_ready: bool = bool_("3+", ignorable=True, tag=3)
