"""Envelope (58): a request that one broker forwards to the controller for a client."""

from odradek.wire.schema import Buffer, Message, bytes_, int16


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: Buffer = bytes_()
    request_principal: Buffer | None = bytes_(nullable="0+")
    client_host_address: Buffer = bytes_()


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: Buffer | None = bytes_(nullable="0+", default=None)
    error_code: int = int16()
