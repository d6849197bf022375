"""DescribeState (31000), our own: a broker's own state and its view of the cluster, as JSON."""

from odradek.wire.schema import Buffer, Message, array, bytes_, int16, string


class Field(Message):
    name: str = string()
    value: str = string()


class DescribeStateRequest(Message, api_key=31000, versions="0", flexible="0+"):
    report: str = string()
    fields: list[Field] = array(Field)


class DescribeStateResponse(Message, api_key=31000, versions="0", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    body: Buffer = bytes_()
