"""DescribeState, an API that only Odradek's brokers serve."""

import json
from collections.abc import Mapping
from typing import Any, Final

from odradek.client.connection import Connection
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.describe_state import (
    DescribeStateRequest,
    DescribeStateResponse,
    Field,
)

TIMEOUT_MS: Final = 5_000


async def describe_state(
    connection: Connection, report: str, query: Mapping[str, str] | None = None
) -> Any | None:
    """One report of the connected broker; None if it does not serve reports.

    Raises:
        ApiError: the broker refuses.
        ConnectionError: it does not answer.
    """
    if ApiKey.DESCRIBE_STATE not in connection.versions:
        return None
    fields = [Field(name=name, value=value) for name, value in (query or {}).items()]
    answer = await connection.request(
        DescribeStateRequest(report=report, fields=fields),
        DescribeStateResponse,
        timeout_ms=TIMEOUT_MS,
    )
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code), answer.error_message)
    return json.loads(bytes(answer.body))
