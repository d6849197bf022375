"""AlterClientQuotas (49): quotas of users, client ids and addresses.

Versions:
    v1  flexible
"""

from odradek.wire.schema import Message, array, bool_, float64, int16, int32, string


class EntityData(Message):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")  # None: the default entity


class OpData(Message):
    key: str = string()
    value: float = float64()
    remove: bool = bool_()


class EntryData(Message):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = bool_()


class AlteredEntity(Message):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class AlteredEntry(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[AlteredEntity] = array(AlteredEntity)


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[AlteredEntry] = array(AlteredEntry)
