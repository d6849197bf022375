"""DescribeClientQuotas (48): the quotas that match a filter.

Versions:
    v1  flexible
"""

from odradek.wire.schema import Message, array, bool_, float64, int8, int16, int32, string


class ComponentData(Message):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = bool_()


class EntityData(Message):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")  # None: the default entity


class ValueData(Message):
    key: str = string()
    value: float = float64()


class EntryData(Message):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
