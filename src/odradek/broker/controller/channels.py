"""The controller's channels to brokers: for each a bounded queue, and one request in flight.

The updates for a broker become LeaderAndIsr, UpdateMetadata and StopReplica requests, in this
order. A broker that does not respond is sent the request again until it responds or its
registration ends, and delays only itself; when its queue is full the controller waits, and logs
that, rather than growing. Responses that concern the controller become events.

STALE_BROKER_EPOCH from a broker whose registration is still the one in the store is no answer: it
does not know its registration yet. The request is sent again.

A channel's other end - a connection, or this very broker - is behind a `BrokerPort`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from odradek.broker.cluster.peers import ControlRequest, ControlResponse
from odradek.broker.serving.tasks import Tasks
from odradek.controller.effects import BrokerRequests, PartitionUpdate, SendRequests, StopUpdate
from odradek.controller.events import LeaderAndIsrAnswered, ReplicasDeleted
from odradek.coord.store import ConnectionLostError, SessionExpiredError
from odradek.model.cluster import Broker
from odradek.model.errors import ErrorCode
from odradek.model.partition import LEADER_DURING_DELETE, TopicPartition
from odradek.net.retry import Retries, retry
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

log = logging.getLogger(__name__)
Answered = LeaderAndIsrAnswered | ReplicasDeleted

QUEUED_MAX: Final = 1_000  # requests for one broker
SLICE: Final = 500  # partitions translated before others may run
_PAUSE_SECONDS: Final = 0.1
_STALE_PAUSE_SECONDS_MAX: Final = 1.0
_LOOK_SECONDS: Final = 1.0
_PROTOCOL_CODES: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class BrokerPort(Protocol):
    """Sends requests to one registration of a broker: by a connection, or to this very broker."""

    async def send(self, request: ControlRequest) -> ControlResponse:
        """Have it carry out a request.

        Raises:
            OSError: it cannot be reached, or the connection was lost; it may be tried again.
        """


class ControllerChannels:
    """All the ways there are to brokers, for one controller after the other.

    `connect` makes a port; `answered` takes responses as events; `fenced` is called when a broker
    responds that it has requests of a later controller epoch; `is_registered` is called to see if
    a broker whose queue is full, or which refuses a request as stale, is still registered: the
    controller itself does not look while it waits, or later.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        listener: str,
        connect: Callable[[Broker], BrokerPort],
        tasks: Tasks,
    ) -> None:
        self._broker_id = broker_id
        self._listener = listener
        self._connect = connect
        self._tasks = tasks
        self._controller_epoch = -1
        self._channels: dict[int, _Channel] = {}
        self.answered: Callable[[Answered], None] = lambda _: None
        self.fenced: Callable[[int], None] = lambda _: None
        self.is_registered: Callable[[Broker], Awaitable[bool]] = _forever

    def begin(self, controller_epoch: int) -> None:
        """A new term begins, without channels."""
        self.close()
        self._controller_epoch = controller_epoch

    def add(self, broker: Broker) -> None:
        """Open the way to a broker."""
        self.remove(broker.id)
        channel = _Channel(broker, self._connect(broker), self)
        self._channels[broker.id] = channel
        channel.task = self._tasks.start(channel.run(), f"controller to broker {broker.id}")

    def remove(self, broker: int) -> None:
        """Close the way to a broker; what still waits in it is void."""
        channel = self._channels.pop(broker, None)
        if channel is not None and channel.task is not None:
            # The error of a cancelled task refers to its frame, and so to the channel.
            task, channel.task = channel.task, None
            task.cancel()

    def close(self) -> None:
        """The term is over."""
        for broker in list(self._channels):
            self.remove(broker)

    async def drain(self, seconds: float) -> None:
        """Wait until the brokers that stay have answered all that is queued, but no longer."""
        deliveries = [channel.queue.join() for channel in self._channels.values()]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*deliveries)

    def queued(self) -> dict[int, int]:
        """How many requests wait for each broker."""
        return {broker: channel.queue.qsize() for broker, channel in self._channels.items()}

    async def send(self, effect: SendRequests) -> None:
        """Queue the requests for each broker; waits while a queue is full."""
        translation = _Translation(effect, self._broker_id, self._controller_epoch)
        leaders = list(_live_leaders(effect.brokers.values(), self._listener))
        brokers = [_live_broker(broker) for broker in effect.brokers.values()]
        for to_send in effect.requests:
            if to_send.leader_and_isr is not None:
                await self._post(to_send, await translation.leader_and_isr(to_send, leaders))
            if (metadata := to_send.metadata) is not None:
                update = await translation.update_metadata(to_send, metadata, brokers)
                await self._post(to_send, update)
            if to_send.stop is not None:
                await self._post(to_send, await translation.stop_replica(to_send))

    async def _post(self, to_send: BrokerRequests, request: ControlRequest) -> None:
        channel = self._channels.get(to_send.broker)
        if channel is None or channel.broker.broker_epoch != to_send.broker_epoch:
            return
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await channel.queue.put(request)
            except TimeoutError:
                if await self.is_registered(channel.broker):
                    continue
                self.remove(to_send.broker)
            break

    async def is_current(self, broker: Broker) -> bool:
        """Whether a registration is the one in the store, as far as that can be read."""
        try:
            return await self.is_registered(broker)
        except ConnectionLostError:
            return True
        except SessionExpiredError:  # the controller's: its term is over
            return False

    def responded(self, broker: Broker, request: ControlRequest, response: ControlResponse) -> None:
        """Pass on what a broker's response means for the controller."""
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self.fenced(broker.id)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(
            response, LeaderAndIsrResponse
        ):
            errors = _leader_and_isr_errors(request, response)
            self.answered(LeaderAndIsrAnswered(broker.id, broker.broker_epoch, errors))
        elif isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            errors = _deletion_errors(request, response)
            if errors:
                self.answered(ReplicasDeleted(broker.id, broker.broker_epoch, errors))


async def _forever(_: Broker) -> bool:
    return True


class _Channel:
    """The way to one broker."""

    def __init__(
        self,
        broker: Broker,
        port: BrokerPort,
        channels: ControllerChannels,
    ) -> None:
        self.broker = broker
        self.queue: asyncio.Queue[ControlRequest] = asyncio.Queue(QUEUED_MAX)
        self.task: asyncio.Task[None] | None = None
        self._port = port
        self._channels = channels

    async def run(self) -> None:
        """One request after the other, each until it is answered; until cancelled."""
        try:
            while True:
                request = await self.queue.get()
                try:
                    self._channels.responded(self.broker, request, await self._answer(request))
                finally:
                    self.queue.task_done()
        finally:
            while not self.queue.empty():  # the channel is closed: drop what is queued
                self.queue.get_nowait()
                self.queue.task_done()

    async def _answer(self, request: ControlRequest) -> ControlResponse:
        """The first response that is not of a broker which does not know its registration yet."""
        retries = Retries(_stale_pause_s)
        while True:
            response = await self._send(request)
            if response.error_code != ErrorCode.STALE_BROKER_EPOCH:
                return response
            if not await self._channels.is_current(self.broker):
                return response  # it was for an earlier registration
            if not retries.failures:
                log.warning(
                    "broker %d refuses %s for its present registration %d (STALE_BROKER_EPOCH): "
                    "sending it again until it is accepted",
                    self.broker.id,
                    request.SCHEMA.name.removesuffix("Request"),
                    self.broker.broker_epoch,
                )
            await retries.pause()

    async def _send(self, request: ControlRequest) -> ControlResponse:
        return await retry(partial(self._port.send, request), _PAUSE_SECONDS, on=OSError)


def _stale_pause_s(failures: int) -> float:
    return min(_PAUSE_SECONDS * 2.0 ** (failures - 1), _STALE_PAUSE_SECONDS_MAX)


# ------------------------------------------------------------------------ updates to requests


class _Translation:
    """Updates as messages of the protocol. What several brokers are sent is made once."""

    def __init__(self, effect: SendRequests, controller_id: int, controller_epoch: int) -> None:
        self._ids = effect.topic_ids
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._states: dict[int, LeaderAndIsrPartitionState] = {}
        self._metadata: dict[int, list[UpdateMetadataTopicState]] = {}

    async def leader_and_isr(
        self, to_send: BrokerRequests, leaders: list[LeaderAndIsrLiveLeader]
    ) -> LeaderAndIsrRequest:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for count, item in enumerate(to_send.leader_and_isr or (), 1):
            name = item.partition.topic
            topic = topics.get(name)
            if topic is None:
                topic_id = self._ids[name].bytes
                topic = topics[name] = LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id)
            state = self._states.get(id(item))
            if state is None:
                state = self._states[id(item)] = _leader_and_isr_state(item)
            topic.partition_states.append(state)
            await _breathe(count)
        led = {item.leader_and_isr.leader for item in to_send.leader_and_isr or ()}
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=to_send.broker_epoch,
            topic_states=list(topics.values()),
            live_leaders=[leader for leader in leaders if leader.broker_id in led],
        )

    async def update_metadata(
        self,
        to_send: BrokerRequests,
        metadata: Sequence[PartitionUpdate],
        brokers: list[UpdateMetadataBroker],
    ) -> UpdateMetadataRequest:
        states = self._metadata.get(id(metadata))
        if states is None:
            states = self._metadata[id(metadata)] = await self._topics(metadata)
        return UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=to_send.broker_epoch,
            topic_states=states,
            live_brokers=brokers,
        )

    async def _topics(self, metadata: Sequence[PartitionUpdate]) -> list[UpdateMetadataTopicState]:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for count, item in enumerate(metadata, 1):
            name = item.partition.topic
            topic = topics.get(name)
            if topic is None:
                topic_id = self._ids[name].bytes
                topic = topics[name] = UpdateMetadataTopicState(topic_name=name, topic_id=topic_id)
            topic.partition_states.append(_metadata_state(item))
            await _breathe(count)
        return list(topics.values())

    async def stop_replica(self, to_send: BrokerRequests) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for count, item in enumerate(to_send.stop or (), 1):
            name = item.partition.topic
            topic = topics.setdefault(name, StopReplicaTopicState(topic_name=name))
            topic.partition_states.append(_stop_state(item))
            await _breathe(count)
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=to_send.broker_epoch,
            topic_states=list(topics.values()),
        )


async def _breathe(count: int) -> None:
    if count % SLICE == 0:
        await asyncio.sleep(0)


def _leader_and_isr_state(item: PartitionUpdate) -> LeaderAndIsrPartitionState:
    led, assignment = item.leader_and_isr, item.assignment
    return LeaderAndIsrPartitionState(
        partition_index=item.partition.partition,
        controller_epoch=item.controller_epoch,
        leader=led.leader,
        leader_epoch=led.leader_epoch,
        isr=list(led.isr),
        partition_epoch=led.partition_epoch,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
        is_new=item.is_new,
        leader_recovery_state=led.leader_recovery_state,
    )


def _metadata_state(item: PartitionUpdate) -> UpdateMetadataPartitionState:
    led = item.leader_and_isr
    return UpdateMetadataPartitionState(
        partition_index=item.partition.partition,
        controller_epoch=item.controller_epoch,
        leader=LEADER_DURING_DELETE if item.being_deleted else led.leader,
        leader_epoch=led.leader_epoch,
        isr=list(led.isr),
        zk_version=led.partition_epoch,
        replicas=list(item.assignment.replicas),
        offline_replicas=list(item.offline),
    )


def _stop_state(item: StopUpdate) -> StopReplicaPartitionState:
    return StopReplicaPartitionState(
        partition_index=item.partition.partition,
        leader_epoch=item.leader_epoch,
        delete_partition=item.delete,
    )


def _live_leaders(brokers: Iterable[Broker], listener: str) -> Iterable[LeaderAndIsrLiveLeader]:
    for broker in brokers:
        end_point = broker.end_point(listener)
        if end_point is not None:
            yield LeaderAndIsrLiveLeader(
                broker_id=broker.id, host_name=end_point.host, port=end_point.port
            )


def _live_broker(broker: Broker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        rack=broker.rack,
        endpoints=[
            UpdateMetadataEndpoint(
                host=end_point.host,
                port=end_point.port,
                listener=end_point.listener,
                security_protocol=_PROTOCOL_CODES[end_point.security_protocol],
            )
            for end_point in broker.end_points
        ],
    )


# -------------------------------------------------------------------- responses to events


def _leader_and_isr_errors(
    request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> Mapping[TopicPartition, ErrorCode]:
    if response.error_code:
        return {}  # refused as a whole: it was for an earlier registration of the broker
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return {
        # Calling an enum is slow, and 10,000 partitions answer at once when a broker starts.
        TopicPartition(names[topic.topic_id], error.partition_index): (
            ErrorCode(error.error_code) if error.error_code else ErrorCode.NONE
        )
        for topic in response.topics
        if topic.topic_id in names
        for error in topic.partition_errors
    }


def _deletion_errors(
    request: StopReplicaRequest, response: StopReplicaResponse
) -> Mapping[TopicPartition, ErrorCode]:
    by_name = {
        TopicPartition(error.topic_name, error.partition_index): ErrorCode(error.error_code)
        for error in response.partition_errors
    }
    everywhere = ErrorCode(response.error_code)
    return {
        name: everywhere or by_name.get(name, ErrorCode.NONE)
        for topic in request.topic_states
        for state in topic.partition_states
        if state.delete_partition
        for name in [TopicPartition(topic.topic_name, state.partition_index)]
    }
