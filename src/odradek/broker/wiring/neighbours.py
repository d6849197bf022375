"""Connections to the brokers of the cluster, this one included."""

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.broker.apis.list_offsets import log_ends
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peer_book import PeerBook
from odradek.broker.cluster.peers import ControlRequest, ControlResponse, Peer, PeerError
from odradek.broker.controller.channels import BrokerPort
from odradek.broker.controller_requests import ControllerRequests
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.log.logs import Logs
from odradek.model.cluster import Broker
from odradek.net.channel import Connector
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest

LOG_ENDS_TIMEOUT_S: Final = 2.0  # a dead broker must not delay an election that needs it not


class Neighbours:
    """Makes connections to other brokers, over the inter-broker listener."""

    def __init__(
        self,
        world: World,
        metadata: MetadataCache,
        *,
        connector: Connector,
        config: Callable[[], BrokerConfig],
        logs: Logs,
        own: Callable[[], ControllerRequests],
    ) -> None:
        """`own` is what carries out the controller's requests to this broker."""
        self.connector = connector
        self._world = world
        self._metadata = metadata
        self._config = config
        self._logs = logs
        self._own = own

    def peer_at(self, host: str, port: int) -> Peer:
        """A connection that is made for its first request."""
        config = self._config()
        return Peer(
            host,
            port,
            connector=self.connector,
            clock=self._world.clock,
            client_id=f"broker-{config.broker_id}",
            timeout_ms=config.controller_socket_timeout_ms,
        )

    def peer_book(self) -> PeerBook:
        """A set of connections, one for each broker that is sent requests."""
        listener = self._config().inter_broker_listener
        return PeerBook(self._metadata, listener=listener, make_peer=self.peer_at)

    def port_to(self, broker: Broker) -> BrokerPort:
        """The controller's connection to a broker; a direct call for the one it runs in."""
        config = self._config()
        if broker.id == config.broker_id:
            return _OwnPort(self._own())
        point = broker.end_point(config.inter_broker_listener)
        if point is None:
            return _NoPort(broker.id, config.inter_broker_listener)
        return self.peer_at(point.host, point.port)

    async def ask_log_ends(
        self, broker_id: int, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        """Ask a broker for the log end offsets of its replicas.

        Raises:
            PeerError: it is not registered, has no listener for brokers, or did not answer.
            TimeoutError: it did not answer within `LOG_ENDS_TIMEOUT_S`.
        """
        config = self._config()
        if broker_id == config.broker_id:
            return log_ends(self._logs, request)
        broker = self._metadata.brokers.get(broker_id)
        point = broker.end_point(config.inter_broker_listener) if broker else None
        if point is None:
            raise PeerError(f"broker {broker_id} is not registered, or has no such listener")
        peer = self.peer_at(point.host, point.port)
        try:
            async with asyncio.timeout(LOG_ENDS_TIMEOUT_S):
                return await peer.ask(request, ListOffsetsResponse)
        finally:
            peer.close()


class _OwnPort:
    """The controller's connection to the broker it runs in: a direct call."""

    def __init__(self, own: ControllerRequests) -> None:
        self._own = own

    async def send(self, request: ControlRequest) -> ControlResponse:
        if isinstance(request, LeaderAndIsrRequest):
            return await self._own.leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return await self._own.stop_replica(request)
        return await self._own.update_metadata(request)


class _NoPort:
    """A broker without the inter-broker listener: requests to it fail."""

    def __init__(self, broker_id: int, listener: str) -> None:
        self._broker_id = broker_id
        self._listener = listener

    async def send(self, request: ControlRequest) -> ControlResponse:
        del request
        raise ConnectionError(f"broker {self._broker_id} has no listener {self._listener}")
