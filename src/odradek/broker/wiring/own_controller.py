"""Requests to the controller: over the network, or by a call in the controller's own process."""

from collections.abc import Callable

from odradek.broker.admin.topics import TopicAdmin, store_errors_answered
from odradek.broker.apis.allocate_producer_ids import allocate_producer_ids
from odradek.broker.apis.alter_partition import alter_partition
from odradek.broker.apis.controlled_shutdown import controlled_shutdown
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peers import VERSIONS, Peer, PeerError
from odradek.broker.controller.event_recorder import EventRecorder
from odradek.broker.controller.link import ControllerLink
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.coord.registry import next_producer_id_block
from odradek.coord.store import MultiError, Store
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.wire.messages.alter_partition import AlterPartitionRequest
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.schema import Message


class ProducerIdBlocks:
    """Allocates blocks of producer ids, while this broker is the controller."""

    def __init__(self, store: Store, topic_admin: TopicAdmin, controller: ControllerShell) -> None:
        self._store = store
        self._topic_admin = topic_admin
        self._controller = controller

    async def draw(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """The first id of the next block, and the number of its ids.

        Raises:
            ApiError: this broker is not the controller, the requester is not registered with this
                broker epoch, or the store did not answer.
        """
        guard = self._topic_admin.check_term().token
        machine = self._controller.machine
        if machine is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        refusal = machine.context.registration_error(broker_id, broker_epoch)
        if refusal is not ErrorCode.NONE:
            raise ApiError(refusal)
        try:
            with store_errors_answered():
                block = await next_producer_id_block(self._store, broker_id, guard=guard)
        except MultiError as error:  # another broker was elected in the meantime
            raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        return block.first_producer_id, block.end_producer_id - block.first_producer_id


async def allocate_block(
    link: ControllerLink, *, broker_id: int, broker_epoch: int
) -> tuple[int, int]:
    """Ask the controller for a block: its first id, and the number of its ids.

    Raises:
        ApiError: COORDINATOR_LOAD_IN_PROGRESS, which every client retries.
    """
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    try:
        answer = await link.ask(request, AllocateProducerIdsResponse)
    except PeerError as error:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
    if answer.error_code:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return answer.producer_id_start, answer.producer_id_len


def recorder_of(
    config: BrokerConfig, world: World, *, note: Callable[[str], None]
) -> EventRecorder:
    """Records what is handed to the controller's state machine, if the options ask for it."""
    return EventRecorder(
        world.disk,
        config.log_dirs[0],
        world.clock,
        broker_id=config.broker_id,
        bytes_max=config.odradek_controller_events_max_bytes,
        note=note,
    )


def link_of(
    config: BrokerConfig,
    *,
    metadata: MetadataCache,
    controller: ControllerShell,
    make_peer: Callable[[str, int], Peer],
    blocks: ProducerIdBlocks,
) -> ControllerLink:
    """The connection to the controller, which may be `controller` itself."""

    async def own(request: Message) -> Message:
        match request:
            case AlterPartitionRequest():
                version = VERSIONS[ApiKey.ALTER_PARTITION]
                return await alter_partition(
                    controller, request, version, announced=metadata.topic_name
                )
            case ControlledShutdownRequest():
                return await controlled_shutdown(controller, request)
            case AllocateProducerIdsRequest():
                return await allocate_producer_ids(blocks.draw, request)
        # Other requests are made to the controller directly, if it is this broker and ready.
        raise PeerError("the controller of this broker is not ready yet")

    return ControllerLink(
        broker_id=config.broker_id,
        listener=config.inter_broker_listener,
        cache=metadata,
        own=own,
        make_peer=make_peer,
    )
