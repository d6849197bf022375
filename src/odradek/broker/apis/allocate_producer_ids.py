"""AllocateProducerIds (67), version 0, from a broker to the controller: a block of producer ids.

Behaviour:
    * A broker that is not the controller: NOT_CONTROLLER.
    * The requester is not registered: BROKER_ID_NOT_REGISTERED; its broker epoch is not that of its
      registration, or -1: STALE_BROKER_EPOCH.
    * A block is never given twice, even if its response is lost.
"""

from collections.abc import Awaitable, Callable

from odradek.model.errors import ApiError
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


async def allocate_producer_ids(
    draw: Callable[[int, int], Awaitable[tuple[int, int]]], request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Allocate a block for a broker: its first id, and the number of its ids."""
    try:
        first, count = await draw(request.broker_id, request.broker_epoch)
    except ApiError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count)
