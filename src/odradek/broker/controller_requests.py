"""LeaderAndIsr, StopReplica and UpdateMetadata: which of the controller's requests are accepted.

A controller in this process calls `ControllerRequests` directly, another one sends its requests to
the inter-broker listener; the same checks hold for both. Versions that do not name topics by id
(`inter.broker.protocol.version` below 2.8) get the ids that the store or the metadata cache has.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final, Protocol

from odradek.broker.apis.leader_and_isr import leader_and_isr
from odradek.broker.apis.stop_replica import stop_replica
from odradek.broker.apis.update_metadata import update_metadata
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peers import ControlRequest
from odradek.broker.cluster.requests_by_name import (
    group_leader_and_isr,
    group_stop_replica,
    group_update_metadata,
    leader_and_isr_by_name,
)
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.session import Origin
from odradek.coord.store import ConnectionLostError, SessionExpiredError
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.net.retry import retry
from odradek.replica.transitions import refuse_request
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.schema import ZERO_UUID

_PAUSE_SECONDS: Final = 0.1
# The first versions in today's form: with topic ids, and StopReplica by partition.
_LEADER_AND_ISR_SINCE: Final = 5
_STOP_REPLICA_SINCE: Final = 3
_UPDATE_METADATA_SINCE: Final = 7


class TopicNodes(Protocol):
    """What the store has about topics."""

    async def learn(self, topics: Sequence[str]) -> None:
        """Read the options of topics that are new to this broker."""

    async def topic_ids(self, topics: Sequence[str]) -> Mapping[str, bytes]:
        """The ids of those topics that have one."""


class ControllerRequests:
    """Checks the controller epoch, the broker epoch and the sender's CLUSTER_ACTION right."""

    def __init__(
        self,
        replicas: ReplicaManager,
        cache: MetadataCache,
        *,
        stored: TopicNodes,
        deleted: Callable[[str], None],
    ) -> None:
        """`deleted` gets the names of deleted topics."""
        self._stored = stored
        self._topic_deleted = deleted
        self._replicas = replicas
        self._cache = cache
        self.broker_epoch = -1  # of the present registration
        self.controller_epoch = -1  # the newest seen
        self.refused = 0

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, origin: Origin | None = None
    ) -> LeaderAndIsrResponse:
        """Handle LeaderAndIsr: become leader or follower of partitions."""
        refusal = self._refusal(request, origin)
        if refusal is not ErrorCode.NONE:
            return LeaderAndIsrResponse(error_code=refusal)
        if origin is not None and origin.api_version < _LEADER_AND_ISR_SINCE:
            return await self._leader_and_isr_by_name(request)
        return await self._accepted(request, origin)

    async def _leader_and_isr_by_name(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        group_leader_and_isr(request)
        # From the store: the metadata cache may still have a deleted topic of the same name.
        read = partial(self._stored.topic_ids, [t.topic_name for t in request.topic_states])
        try:
            ids = await retry(read, _PAUSE_SECONDS, on=ConnectionLostError)
        except SessionExpiredError:
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        refusal = self._refusal(request, None)  # the epochs may have changed meanwhile
        if refusal is not ErrorCode.NONE:
            return LeaderAndIsrResponse(error_code=refusal)
        with_ids = copy(request)
        with_ids.topic_states = [t for t in request.topic_states if t.topic_name in ids]
        for topic in with_ids.topic_states:
            topic.topic_id = ids[topic.topic_name]
        return leader_and_isr_by_name(await self._accepted(with_ids, None), request, ids)

    def _id_of(self, topic: str) -> bytes:
        known = self._cache.topic(topic)
        return ZERO_UUID if known is None else known.topic_id

    async def _accepted(
        self, request: LeaderAndIsrRequest, origin: Origin | None
    ) -> LeaderAndIsrResponse:
        # A topic's options are read before its log is opened: they say how the log is written.
        new = [
            topic.topic_name
            for topic in request.topic_states
            if self._replicas.topic_name(topic.topic_id) is None
        ]
        if new:
            try:
                read = partial(self._stored.learn, new)
                await retry(read, _PAUSE_SECONDS, on=ConnectionLostError)
            except SessionExpiredError:
                # The registration that this request was meant for ended with the session.
                return LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            refusal = self._refusal(request, origin)  # the epochs may have changed meanwhile
            if refusal is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=refusal)
        response = await leader_and_isr(self._replicas, request)
        for topic in request.topic_states:
            for state in topic.partition_states:
                self._cache.leader_announced(
                    topic.topic_name, state.partition_index, state.leader_epoch
                )
        return response

    async def stop_replica(
        self, request: StopReplicaRequest, origin: Origin | None = None
    ) -> StopReplicaResponse:
        """Handle StopReplica: stop serving partitions, and delete their logs if asked."""
        refusal = self._refusal(request, origin)
        if refusal is not ErrorCode.NONE:
            return StopReplicaResponse(error_code=refusal)
        if origin is not None and origin.api_version < _STOP_REPLICA_SINCE:
            group_stop_replica(request)
        return await stop_replica(self._replicas, request)

    async def update_metadata(
        self, request: UpdateMetadataRequest, origin: Origin | None = None
    ) -> UpdateMetadataResponse:
        """Handle UpdateMetadata: update the metadata cache."""
        refusal = self._refusal(request, origin)
        if refusal is not ErrorCode.NONE:
            return UpdateMetadataResponse(error_code=refusal)
        if origin is not None and origin.api_version < _UPDATE_METADATA_SINCE:
            group_update_metadata(request, self._id_of)
        response, deleted = update_metadata(self._cache, request)
        self._replicas.metadata_updated(request.topic_states)
        for topic in deleted:
            self._topic_deleted(topic)
        return response

    def _refusal(self, request: ControlRequest, origin: Origin | None) -> ErrorCode:
        if origin is not None and not origin.session.authorize(
            AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refusal = refuse_request(
            controller_epoch=request.controller_epoch,
            newest_controller_epoch=self.controller_epoch,
            broker_epoch=request.broker_epoch,
            own_broker_epoch=self.broker_epoch,
        )
        if refusal is not ErrorCode.NONE:
            self.refused += 1
            return refusal
        self.controller_epoch = max(self.controller_epoch, request.controller_epoch)
        return ErrorCode.NONE
