"""What a broker does before it stops: its leaderships move, or the whole cluster stops in sync.

alone       ControlledShutdown: the controller moves what this broker leads. It is asked again,
            for a while, for partitions that no other replica can lead
together    every registered broker is being stopped, and no leader moves. No more records are
            accepted, the in-sync followers fetch the rest, and each broker continues to
            replicate until the controller has the same request from all. So all in-sync
            replicas have the same log end, and each of them may lead after the next start
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from odradek.broker.apis.produce import ProduceApi
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peers import PeerError
from odradek.broker.controller.link import ControllerLink
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

log = logging.getLogger(__name__)
TOGETHER_S_MAX: Final = 1.0  # for brokers that stop together to end alike
_PAUSE_S: Final = 0.01
_AGAIN_S: Final = 0.25


class ControlledShutdown:
    """What a broker asks of the controller before it stops."""

    def __init__(
        self,
        *,
        metadata: MetadataCache,
        link: ControllerLink,
        controller: ControllerShell,
        replicas: ReplicaManager,
        produce: ProduceApi,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._link = link
        self._controller = controller
        self._replicas = replicas
        self._produce = produce
        self._broker_epoch = broker_epoch

    async def run(self, config: BrokerConfig, together_with: Collection[int]) -> None:
        """Stop leading; `together_with` are the brokers that are being stopped at the same time."""
        if len(self._metadata.brokers) <= 1 or not config.controlled_shutdown_enable:
            return
        request = ControlledShutdownRequest(
            broker_id=config.broker_id, broker_epoch=self._broker_epoch()
        )
        if self._metadata.brokers.keys() <= set(together_with):
            request.together_with = sorted(together_with)
            try:
                async with asyncio.timeout(TOGETHER_S_MAX):
                    await self._go_down(request)
            except TimeoutError:
                # One of them may have been killed. Committed records are on all in-sync replicas.
                log.warning("not every broker of the cluster stops; this one stops waiting")
        else:
            await self._leave(config, request)

    async def _leave(self, config: BrokerConfig, request: ControlledShutdownRequest) -> None:
        """Ask until no leadership is left to move, at most as long as Kafka's retries would last.

        It asks more often than `controlled.shutdown.retry.backoff.ms`: if other brokers stop, too,
        the last one soon gets the answer that no broker is left that could lead.
        """
        loop = asyncio.get_running_loop()
        retries = config.controlled_shutdown_max_retries - 1
        deadline_s = loop.time() + retries * config.controlled_shutdown_retry_backoff_ms / 1000
        logged = ""
        while True:
            try:
                answer = await self._ask(request)
            except PeerError as error:
                trouble = f"the controller did not answer: {error}"
            else:
                left = len(answer.remaining_partitions)
                if not answer.error_code and not left:
                    return
                trouble = f"controlled shutdown: error {answer.error_code}, still leads {left}"
            if trouble != logged:
                logged = trouble
                log.info("%s", trouble)
            if loop.time() + _AGAIN_S > deadline_s:
                return
            await asyncio.sleep(_AGAIN_S)

    async def _go_down(self, request: ControlledShutdownRequest) -> None:
        self._produce.is_closed = True
        self._controller.stop_racing()
        while not self._replicas.is_replicated:  # noqa: ASYNC110 - many logs, and it is soon over
            await asyncio.sleep(_PAUSE_S)
        while True:
            try:
                answer = await self._ask(request)
            except PeerError as error:
                log.info("the controller does not answer and may have stopped: %s", error)
                return
            if answer.error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                return
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        return await self._link.ask(request, ControlledShutdownResponse)
