"""One broker: starts everything, and stops it in the opposite order.

    1  store             a session; the cluster's id
    2  log directories   locked, identified, their logs loaded and recovered
    3  listeners         bound, so that the ports are known
    4  registration      `/brokers/ids/N`; from here on the controller knows of us
    5  controller        the race for it, and if it is won, a reign
    6  housekeeping      checkpoints, retention, flushes, idle connections

Nothing here decides anything; it connects those who do. All of the world comes in as `World`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek import __version__
from odradek.broker.admin.acls import ACL_AUTHORIZER, AclAdmin
from odradek.broker.admin.clients import ClientAdmin
from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.admin.logger_levels import ProcessLoggers
from odradek.broker.admin.topic_maker import ByController, InternalTopics, TopicMaker
from odradek.broker.admin.topics import TopicAdmin, store_errors_told
from odradek.broker.apis.allocate_producer_ids import allocate_producer_ids
from odradek.broker.apis.alter_partition import alter_partition
from odradek.broker.apis.controlled_shutdown import controlled_shutdown
from odradek.broker.apis.fetch import FetchApi
from odradek.broker.apis.list_offsets import log_ends
from odradek.broker.apis.metadata import MetadataApi
from odradek.broker.apis.produce import ProduceApi
from odradek.broker.apis.table import routes
from odradek.broker.apis.write_txn_markers import TxnMarkersApi
from odradek.broker.cluster.deleted_partitions import DeletedPartitions
from odradek.broker.cluster.features import FeatureShell
from odradek.broker.cluster.lifecycle import Lifecycle
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.peer_book import PeerBook
from odradek.broker.cluster.peers import VERSIONS, Peer, PeerError
from odradek.broker.cluster.topic_ids import draw_topic_id
from odradek.broker.controller.channels import (
    BrokerPort,
    ControllerChannels,
    ControlRequest,
    ControlResponse,
)
from odradek.broker.controller.election import ControllerElection
from odradek.broker.controller.journal import DecisionJournal
from odradek.broker.controller.link import ControllerLink
from odradek.broker.controller.log_ends import LogEnds
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts
from odradek.broker.coordinators.coordinator_log import CoordinatorTopic, coordinator_partition
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.txn_markers import TransactionMarkers
from odradek.broker.coordinators.txn_shell import TransactionMind, TransactionShell
from odradek.broker.coordinators.txn_verification import TransactionVerification
from odradek.broker.dynamic_config import DynamicConfig
from odradek.broker.gauges import publish
from odradek.broker.hand_over import HandOver
from odradek.broker.incidents import Incidents
from odradek.broker.orders import Orders
from odradek.broker.replication.isr_shell import IsrShell
from odradek.broker.replication.log_dir_moves import LogDirMoves
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_fetcher import FetchOptions, ReplicaFetcher
from odradek.broker.replication.replica_fetchers import ReplicaFetchers
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.serving.quotas import NoQuotas
from odradek.broker.serving.request_loop import RequestLoop
from odradek.broker.serving.session import ANONYMOUS, AllowAll
from odradek.broker.serving.tasks import Tasks
from odradek.broker.serving.worker import LoopWorker
from odradek.broker.settings import TopicSettingsBook
from odradek.broker.storage.cleaner_shell import InlineCleaner, LogCleaner
from odradek.broker.storage.housekeeping import Housekeeping, in_slices
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig, ConfigConflictError, InvalidConfigError
from odradek.coord.registry import next_producer_id_block
from odradek.coord.store import Check, MultiError
from odradek.group.machine import GroupMachine
from odradek.group.options import GroupOptions
from odradek.log.disk import StorageError
from odradek.log.log_config import LogHost
from odradek.log.logs import Logs
from odradek.model.cluster import Broker as RegisteredBroker
from odradek.model.cluster import EndPoint
from odradek.model.errors import ApiError, ErrorCode, StartupError
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.model.partition import TopicPartition
from odradek.net.connection import Connection
from odradek.net.server import ConnectionLimits, Server
from odradek.net.turns import Turns
from odradek.obs.metrics import BrokerMetrics
from odradek.record.compression import Codec
from odradek.replica.selector import LEADER, RACK_AWARE, Candidate, nearest
from odradek.replica.throttle import ReplicationQuota
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.wire.messages.alter_partition import AlterPartitionRequest
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
)
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from odradek.broker.http import Health

log = logging.getLogger(__name__)
SLOW_REQUEST_MS = 1_000
LOG_ENDS_TIMEOUT_S = 2.0  # a dead broker must not hold up an election that others can decide


class Broker:
    """One broker in one of its lives: made, started, stopped, never started again."""

    def __init__(
        self, config: BrokerConfig, world: World, *, on_fatal: Callable[[str], None]
    ) -> None:
        """`on_fatal` is told, once, why this broker cannot go on."""
        self.config = config
        self.state = "starting"  # recovering, running, shutting-down, stopped
        self.cluster_id = ""
        self.end_points: tuple[EndPoint, ...] = ()
        self._world = world
        self._on_fatal = on_fatal
        clock = world.clock
        self.tasks = Tasks(world.loop, self._task_failed)
        self.metrics = BrokerMetrics({int(key): api.name for key, api in APIS.items()})
        self.metadata = MetadataCache(world.loop, clock.monotonic_ms)
        self.settings = TopicSettingsBook(config)
        self.purgatory = Purgatory(world.loop, clock.monotonic_ms)
        self.logs = self._make_logs()
        self.replicas = ReplicaManager(
            broker_id=config.broker_id,
            logs=self.logs,
            clock=clock,
            settings=self.settings,
            lag_ms_max=config.replica_lag_time_max_ms,
            knows=lambda topic, index: self.metadata.partition(topic, index) is not None,
        )
        self._make_moves()
        self.settings.on_change = self.replicas.topic_config_changed
        self.journal = DecisionJournal(clock.wall_ms)
        self.lifecycle = Lifecycle(
            world.store,
            clock,
            world.random,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
        )
        self.controller = self._make_controller()
        self.topic_admin = TopicAdmin(
            store=world.store,
            metadata=self.metadata,
            controller=self.controller,
            config=lambda: self.config,
            clock=clock,
            random=world.random,
        )
        self.link = self._make_link()
        maker = TopicMaker(ByController(self.topic_admin, self.link.ask), self.tasks)
        self.metadata_api = MetadataApi(
            self.metadata,
            cluster_id=lambda: self.cluster_id,
            maker=maker if config.auto_create_topics_enable else None,
            announced_within_ms=config.zookeeper_session_timeout_ms,
        )
        self.internal_topics = InternalTopics(maker, lambda: self.config)
        self._make_features()
        self._make_groups()
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.dynamic_config = DynamicConfig(
            world.store, broker_id=config.broker_id, clock=clock, listener=_ConfigListener(self)
        )
        self.config_admin = ConfigAdmin(
            store=world.store,
            metadata=self.metadata,
            config=lambda: self.config,
            loggers=ProcessLoggers(),
            clock=clock,
            wait_handled=self.dynamic_config.wait_handled,
            why_not_listen=world.why_not_listen,
        )
        self.acls = AclAdmin(
            world.store, is_configured=bool(config.values["authorizer.class.name"])
        )
        self.clients = ClientAdmin(world.store)
        self.orders = Orders(
            self.replicas, self.metadata, learn=self.dynamic_config.learn, gone=self._topic_gone
        )
        self._make_replication()
        self._make_data_apis()
        self.requests = self._make_request_loop()
        self.server = Server(
            world.network,
            self.requests,
            limits_of(config, world.connections_max),
            now_ms=clock.monotonic_ms,
            soon=self.turns.soon,
        )
        self.cleaner = LogCleaner(
            self.logs,
            config=lambda: self.config,
            make=world.make_cleaner or (lambda: InlineCleaner(world.disk)),
            clock=clock,
            tasks=self.tasks,
        )
        self._make_housekeeping()
        publish(self)

    # ------------------------------------------------------------------------ assembly

    def _make_logs(self) -> Logs:
        world, config = self._world, self.config
        self.incidents = Incidents(world.clock.wall_ms)
        host = LogHost(
            disk=world.disk,
            clock=world.clock,
            call_later=world.loop.call_later,
            failed=lambda error: self.logs.failed(error),  # noqa: PLW0108 - made just below
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        return Logs(
            config.log_dirs,
            host,
            config_of=lambda topic: self.settings.topic(topic).log_config,
            lost=self._logs_lost,
        )

    def _make_controller(self) -> ControllerShell:
        world, config = self._world, self.config
        self._channels = ControllerChannels(
            broker_id=config.broker_id,
            listener=config.inter_broker_listener,
            connect=self._port_to,
            tasks=self.tasks,
        )
        return ControllerShell(
            store=world.store,
            election=ControllerElection(
                world.store,
                broker_id=config.broker_id,
                clock=world.clock,
            ),
            channels=self._channels,
            options=_ControllerOptions(lambda: self.config),
            journal=self.journal,
            draw_id=partial(draw_topic_id, world.random),
            log_ends=LogEnds(self._ask_log_ends, self.tasks),
        )

    def _make_link(self) -> ControllerLink:
        config = self.config

        async def alter(request: Message) -> Message:
            assert isinstance(request, AlterPartitionRequest)
            return await alter_partition(
                self.controller,
                request,
                VERSIONS[ApiKey.ALTER_PARTITION],
                announced=self.topic_name,
            )

        async def shut_down(request: Message) -> Message:
            assert isinstance(request, ControlledShutdownRequest)
            return await controlled_shutdown(self.controller, request)

        async def allocate(request: Message) -> Message:
            assert isinstance(request, AllocateProducerIdsRequest)
            return await allocate_producer_ids(self.draw_producer_ids, request)

        return ControllerLink(
            broker_id=config.broker_id,
            listener=config.inter_broker_listener,
            cache=self.metadata,
            own={
                AlterPartitionRequest: alter,
                ControlledShutdownRequest: shut_down,
                AllocateProducerIdsRequest: allocate,
            },
            make_peer=self._peer_at,
        )

    def _peer_at(self, host: str, port: int) -> Peer:
        return Peer(
            host,
            port,
            connector=self._world.network,
            clock=self._world.clock,
            client_id=f"broker-{self.config.broker_id}",
            timeout_ms=self.config.controller_socket_timeout_ms,
        )

    def _make_features(self) -> None:
        def guard() -> Check | None:
            is_controller = self.topic_admin.is_controller
            return self.topic_admin.check_reign().token if is_controller else None

        self.features = FeatureShell(
            self._world.store,
            guard=guard,
            transaction_version_max=lambda: self.config.odradek_transaction_version_max,
        )
        self.coordinator_counts = CoordinatorCounts(
            self._world.store,
            self.metadata,
            self.tasks,
            all_are_ours=lambda: self.features.all_are_ours,
        )

    def _make_groups(self) -> None:
        config, world = self.config, self._world
        options = GroupOptions(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            size_max=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            offset_metadata_chars_max=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )
        topic: CoordinatorTopic[GroupMachine] = CoordinatorTopic(
            GROUP_TOPIC,
            replicas=self.replicas,
            purgatory=self.purgatory,
            clock=world.clock,
            tasks=self.tasks,
            partition_count=partial(self.coordinator_counts.of, GROUP_TOPIC),
            make=lambda _index, _coordinator_epoch: GroupMachine(options),
            codec=lambda: Codec(config.offsets_topic_compression_codec),
        )
        self.groups = GroupShell(
            topic, world, commit_timeout_ms=lambda: self.config.offsets_commit_timeout_ms
        )
        self._coordinators: tuple[CoordinatorTopic[Any], ...] = (topic,)
        self.replicas.role_changed = self._role_changed

    def _role_changed(self, partition: Partition) -> None:
        for topic in self._coordinators:
            topic.role_changed(partition)

    def _make_moves(self) -> None:
        """Moves between directories, and how fast these and other replicas may be copied."""
        config = self.config
        windows = config.replication_quota_window_num
        window_ms = config.replication_quota_window_size_seconds * 1000
        self.leader_quota = ReplicationQuota(windows=windows, window_ms=window_ms)
        self.follower_quota = ReplicationQuota(windows=windows, window_ms=window_ms)
        self.move_quota = ReplicationQuota(
            windows=config.alter_log_dirs_replication_quota_window_num,
            window_ms=config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        )
        self._set_replication_rates()
        self.log_dir_moves = LogDirMoves(
            self.logs, self.replicas, self.tasks, self._world.clock, quota=self.move_quota
        )

    def _set_replication_rates(self) -> None:
        config = self.config
        self.leader_quota.rate = config.leader_replication_throttled_rate
        self.follower_quota.rate = config.follower_replication_throttled_rate
        self.move_quota.rate = config.replica_alter_log_dirs_io_max_bytes_per_second

    def _make_replication(self) -> None:
        config, world = self.config, self._world
        self.isr_changes = IsrShell(
            self.link,
            broker_id=config.broker_id,
            broker_epoch=lambda: self.orders.broker_epoch,
            tasks=self.tasks,
            stored=self.replicas.isr_stored,
            changed=self._isr_changed,
            gone=self.replicas.topic_is_gone,
        )
        options = FetchOptions(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            partition_bytes_max=config.replica_fetch_max_bytes,
            response_bytes_max=config.replica_fetch_response_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            timeout_ms=config.replica_socket_timeout_ms,
        )
        self.fetchers = ReplicaFetchers(
            self.metadata,
            listener=config.inter_broker_listener,
            make=lambda leader: ReplicaFetcher(
                leader,
                broker_id=config.broker_id,
                broker_epoch=lambda: self.orders.broker_epoch,
                connector=world.network,
                loop=world.loop,
                clock=world.clock,
                options=options,
                tasks=self.tasks,
                storage_failed=self.logs.failed,
                quota=self.follower_quota,
            ),
        )
        self.replicas.ask_for_isr = self.isr_changes.ask
        self.replicas.follow = self.fetchers.follow
        self.replicas.leave = self.fetchers.leave
        self.metadata.on_change = self._metadata_changed

    def _metadata_changed(self) -> None:
        self.features.look()  # there may be another controller
        self.coordinator_counts.metadata_changed()
        self.replicas.brokers_changed(frozenset(self.metadata.brokers))
        self.fetchers.metadata_changed()

    def _isr_changed(self, grew: bool) -> None:
        if grew:
            self.metrics.isr_expands += 1
        else:
            self.metrics.isr_shrinks += 1

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic that the controller has announced."""
        topic = self.metadata.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    def _make_data_apis(self) -> None:
        world, config = self._world, self.config
        quotas = NoQuotas()
        self.turns = Turns(world.loop, world.clock.monotonic_ms)
        self.produce = ProduceApi(
            self.replicas,
            self.purgatory,
            clock=world.clock,
            quotas=quotas,
            metrics=self.metrics,
            throttle=self._throttle,
            worker=world.worker or LoopWorker(world.loop),
            turns=self.turns,
        )
        self.produce.refused = self._note_refusal
        self._hand_over = HandOver(
            metadata=self.metadata,
            link=self.link,
            controller=self.controller,
            replicas=self.replicas,
            produce=self.produce,
            broker_epoch=lambda: self.orders.broker_epoch,
        )
        self.fetch = FetchApi(
            self.replicas,
            self.purgatory,
            quotas=quotas,
            metrics=self.metrics,
            randomness=world.random,
            now_ms=world.clock.monotonic_ms,
            throttle=self._throttle,
            knows_topic_id=lambda topic_id: self.metadata.topic_by_id(topic_id) is not None,
            session_slots=config.max_incremental_fetch_session_cache_slots,
            fetch_bytes_max=config.fetch_max_bytes,
            throttle_replicas=self.leader_quota,
            nearest=(self._nearest if config.replica_selector_class == RACK_AWARE else None),
            turns=self.turns,
        )

    def _nearest(self, partition: Partition, offset: int, rack: str) -> int | None:
        """The follower in the consumer's rack that has what it asks for, if it had better go."""
        leader, brokers = partition.leader, self.metadata.brokers
        assert leader is not None
        candidates = (
            Candidate(follower, brokers[follower].rack, progress.leo, progress.caught_up_ms)
            for follower, progress in leader.followers.items()
            if follower in leader.isr.committed
            and follower in brokers
            and progress.log_start_offset <= offset <= progress.leo
        )
        return nearest(candidates, leader_rack=self.config.broker_rack, client_rack=rack)

    def _make_transactions(self) -> None:
        config, world = self.config, self._world
        topic: CoordinatorTopic[TransactionMind] = CoordinatorTopic(
            TRANSACTION_TOPIC,
            replicas=self.replicas,
            purgatory=self.purgatory,
            clock=world.clock,
            tasks=self.tasks,
            partition_count=partial(self.coordinator_counts.of, TRANSACTION_TOPIC),
            make=lambda _index, _coordinator_epoch: TransactionMind(),
        )
        self.transactions = TransactionShell(
            topic,
            ids=self.producer_ids,
            clock=world.clock,
            config=lambda: self.config,
            call_later=world.loop.call_later,
        )
        self.txn_markers = TxnMarkersApi(
            self.replicas,
            self.purgatory,
            clock=world.clock,
            timeout_ms=config.request_timeout_ms,
        )
        self._marker_peers = self._peer_book()
        self.transactions.markers = TransactionMarkers(
            broker_id=config.broker_id,
            cache=self.metadata,
            peers=self._marker_peers,
            own=self.txn_markers.write,
            written=self.transactions.markers_written,
            deleted_among=DeletedPartitions(world.store, self.metadata, world.clock).among,
            tasks=self.tasks,
            clock=world.clock,
        )
        self._verification_peers = self._peer_book()
        self.verification = TransactionVerification(
            broker_id=config.broker_id,
            cache=self.metadata,
            counts=self.coordinator_counts,
            peers=self._verification_peers,
            own=self.transactions,
            replicas=self.replicas,
            is_enabled=lambda: self.config.transaction_partition_verification_enable,
            tasks=self.tasks,
            clock=world.clock,
        )
        self.produce.verification = self.verification.ask
        self._set_verification()
        self.groups.transactions = self.verification
        self.txn_markers.offsets_ended = self.groups.transaction_ended
        self._coordinators = (*self._coordinators, topic)

    def _set_verification(self) -> None:
        enabled = self.config.transaction_partition_verification_enable
        self.produce.verifies_version_1 = enabled

    def _peer_book(self) -> PeerBook:
        return PeerBook(
            self.metadata, listener=self.config.inter_broker_listener, make_peer=self._peer_at
        )

    def offsets_partition_of(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` with a group's offsets; None, not known yet."""
        count = self.coordinator_counts.of(GROUP_TOPIC)
        if count:
            return coordinator_partition(group_id, count)
        if self.metadata.topic(GROUP_TOPIC) is None:
            self.internal_topics.make(GROUP_TOPIC)
        return None

    def _make_housekeeping(self) -> None:
        config = self.config
        self.housekeeping = Housekeeping(self.logs, self.server, self._world.clock, self.tasks)
        self.housekeeping.also(config.replica_lag_time_max_ms // 2, self.replicas.review_isrs)
        self.housekeeping.also(config.replica_fetch_wait_max_ms, self.fetchers.check_silence)
        self.housekeeping.also(
            config.offsets_retention_check_interval_ms, self.groups.expire_offsets
        )
        self.housekeeping.also(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.transactions.abort_timed_out,
        )
        self.housekeeping.also(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transactions.forget_expired,
        )

    def _make_request_loop(self) -> RequestLoop:
        self._make_transactions()
        config = self.config
        return RequestLoop(
            routes(self),
            authorizer=AllowAll(),
            quotas=NoQuotas(),
            metrics=self.metrics.requests,
            tasks=self.tasks,
            turns=self.turns,
            security_protocols={
                point.listener: point.security_protocol for point in config.listeners
            },
            inter_broker_listener=config.inter_broker_listener,
            now_ms=self._world.clock.monotonic_ms,
            call_later=self._world.loop.call_later,
            slow_ms=SLOW_REQUEST_MS,
            incidents=self.incidents,
        )

    def _port_to(self, broker: RegisteredBroker) -> BrokerPort:
        if broker.id == self.config.broker_id:
            return _OwnPort(self.orders)
        point = broker.end_point(self.config.inter_broker_listener)
        if point is None:
            return _NoPort(broker.id, self.config.inter_broker_listener)
        return self._peer_at(point.host, point.port)

    async def _ask_log_ends(
        self, broker_id: int, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        if broker_id == self.config.broker_id:
            return log_ends(self.logs, request)
        broker = self.metadata.brokers.get(broker_id)
        point = broker.end_point(self.config.inter_broker_listener) if broker else None
        if point is None:
            raise PeerError(f"broker {broker_id} is not known, or has no listener for brokers")
        peer = self._peer_at(point.host, point.port)
        try:
            async with asyncio.timeout(LOG_ENDS_TIMEOUT_S):
                answer = await peer.ask(request)
        finally:
            peer.close()
        assert isinstance(answer, ListOffsetsResponse)
        return answer

    def _note_refusal(self, connection: Connection, what: str) -> None:
        self.requests.note_refusal(connection, what)

    def _throttle(self, connection: Connection, throttle_ms: int) -> None:
        self.requests.throttle(connection, throttle_ms)

    # -------------------------------------------------------------------------- life

    async def start(self) -> None:
        """Start; when this returns, requests are served.

        Raises:
            StartupError: why it cannot, and what to do.
        """
        config = self.config
        self._refuse_what_is_not_there()
        for name in config.unknown():
            log.warning("%s is not an option of Kafka: it is kept, and does nothing", name)
        for name in config.without_effect():
            log.warning("%s is set, and has no effect here", name)
        await self.lifecycle.open()
        self.cluster_id = await self.lifecycle.cluster_id()
        await self.lifecycle.persist(self.dynamic_config.load)
        self.state = "recovering"
        opening = self.logs.opening(broker_id=config.broker_id, cluster_id=self.cluster_id)
        await in_slices(opening, self._world.clock)
        for path, directory in self.logs.directories.items():
            if directory.strays:
                log.info(
                    "%d logs in %s are set aside (their names end in -stray): nothing reads them; "
                    "remove them when nobody needs their records",
                    directory.strays,
                    path,
                )
        await self.lifecycle.persist(self.features.learn)
        await self.lifecycle.persist(self.coordinator_counts.load)
        self.end_points = await self._listen()
        me = RegisteredBroker(
            id=config.broker_id, end_points=self.end_points, rack=config.broker_rack
        )
        self.lifecycle.on_lost = self.controller.session_lost
        self.lifecycle.on_registered = self._registered
        clean_epoch = self.logs.clean_epoch
        self._registered(
            await self.lifecycle.persist(
                lambda: self.lifecycle.register(
                    me,
                    clean_epoch=clean_epoch,
                    is_empty=self.logs.is_empty,
                    new_directories=self.logs.new_directories,
                )
            )
        )
        self.tasks.start(self.controller.run(), "controller")
        self.tasks.start(self.lifecycle.keep_registered(me), "registration")
        self.tasks.start(self.features.run(), "features")
        self.tasks.start(self.dynamic_config.run(), "dynamic configuration")
        # Whoever asks now is told at least of this broker.
        if not await self.metadata.wait_for(
            lambda: config.broker_id in self.metadata.brokers,
            config.zookeeper_session_timeout_ms,
        ):
            log.warning("no controller has announced this broker yet")
        self.log_dir_moves.resume()
        self.housekeeping.start(config)
        self.cleaner.start()
        self.state = "running"

    async def stop(self, *, together_with: Collection[int] = ()) -> None:
        """Stop cleanly, whatever was reached in starting.

        `together_with` are the brokers that are being stopped at the same time.
        """
        self.state = "shutting-down"
        if self.end_points:
            await self._hand_over.run(self.config, together_with)
        self.server.stop_listening()
        self.housekeeping.stop()
        self.fetchers.stop()
        self.link.close()
        self._marker_peers.close()
        self._verification_peers.close()
        await self.controller.stop()
        self.replicas.stop_all()
        self.purgatory.expire_all()
        self.server.close_connections()
        await self.tasks.cancel_all()
        closed = self._world.loop.create_future()
        self.logs.close(lambda: closed.set_result(None))
        await closed
        await self._world.store.close()
        self.state = "stopped"

    def _refuse_what_is_not_there(self) -> None:
        for point in self.config.listeners:
            if point.security_protocol != "PLAINTEXT":
                raise StartupError(
                    f"listener {point.listener} has security protocol {point.security_protocol}: "
                    "this version serves PLAINTEXT only"
                )
        selector = self.config.replica_selector_class
        if selector not in (None, "", LEADER, RACK_AWARE):
            raise StartupError(
                f"replica.selector.class={selector}: must be unset, {LEADER} or {RACK_AWARE}"
            )
        self._refuse_rights_that_nobody_minds()

    def _refuse_rights_that_nobody_minds(self) -> None:
        authorizer = self.config.values["authorizer.class.name"]
        if not authorizer:
            return
        if authorizer != ACL_AUTHORIZER:
            raise StartupError(
                f"authorizer.class.name={authorizer}: this version knows {ACL_AUTHORIZER} alone"
            )
        # Everybody is anonymous on the listeners there are, so this makes everybody a super user:
        # then to enforce nothing is what Kafka does, too.
        if ANONYMOUS not in str(self.config.values["super.users"]).split(";"):
            raise StartupError(
                "authorizer.class.name is set: this version stores and tells ACLs, but enforces "
                "none, and to start as if it did would leave everything open; remove the option, "
                f"or accept that with super.users={ANONYMOUS}"
            )
        log.warning(
            "authorizer.class.name is set: ACLs are stored and told, but this version does NOT "
            "ENFORCE them; everybody who reaches a listener may do everything"
        )

    async def _listen(self) -> tuple[EndPoint, ...]:
        """Open every listener. Returns what is advertised, with the ports that were got."""
        ports = {point.listener: await self.server.listen(point) for point in self.config.listeners}
        return tuple(
            replace(point, port=point.port or ports[point.listener])
            for point in self.config.advertised_listeners
        )

    def _registered(self, broker_epoch: int) -> None:
        self.orders.broker_epoch = self.logs.broker_epoch = broker_epoch
        self.controller.session_opened()
        self.dynamic_config.session_opened()
        self.features.look()

    def health(self) -> "Health":
        """How this broker is, as `/health` tells it."""
        from odradek.broker.http import Health  # noqa: PLC0415 - loaded with the HTTP server

        return Health(
            state=self.state,
            version=__version__,
            broker_id=self.config.broker_id,
            cluster_id=self.cluster_id or None,
            controller_id=self.metadata.controller_id if self.metadata.brokers else None,
            listeners=tuple(point.connection_string for point in self.end_points),
            offline_log_dirs=tuple(
                path for path in self.logs.directories if self.logs.is_offline(path)
            ),
        )

    # ---------------------------------------------------------------------- what befalls

    def set_config(self, config: BrokerConfig) -> None:
        """The dynamic part of the configuration is another one."""
        before, self.config = self.config, config
        allowed = config.topic_defaults.unclean_leader_election_enable
        if allowed and not before.topic_defaults.unclean_leader_election_enable:
            self.controller.unclean_allowed(None)
        self.settings.set_broker(config)
        self.server.limits = limits_of(config, self._world.connections_max)
        self.replicas.all_configs_changed()
        self._set_replication_rates()
        self._set_verification()
        self.logs.set_producer_id_expiration(config.producer_id_expiration_ms)

    def _logs_lost(self, directory: str, lost: list[TopicPartition], error: StorageError) -> None:
        log.error(
            "log directory %s is offline, and %d logs with it: %s", directory, len(lost), error
        )
        self.incidents.directory_failed(directory, str(error))
        self.replicas.logs_lost(lost)
        if not self.logs.online_directories:
            self._on_fatal(f"the last of log.dirs has failed: {error}")
        elif self.orders.broker_epoch >= 0:
            told = self.lifecycle.tell_log_dir_failed(self.config.broker_id)
            self.tasks.start(told, "notice of a failed log directory")

    def _topic_gone(self, topic: str) -> None:
        self.settings.set_topic(topic, {})
        self.metrics.topic_deleted(topic)
        self.tasks.start(self.groups.topics_deleted([topic]), f"forget positions in {topic}")

    async def draw_producer_ids(self, broker_id: int) -> tuple[int, int]:
        """As controller: the next block of producer ids, its first id and how many.

        Raises:
            ApiError: this broker is not controller, or the store did not answer.
        """
        guard = self.topic_admin.check_reign().token
        try:
            with store_errors_told():
                block = await next_producer_id_block(self._world.store, broker_id, guard=guard)
        except MultiError as error:  # another reigns, and nobody has told us yet
            raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        return block.first_producer_id, block.end_producer_id - block.first_producer_id

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        try:
            answer = await self.link.ask(
                AllocateProducerIdsRequest(
                    broker_id=self.config.broker_id, broker_epoch=self.orders.broker_epoch
                )
            )
        except PeerError as error:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        assert isinstance(answer, AllocateProducerIdsResponse)
        if answer.error_code:
            # Kafka's word for "no ids just now": every client tries again.
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return answer.producer_id_start, answer.producer_id_len

    def _task_failed(self, name: str, error: BaseException) -> None:
        log.error("%s failed", name, exc_info=error)
        if name in ("controller", "registration"):
            self._on_fatal(f"{name} failed: {error!r}")


class _ConfigListener:
    """What changes with the options in the store."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        try:
            self._broker.settings.set_topic(topic, overrides)
        except InvalidConfigError as error:
            self.note(f"topic {topic} keeps its options: {error}")
            return
        if overrides.get("unclean.leader.election.enable", "").strip().lower() == "true":
            self._broker.controller.unclean_allowed(topic)

    def broker_config(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> None:
        broker = self._broker
        try:
            config = broker.config.with_dynamic(dynamic=dynamic, dynamic_default=dynamic_default)
        except (InvalidConfigError, ConfigConflictError) as error:
            self.note(f"the broker keeps its options: {error}")
            return
        # Equal values do not make equal layers, which DescribeConfigs and AlterConfigs go by.
        if (config.dynamic, config.dynamic_default, config.values) != (
            broker.config.dynamic,
            broker.config.dynamic_default,
            broker.config.values,
        ):
            broker.set_config(config)

    def note(self, text: str) -> None:
        log.warning("%s", text)


class _ControllerOptions:
    """The options a controller goes by, as they are at the moment."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config

    @property
    def deletion_enabled(self) -> bool:
        return self._config().delete_topic_enable

    @property
    def isr_min(self) -> int:
        return self._config().topic_defaults.min_insync_replicas

    @property
    def unclean_allowed(self) -> bool:
        return self._config().topic_defaults.unclean_leader_election_enable

    @property
    def rebalance_enabled(self) -> bool:
        return self._config().auto_leader_rebalance_enable

    @property
    def rebalance_interval_seconds(self) -> int:
        return self._config().leader_imbalance_check_interval_seconds

    @property
    def rebalance_percentage(self) -> int:
        return self._config().leader_imbalance_per_broker_percentage


class _OwnPort:
    """The controller's way to the broker it runs on."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    async def send(self, request: ControlRequest) -> ControlResponse:
        if isinstance(request, LeaderAndIsrRequest):
            return await self._orders.leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return await self._orders.stop_replica(request)
        return await self._orders.update_metadata(request)


class _NoPort:
    """The way to a broker that has no listener for other brokers."""

    def __init__(self, broker_id: int, listener: str) -> None:
        self._broker_id = broker_id
        self._listener = listener

    async def send(self, request: ControlRequest) -> ControlResponse:
        del request
        raise ConnectionError(f"broker {self._broker_id} has no listener {self._listener}")


def limits_of(config: BrokerConfig, files_max: int) -> ConnectionLimits:
    """How many may connect, and how much they may send."""
    inside = config.inter_broker_listener
    return ConnectionLimits(
        connections_max=config.max_connections,
        per_ip_max=config.max_connections_per_ip,
        per_ip_overrides=config.max_connections_per_ip_overrides,
        idle_ms_max=config.connections_max_idle_ms,
        frame_bytes_max=config.socket_request_max_bytes,
        queued_bytes_max=config.queued_max_request_bytes,
        waiting_bytes_max=config.odradek_connection_responses_max_bytes,
        memory_bytes_max=config.odradek_connections_memory_max_bytes,
        files_max=files_max,
        protected_listener=inside if len(config.listeners) > 1 else None,
    )
