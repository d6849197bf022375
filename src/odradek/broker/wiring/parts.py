"""The parts of one broker, made in the order in which they need each other.

Each part gets its collaborators when it is made. If two need each other, the earlier one gets a
function that looks the later one up when it is called. This module makes no decisions.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek import __version__
from odradek.broker.admin.clients import ClientAdmin
from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.admin.logger_levels import ProcessLoggers
from odradek.broker.admin.topic_maker import ByController, InternalTopics, TopicMaker
from odradek.broker.admin.topics import TopicAdmin
from odradek.broker.apis.fetch import FetchApi
from odradek.broker.apis.metadata import MetadataApi
from odradek.broker.apis.old_fetch import OLD_CALLS
from odradek.broker.apis.produce import ProduceApi
from odradek.broker.apis.table import routes
from odradek.broker.apis.write_txn_markers import TxnMarkersApi
from odradek.broker.cluster.deleted_partitions import DeletedPartitions
from odradek.broker.cluster.features import FeatureShell
from odradek.broker.cluster.lifecycle import Lifecycle
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.cluster.store_age import StoreComparison
from odradek.broker.cluster.topic_ids import draw_topic_id
from odradek.broker.controlled_shutdown import ControlledShutdown
from odradek.broker.controller.channels import ControllerChannels
from odradek.broker.controller.election import ControllerElection
from odradek.broker.controller.journal import DecisionJournal
from odradek.broker.controller.log_end_reader import LogEndReader
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.controller_requests import ControllerRequests
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts
from odradek.broker.coordinators.coordinator_log import CoordinatorTopic, coordinator_partition
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.coordinators.leader_ends import LeaderEnds
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.stored_offsets import StoredOffsets
from odradek.broker.coordinators.txn_markers import TransactionMarkers
from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.coordinators.txn_verification import TransactionVerification
from odradek.broker.dynamic_config import DynamicConfig
from odradek.broker.gauges import publish
from odradek.broker.incidents import Incidents
from odradek.broker.replication.current_leaders import CurrentLeaders
from odradek.broker.replication.fetching import last_fetches
from odradek.broker.replication.isr_shell import IsrShell
from odradek.broker.replication.log_dir_moves import LogDirMoves
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_fetcher import ReplicaFetcher
from odradek.broker.replication.replica_fetchers import ReplicaFetchers
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.serving.request_loop import RequestLoop
from odradek.broker.serving.scram_credentials import ScramCredentials
from odradek.broker.serving.tasks import Tasks
from odradek.broker.serving.tls_listeners import RELOAD_MS, uses_tls
from odradek.broker.serving.worker import LoopWorker
from odradek.broker.settings import TopicSettingsBook
from odradek.broker.storage.cleaner_shell import InlineCleaner, LogCleaner
from odradek.broker.storage.housekeeping import Housekeeping
from odradek.broker.wiring.acls import acls_of
from odradek.broker.wiring.authentication import (
    authentication_of,
    connector_of,
    tls_listeners_of,
)
from odradek.broker.wiring.config_changes import ConfigChanges
from odradek.broker.wiring.delegation_tokens import delegation_tokens_of
from odradek.broker.wiring.neighbours import Neighbours
from odradek.broker.wiring.options import (
    CurrentControllerOptions,
    client_quotas_of,
    fetch_options_of,
    group_options_of,
    limits_of,
    log_host_of,
    replication_quotas_of,
    security_protocols_of,
    server_of,
)
from odradek.broker.wiring.own_controller import (
    ProducerIdBlocks,
    allocate_block,
    link_of,
    recorder_of,
)
from odradek.broker.world import World
from odradek.config.broker import BrokerConfig
from odradek.coord.store import Check
from odradek.group.machine import GroupMachine
from odradek.log.disk import StorageError
from odradek.log.logs import Logs
from odradek.model.clock import MonotonicMs
from odradek.model.cluster import EndPoint
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.model.partition import TopicPartition
from odradek.net.turns import Turns
from odradek.obs.metrics import BrokerMetrics
from odradek.record.compression import Codec
from odradek.replica.leader import LeaderReplica
from odradek.replica.selector import RACK_AWARE, nearest
from odradek.txn.machine import TransactionMachine
from odradek.wire.api_keys import API_NAMES

if TYPE_CHECKING:
    from odradek.broker.http import Health

log = logging.getLogger(__name__)
SLOW_REQUEST_MS: Final = 1_000


class BrokerParts:
    """What one broker consists of. `Broker` starts and stops it."""

    controller: ControllerShell  # this one, and those below, are called by earlier parts
    controller_requests: ControllerRequests
    fetchers: ReplicaFetchers
    store_comparison: StoreComparison | None = None  # once the logs are loaded
    groups: GroupShell
    isr_changes: IsrShell
    replicas: ReplicaManager
    requests: RequestLoop
    transactions: TransactionShell

    def __init__(
        self, config: BrokerConfig, world: World, *, on_fatal: Callable[[str], None]
    ) -> None:
        """`on_fatal` is called once, with the reason, if this broker has to stop."""
        self.config = config
        self.state = "starting"  # recovering, running, shutting-down, stopped
        self.cluster_id = ""
        self.end_points: tuple[EndPoint, ...] = ()
        self._world = world
        self._on_fatal = on_fatal
        self._make_base()
        self._make_replicas()
        self._make_controller()
        self._make_admin()
        self._make_transactions()
        self._make_groups()
        self._make_replication()
        self._make_data_apis()
        self._make_server()
        self._make_background()
        self.group_ends = LeaderEnds(self._neighbours.ask_log_ends, self.metadata, self.tasks)
        publish(self, world.store)

    def _make_base(self) -> None:
        world, config, clock = self._world, self.config, self._world.clock
        self.tasks = Tasks(world.loop, self.task_failed)
        self.metrics = BrokerMetrics(API_NAMES, monotonic_ms=clock.monotonic_ms)
        self.incidents = Incidents(clock.wall_ms)
        self.turns = Turns(world.loop, clock.monotonic_ms)
        self.tls = tls_listeners_of(world, self.turns, lambda: self.requests)
        self.purgatory = Purgatory(world.loop, clock.monotonic_ms, world.is_alone)
        self.metadata = MetadataCache(
            world.loop, clock.monotonic_ms, config.odradek_metadata_hold_ms, self._metadata_changed
        )
        self.settings = TopicSettingsBook(
            config, changed=lambda topic: self.replicas.topic_config_changed(topic)
        )
        self.logs = Logs(
            config.log_dirs,
            log_host_of(config, world, self, lambda error: self.logs.failed(error)),
            config_of=lambda topic: self.settings.topic(topic).log_config,
            lost=self._logs_lost,
        )
        self._neighbours = Neighbours(
            world,
            self.metadata,
            connector=connector_of(lambda: self.config, world, self.incidents, self.tls),
            config=lambda: self.config,
            logs=self.logs,
            own=lambda: self.controller_requests,
        )

    def _make_replicas(self) -> None:
        config, world = self.config, self._world
        self.replicas = ReplicaManager(
            broker_id=config.broker_id,
            logs=self.logs,
            clock=world.clock,
            settings=self.settings,
            lag_ms_max=config.replica_lag_time_max_ms,
            knows=lambda topic, index: self.metadata.partition(topic, index) is not None,
            ask_for_isr=lambda partition, isr: self.isr_changes.ask(partition, isr),
            follow=lambda partition: self.fetchers.follow(partition),
            leave=lambda partition: self.fetchers.leave(partition),
            role_changed=self._role_changed,
        )
        self.scram_credentials = ScramCredentials()
        self.client_quotas = client_quotas_of(config, world)
        self.quotas = world.quotas or self.client_quotas
        self.leader_quota, self.follower_quota, self.move_quota = replication_quotas_of(config)
        self._set_replication_rates()
        self.log_dir_moves = LogDirMoves(
            self.logs, self.replicas, self.tasks, world.clock, quota=self.move_quota
        )

    def _make_controller(self) -> None:
        world, config = self._world, self.config
        self.journal = DecisionJournal(world.clock.wall_ms)
        self.lifecycle = Lifecycle(
            world.store,
            world.clock,
            world.random,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            lost=lambda: self.controller.session_lost(),
            registered=self._registered,
        )
        self.controller = ControllerShell(
            store=world.store,
            election=ControllerElection(world.store, broker_id=config.broker_id, clock=world.clock),
            channels=ControllerChannels(
                broker_id=config.broker_id,
                listener=config.inter_broker_listener,
                connect=self._neighbours.port_to,
                tasks=self.tasks,
            ),
            options=CurrentControllerOptions(lambda: self.config),
            journal=self.journal,
            draw_id=partial(draw_topic_id, world.random),
            log_ends=LogEndReader(self._neighbours.ask_log_ends, self.tasks),
            recorder=recorder_of(config, world, note=self.journal.note),
        )
        self.topic_admin = TopicAdmin(
            store=world.store,
            metadata=self.metadata,
            controller=self.controller,
            config=lambda: self.config,
            clock=world.clock,
            random=world.random,
        )
        blocks = ProducerIdBlocks(world.store, self.topic_admin, self.controller)
        self.draw_producer_ids = blocks.draw
        self.link = link_of(
            config,
            metadata=self.metadata,
            controller=self.controller,
            make_peer=self._neighbours.peer_at,
            blocks=blocks,
        )
        self.producer_ids = ProducerIds(
            lambda: allocate_block(
                self.link, broker_id=config.broker_id, broker_epoch=self.broker_epoch
            )
        )

    def _make_admin(self) -> None:
        world, config = self._world, self.config
        maker = TopicMaker(ByController(self.topic_admin, self.link.ask), self.tasks)
        self.metadata_api = MetadataApi(
            self.metadata,
            cluster_id=lambda: self.cluster_id,
            maker=maker if config.auto_create_topics_enable else None,
            announced_within_ms=config.zookeeper_session_timeout_ms,
            store=world.store,
            probe=lambda leaders: self.fetchers.probe(leaders),
        )
        self.internal_topics = InternalTopics(maker, lambda: self.config)
        self.features = FeatureShell(
            world.store,
            guard=self._controller_guard,
            transaction_version_max=lambda: self.config.odradek_transaction_version_max,
        )
        self.coordinator_counts = CoordinatorCounts(
            world.store,
            self.metadata,
            self.tasks,
            all_are_ours=lambda: self.features.all_are_ours,
        )
        self.dynamic_config = DynamicConfig(
            world.store, broker_id=config.broker_id, clock=world.clock, listener=ConfigChanges(self)
        )
        self.config_admin = ConfigAdmin(
            store=world.store,
            metadata=self.metadata,
            config=lambda: self.config,
            loggers=ProcessLoggers(),
            clock=world.clock,
            wait_handled=self.dynamic_config.wait_handled,
            why_not_listen=world.why_not_listen,
            check_tls=self.tls.check,
        )
        self.acl_changes, self.acls = acls_of(config, world, self.incidents)
        self.delegation_tokens = delegation_tokens_of(config, world, self.topic_admin)
        self.clients = ClientAdmin(world.store)
        self.controller_requests = ControllerRequests(
            self.replicas,
            self.metadata,
            stored=self.dynamic_config,
            deleted=self._topic_deleted,
        )

    def _make_transactions(self) -> None:
        config, world = self.config, self._world
        self.transaction_topic: CoordinatorTopic[TransactionMachine] = CoordinatorTopic(
            TRANSACTION_TOPIC,
            replicas=self.replicas,
            purgatory=self.purgatory,
            clock=world.clock,
            tasks=self.tasks,
            partition_count=partial(self.coordinator_counts.of, TRANSACTION_TOPIC),
            make=TransactionMachine,
        )
        self.txn_markers = TxnMarkersApi(
            self.replicas,
            self.purgatory,
            clock=world.clock,
            timeout_ms=config.request_timeout_ms,
            offsets_ended=lambda index, producer_id, *, committed: self.groups.transaction_ended(
                index, producer_id, committed=committed
            ),
        )
        self.marker_peers = self._neighbours.peer_book()
        self.transactions = TransactionShell(
            self.transaction_topic,
            markers=TransactionMarkers(
                broker_id=config.broker_id,
                cache=self.metadata,
                peers=self.marker_peers,
                own=lambda request: self.txn_markers.write(request),
                written=lambda *what: self.transactions.markers_written(*what),
                deleted_among=DeletedPartitions(world.store, self.metadata, world.clock).among,
                tasks=self.tasks,
                clock=world.clock,
            ),
            ids=self.producer_ids,
            clock=world.clock,
            config=lambda: self.config,
            call_later=world.loop.call_later,
        )
        self.verification_peers = self._neighbours.peer_book()
        self.verification = TransactionVerification(
            broker_id=config.broker_id,
            cache=self.metadata,
            counts=self.coordinator_counts,
            peers=self.verification_peers,
            own=self.transactions,
            replicas=self.replicas,
            is_enabled=lambda: self.config.transaction_partition_verification_enable,
            tasks=self.tasks,
            clock=world.clock,
        )

    def _make_groups(self) -> None:
        config, world = self.config, self._world
        self.group_topic: CoordinatorTopic[GroupMachine] = CoordinatorTopic(
            GROUP_TOPIC,
            replicas=self.replicas,
            purgatory=self.purgatory,
            clock=world.clock,
            tasks=self.tasks,
            partition_count=partial(self.coordinator_counts.of, GROUP_TOPIC),
            make=partial(GroupMachine, group_options_of(config)),
            codec=lambda: Codec(config.offsets_topic_compression_codec),
        )
        self.groups = GroupShell(
            self.group_topic,
            world,
            commit_timeout_ms=lambda: self.config.offsets_commit_timeout_ms,
            transactions=self.verification,
        )
        self.stored_offsets = StoredOffsets(world.store, config.offset_metadata_max_bytes)

    def _make_replication(self) -> None:
        config, world = self.config, self._world
        self.isr_changes = IsrShell(
            self.link,
            broker_id=config.broker_id,
            broker_epoch=lambda: self.broker_epoch,
            tasks=self.tasks,
            stored=self.replicas.isr_stored,
            changed=self.metrics.isr_changed,
            topic_deleted=lambda partition: self.replicas.topic_deleted(partition),
        )
        self.fetchers = ReplicaFetchers(
            self.metadata,
            listener=config.inter_broker_listener,
            make=lambda leader: ReplicaFetcher(
                leader,
                broker_id=config.broker_id,
                broker_epoch=lambda: self.broker_epoch,
                connector=self._neighbours.connector,
                loop=world.loop,
                clock=world.clock,
                options=fetch_options_of(config),
                tasks=self.tasks,
                storage_failed=self.logs.failed,
                quota=self.follower_quota,
            ),
        )

    def _make_data_apis(self) -> None:
        world, config = self._world, self.config
        worker = world.worker or LoopWorker(world.loop)
        self.produce = ProduceApi(
            self.replicas,
            self.purgatory,
            clock=world.clock,
            quotas=self.quotas,
            metrics=self.metrics,
            throttle=lambda connection, ms: self.requests.throttle(connection, ms),
            worker=worker,
            turns=self.turns,
            leaders=CurrentLeaders(self.replicas, self.metadata, config.broker_id),
            verification=self.verification.ask,
        )
        self._set_verification()
        self.controlled_shutdown = ControlledShutdown(
            metadata=self.metadata,
            link=self.link,
            controller=self.controller,
            replicas=self.replicas,
            produce=self.produce,
            broker_epoch=lambda: self.broker_epoch,
        )
        self.fetch = FetchApi(
            self.replicas,
            self.purgatory,
            quotas=self.quotas,
            metrics=self.metrics,
            randomness=world.random,
            monotonic_ms=world.clock.monotonic_ms,
            throttle=lambda connection, ms: self.requests.throttle(connection, ms),
            metadata=self.metadata,
            broker_epochs=lambda: self.features.broker_epochs,
            config=config,
            throttle_replicas=self.leader_quota,
            nearest=(self._nearest if config.replica_selector_class == RACK_AWARE else None),
            turns=self.turns,
            worker=worker,
            old_calls=OLD_CALLS,
        )

    def _make_server(self) -> None:
        world, config = self._world, self.config
        self.requests = RequestLoop(
            routes(self),
            authorizer=self.acl_changes.authorizer if self.acl_changes else world.authorizer,
            quotas=self.quotas,
            metrics=self.metrics.requests,
            tasks=self.tasks,
            turns=self.turns,
            security_protocols=security_protocols_of(config),
            inter_broker_listener=config.inter_broker_listener,
            monotonic_ms=world.clock.monotonic_ms,
            call_later=world.loop.call_later,
            slow_ms=SLOW_REQUEST_MS,
            incidents=self.incidents,
        )
        self.server = server_of(config, world, self.requests, self.turns, self.tls)
        self.authentication = authentication_of(world, self.server, self.requests, self.tls)

    def _make_background(self) -> None:
        world, config = self._world, self.config
        self.cleaner = LogCleaner(
            self.logs,
            config=lambda: self.config,
            make=world.make_cleaner or (lambda: InlineCleaner(world.disk)),
            clock=world.clock,
            tasks=self.tasks,
        )
        self.housekeeping = Housekeeping(self.logs, self.server, world.clock, self.tasks)
        also = self.housekeeping.also
        also(config.replica_lag_time_max_ms // 2, self.replicas.review_isrs)
        also(config.replica_fetch_wait_max_ms, self.fetchers.check_silence)
        also(config.offsets_retention_check_interval_ms, self.groups.expire_offsets)
        also(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.transactions.abort_timed_out,
        )
        also(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transactions.remove_expired,
        )
        if uses_tls(config):
            also(RELOAD_MS, self.tls.reload)
        if self.delegation_tokens is not None:
            check_ms = config.delegation_token_expiry_check_interval_ms
            also(check_ms, self.delegation_tokens.remove_expired)

    # ------------------------------------------------------------- between the parts

    def last_fetches(self) -> dict[int, MonotonicMs]:
        """When each follower with a fetch session here sent its last fetch."""
        return last_fetches(self.fetch.sessions)

    def health(self) -> "Health":
        """State, version and listeners, as `/health` answers."""
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

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of the present registration; -1 before the first."""
        return self.controller_requests.broker_epoch

    def offsets_partition_of(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` for a group; None: it is not known yet."""
        count = self.coordinator_counts.of(GROUP_TOPIC)
        if count:
            return coordinator_partition(group_id, count)
        if self.metadata.topic(GROUP_TOPIC) is None:
            self.internal_topics.make(GROUP_TOPIC)
        return None

    def set_config(self, config: BrokerConfig) -> None:
        """Use other options from now on, in all parts."""
        before, self.config = self.config, config
        allowed = config.topic_defaults.unclean_leader_election_enable
        if allowed and not before.topic_defaults.unclean_leader_election_enable:
            self.controller.unclean_allowed(None)
        self.settings.set_broker(config)
        self.server.limits = limits_of(config, self._world.connections_max)
        self.tls.reconfigure(config)
        self.replicas.all_configs_changed()
        self._set_replication_rates()
        self._set_verification()
        self.logs.set_producer_id_expiration(config.producer_id_expiration_ms)

    def _set_replication_rates(self) -> None:
        config = self.config
        self.leader_quota.rate = config.leader_replication_throttled_rate
        self.follower_quota.rate = config.follower_replication_throttled_rate
        self.move_quota.rate = config.replica_alter_log_dirs_io_max_bytes_per_second

    def _set_verification(self) -> None:
        self.produce.verifies_version_1 = self.config.transaction_partition_verification_enable

    def _controller_guard(self) -> Check | None:
        """What a write to the store checks, so that only the elected controller writes."""
        return self.topic_admin.check_term().token if self.topic_admin.is_controller else None

    def _registered(self, broker_epoch: int) -> None:
        self.controller_requests.broker_epoch = self.logs.broker_epoch = broker_epoch
        self.controller.session_opened()
        self.dynamic_config.session_opened()
        for follower in (self.acl_changes, self.delegation_tokens):
            if follower is not None:
                follower.session_opened()
        self.features.look()

    def _role_changed(self, partition: Partition) -> None:
        self.group_topic.role_changed(partition)
        self.transaction_topic.role_changed(partition)

    def _metadata_changed(self) -> None:
        self.features.look()  # the controller may have changed
        self.coordinator_counts.metadata_changed()
        self.replicas.brokers_changed(frozenset(self.metadata.brokers))
        self.fetchers.metadata_changed()

    def _nearest(self, leader: LeaderReplica, offset: int, client_rack: str) -> int | None:
        return nearest(
            leader,
            offset,
            brokers=self.metadata.brokers,
            leader_rack=self.config.broker_rack,
            client_rack=client_rack,
        )

    def _logs_lost(self, directory: str, lost: list[TopicPartition], error: StorageError) -> None:
        log.error(
            "log directory %s is offline, and %d logs with it: %s", directory, len(lost), error
        )
        self.incidents.directory_failed(directory, str(error))
        self.replicas.logs_lost(lost)
        if not self.logs.online_directories:
            self._on_fatal(f"the last of log.dirs has failed: {error}")
        elif self.broker_epoch >= 0:
            notice = self.lifecycle.tell_log_dir_failed(self.config.broker_id)
            self.tasks.start(notice, "notice of a failed log directory")

    def _topic_deleted(self, topic: str) -> None:
        self.settings.set_topic(topic, {})
        self.metrics.topic_deleted(topic)
        self.tasks.start(self.groups.topics_deleted([topic]), f"drop offsets of {topic}")

    def task_failed(self, name: str, error: BaseException) -> None:
        """Log the error of a background task; the broker stops if it cannot run without it."""
        log.error("%s failed", name, exc_info=error)
        if name in ("controller", "registration"):
            self._on_fatal(f"{name} failed: {error!r}")
