"""DescribeState (31000), version 0, our own: one report of this broker, as JSON, for our tools.

The reports are those of the HTTP server (`odradek.broker.reports`): what an operator on another
host needs, over the listener that clients use and with its rights.

Behaviour:
    * Read-only. DESCRIBE on the cluster, else CLUSTER_AUTHORIZATION_FAILED; DESCRIBE on the topic
      or group that the fields name, else TOPIC_ or GROUP_AUTHORIZATION_FAILED.
    * What else the client may not see is left out (`odradek.broker.viewer`).
    * An unknown report, or invalid fields: INVALID_REQUEST, with the reason.
    * One answer is made at a time, in slices of the loop; one of more than `BYTES_MAX` is
      POLICY_VIOLATION: ask for one topic, partition or group.
"""

import asyncio
from typing import Final

from odradek.broker.reported import ReportedParts
from odradek.broker.serving.session import Session
from odradek.broker.viewer import ClientOf
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.describe_state import DescribeStateRequest, DescribeStateResponse

BYTES_MAX: Final = 8 << 20
FIELDS_MAX: Final = 16
_DESCRIBE: Final = AclOperation.DESCRIBE
# The field that names a resource, its type, and the error if the client may not describe it.
_NAMED: Final = (
    ("topic", ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ("group", ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
)


async def describe_state(
    broker: ReportedParts,
    session: Session,
    request: DescribeStateRequest,
    *,
    one_at_a_time: asyncio.Lock,
) -> DescribeStateResponse:
    """Make a report.

    Raises:
        ApiError: the client may not ask for it, or the report cannot be made.
    """
    from odradek.broker.reports import report_routes  # noqa: PLC0415 - the first tool loads them

    session.check_cluster(AclOperation.DESCRIBE)
    route = report_routes(broker, ClientOf(session)).get(request.report)
    if route is None or len(request.fields) > FIELDS_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no report {request.report[:40]!r}")
    query = {field.name: field.value for field in request.fields}
    for name, resource_type, error in _NAMED:
        if name in query and not session.authorize(_DESCRIBE, resource_type, query[name]):
            raise ApiError(error)
    async with one_at_a_time:
        answer = route(query)
        pieces = [answer.body] if isinstance(answer.body, bytes) else answer.body
        body = bytearray()
        for piece in pieces:
            body += piece
            if len(body) > BYTES_MAX:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the report is longer than {BYTES_MAX} bytes: ask for one topic, partition "
                    "or group",
                )
            await asyncio.sleep(0)
    if answer.status != 200:
        raise ApiError(ErrorCode.INVALID_REQUEST, body.decode().strip())
    return DescribeStateResponse(body=bytes(body))
