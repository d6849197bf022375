"""ControlledShutdown (7), versions 0-3, from a broker that stops to the controller.

Behaviour:
    * The partitions that the broker leads get another in-sync replica as leader, and it leaves
      every ISR. The answer names what it still leads, because no other replica can lead.
    * If all registered brokers stop, no leader moves and none remains. A broker that names all
      of them in `together_with` is answered OPERATION_NOT_ATTEMPTED until all have asked.
    * A broker that is not the controller: NOT_CONTROLLER; an earlier registration:
      STALE_BROKER_EPOCH.

Versions:
    v2 broker epoch    v3 flexible
"""

from odradek.broker.controller.shell import ControllerShell
from odradek.controller.answers import ShutdownAnswer
from odradek.controller.events import ControlledShutdownRequested
from odradek.model.errors import ApiError
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


async def controlled_shutdown(
    controller: ControllerShell, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """Have the controller move the leaders; the caller has checked the requester's rights."""
    try:
        answer = await controller.ask(
            ControlledShutdownRequested(
                request.broker_id, request.broker_epoch, tuple(request.together_with)
            ),
            ShutdownAnswer,
        )
    except ApiError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        error_code=answer.error,
        remaining_partitions=[
            RemainingPartition(topic_name=left.topic, partition_index=left.partition)
            for left in answer.remaining
        ],
    )
