"""All APIs that a broker serves: API, handler, and what the handler needs.

The versions are in `odradek.wire.api_keys`. An API that is not here is not advertised, and a
request for it closes the connection. Envelope is advertised nevertheless, as in Kafka's ZooKeeper
mode, and closes the connection. A test compares this table with the files of this folder.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from odradek.broker.admin.acls import AclAdmin
from odradek.broker.admin.clients import ClientAdmin
from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.admin.delegation_tokens import DelegationTokens
from odradek.broker.admin.topic_maker import InternalTopics
from odradek.broker.admin.topics import TopicAdmin
from odradek.broker.apis.add_offsets_to_txn import add_offsets_to_txn
from odradek.broker.apis.add_partitions_to_txn import add_partitions_to_txn
from odradek.broker.apis.allocate_producer_ids import allocate_producer_ids
from odradek.broker.apis.alter_client_quotas import alter_client_quotas
from odradek.broker.apis.alter_configs import alter_configs
from odradek.broker.apis.alter_partition import alter_partition
from odradek.broker.apis.alter_partition_reassignments import alter_partition_reassignments
from odradek.broker.apis.alter_replica_log_dirs import alter_replica_log_dirs
from odradek.broker.apis.alter_user_scram_credentials import alter_user_scram_credentials
from odradek.broker.apis.api_versions import ServedRange, api_versions
from odradek.broker.apis.consumer_group_describe import consumer_group_describe
from odradek.broker.apis.consumer_group_heartbeat import consumer_group_heartbeat
from odradek.broker.apis.controlled_shutdown import controlled_shutdown
from odradek.broker.apis.create_acls import create_acls
from odradek.broker.apis.create_delegation_token import create_delegation_token
from odradek.broker.apis.create_partitions import create_partitions
from odradek.broker.apis.create_topics import create_topics
from odradek.broker.apis.delete_acls import delete_acls
from odradek.broker.apis.delete_groups import delete_groups
from odradek.broker.apis.delete_records import delete_records
from odradek.broker.apis.delete_topics import delete_topics
from odradek.broker.apis.describe_acls import describe_acls
from odradek.broker.apis.describe_client_quotas import describe_client_quotas
from odradek.broker.apis.describe_cluster import describe_cluster
from odradek.broker.apis.describe_configs import describe_configs
from odradek.broker.apis.describe_delegation_token import describe_delegation_token
from odradek.broker.apis.describe_groups import describe_groups
from odradek.broker.apis.describe_log_dirs import describe_log_dirs
from odradek.broker.apis.describe_producers import describe_producers
from odradek.broker.apis.describe_state import describe_state
from odradek.broker.apis.describe_transactions import describe_transactions
from odradek.broker.apis.describe_user_scram_credentials import describe_user_scram_credentials
from odradek.broker.apis.elect_leaders import elect_leaders
from odradek.broker.apis.end_txn import end_txn
from odradek.broker.apis.expire_delegation_token import expire_delegation_token
from odradek.broker.apis.fetch import FetchApi
from odradek.broker.apis.find_coordinator import find_coordinator
from odradek.broker.apis.heartbeat import heartbeat
from odradek.broker.apis.incremental_alter_configs import incremental_alter_configs
from odradek.broker.apis.init_producer_id import init_producer_id
from odradek.broker.apis.join_group import join_group
from odradek.broker.apis.leave_group import leave_group
from odradek.broker.apis.list_groups import list_groups
from odradek.broker.apis.list_offsets import list_offsets
from odradek.broker.apis.list_partition_reassignments import list_partition_reassignments
from odradek.broker.apis.list_transactions import list_transactions
from odradek.broker.apis.metadata import MetadataApi
from odradek.broker.apis.offset_commit import offset_commit
from odradek.broker.apis.offset_delete import offset_delete
from odradek.broker.apis.offset_fetch import offset_fetch
from odradek.broker.apis.offset_for_leader_epoch import offset_for_leader_epoch
from odradek.broker.apis.produce import ProduceApi
from odradek.broker.apis.renew_delegation_token import renew_delegation_token
from odradek.broker.apis.sasl_authenticate import sasl_authenticate
from odradek.broker.apis.sasl_handshake import sasl_handshake
from odradek.broker.apis.sync_group import sync_group
from odradek.broker.apis.txn_offset_commit import txn_offset_commit
from odradek.broker.apis.update_features import update_features
from odradek.broker.apis.usual_fetch import UsualFetchApi
from odradek.broker.apis.usual_produce import UsualProduce
from odradek.broker.apis.write_txn_markers import TxnMarkersApi
from odradek.broker.cluster.features import FeatureShell
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.stored_offsets import StoredOffsets
from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.replication.log_dir_moves import LogDirMoves
from odradek.broker.reported import ReportedParts
from odradek.broker.serving.quotas import MutationQuota, Quotas
from odradek.broker.serving.request_loop import RawRoute, Request, Route
from odradek.broker.serving.session import Origin, Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.api_keys import APIS, OWN_APIS, ApiKey
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.schema import Message


class FromController(Protocol):
    """The controller's requests to this broker, checked and carried out."""

    def leader_and_isr(
        self, request: LeaderAndIsrRequest, origin: Origin | None = None
    ) -> Awaitable[LeaderAndIsrResponse]:
        """Lead or follow partitions."""

    def stop_replica(
        self, request: StopReplicaRequest, origin: Origin | None = None
    ) -> Awaitable[StopReplicaResponse]:
        """Stop replicas, and delete those that are marked for it."""

    def update_metadata(
        self, request: UpdateMetadataRequest, origin: Origin | None = None
    ) -> Awaitable[UpdateMetadataResponse]:
        """Update the metadata cache."""


class ServedParts(ReportedParts, Protocol):
    """The parts of a broker that requests need, besides those that reports read."""

    metadata: MetadataCache
    topic_admin: TopicAdmin
    config_admin: ConfigAdmin
    transactions: TransactionShell
    produce: ProduceApi
    fetch: FetchApi
    producer_ids: ProducerIds
    stored_offsets: StoredOffsets
    txn_markers: TxnMarkersApi
    features: FeatureShell
    metadata_api: MetadataApi
    coordinator_counts: CoordinatorCounts
    internal_topics: InternalTopics
    log_dir_moves: LogDirMoves
    acls: AclAdmin
    clients: ClientAdmin
    delegation_tokens: DelegationTokens | None
    quotas: Quotas

    @property
    def controller_requests(self) -> "FromController":
        """Carries out the controller's requests."""

    cluster_id: str

    def offsets_partition_of(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` for a group; None: it is not known yet."""

    @property
    def draw_producer_ids(self) -> Callable[[int, int], Awaitable[tuple[int, int]]]:
        """Allocates the next block of producer ids for a broker and its broker epoch."""


def routes(broker: ServedParts) -> Mapping[ApiKey, Route | RawRoute]:
    """The handlers of all APIs."""
    advertised: list[ServedRange] = []
    for_our_tools: list[ServedRange] = []
    reporting = asyncio.Lock()
    replicas, cache = broker.replicas, broker.metadata
    topics, configs = broker.topic_admin, broker.config_admin
    groups, transactions = broker.groups, broker.transactions
    inbound = broker.controller_requests
    table: dict[ApiKey, Route | RawRoute] = {
        # Produce and fetch.
        ApiKey.PRODUCE: RawRoute(broker.produce.handle, UsualProduce(broker.produce).handle),
        ApiKey.FETCH: RawRoute(broker.fetch.handle, UsualFetchApi(broker.fetch).handle),
        ApiKey.LIST_OFFSETS: Route(
            lambda r: list_offsets(
                replicas, r.session, r.body, r.header.api_version, groups.now().wall_ms
            )
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Route(
            lambda r: offset_for_leader_epoch(replicas, r.session, r.body)
        ),
        ApiKey.DELETE_RECORDS: Route(lambda r: delete_records(replicas, r.session, r.body)),
        # Producers and their transactions.
        ApiKey.INIT_PRODUCER_ID: Route(
            lambda r: init_producer_id(
                broker.producer_ids,
                transactions,
                r.session,
                r.body,
                r.header.api_version,
            )
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: Route(
            lambda r: add_partitions_to_txn(
                transactions, cache, r.session, r.body, r.header.api_version
            )
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: Route(
            lambda r: add_offsets_to_txn(
                transactions,
                r.session,
                r.body,
                r.header.api_version,
                partition_of=broker.offsets_partition_of,
            )
        ),
        ApiKey.END_TXN: Route(
            lambda r: end_txn(transactions, r.session, r.body, r.header.api_version)
        ),
        ApiKey.WRITE_TXN_MARKERS: Route(lambda r: broker.txn_markers.handle(r.session, r.body)),
        ApiKey.LIST_TRANSACTIONS: Route(
            lambda r: list_transactions(transactions, r.session, r.body)
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: Route(
            lambda r: describe_transactions(transactions, r.session, r.body)
        ),
        ApiKey.DESCRIBE_PRODUCERS: Route(lambda r: describe_producers(replicas, r.session, r.body)),
        # Authentication: refused, on listeners without it.
        ApiKey.SASL_HANDSHAKE: Route(lambda _: sasl_handshake()),
        ApiKey.SASL_AUTHENTICATE: Route(lambda _: sasl_authenticate()),
        # Metadata.
        ApiKey.API_VERSIONS: _when_features_are_known(
            broker,
            lambda r: api_versions(
                r.session,
                r.body,
                r.header.api_version,
                served=advertised,
                own=for_our_tools,
                features=broker.features.present,
            ),
        ),
        ApiKey.METADATA: Route(
            lambda r: broker.metadata_api.handle(
                r.session, r.body, r.header.api_version, part=r.part
            )
        ),
        ApiKey.DESCRIBE_CLUSTER: _describe_cluster_when_announced(broker),
        ApiKey.DESCRIBE_STATE: Route(
            lambda r: describe_state(broker, r.session, r.body, one_at_a_time=reporting)
        ),
        **_group_routes(broker),
        # Topics, configuration, leader election and reassignments.
        **_topic_routes(broker),
        ApiKey.DESCRIBE_CONFIGS: Route(
            lambda r: describe_configs(configs, r.session, r.body, r.header.api_version)
        ),
        ApiKey.ALTER_CONFIGS: Route(lambda r: alter_configs(configs, r.session, r.body)),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(
            lambda r: incremental_alter_configs(configs, r.session, r.body)
        ),
        ApiKey.ELECT_LEADERS: Route(
            lambda r: elect_leaders(
                broker.controller, topics, r.session, r.body, r.header.api_version
            )
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route(
            lambda r: alter_partition_reassignments(broker.controller, r.session, r.body)
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Route(
            lambda r: list_partition_reassignments(broker.controller, r.session, r.body)
        ),
        # Log directories.
        ApiKey.DESCRIBE_LOG_DIRS: Route(
            lambda r: describe_log_dirs(broker.logs, r.session, r.body)
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Route(
            lambda r: alter_replica_log_dirs(broker.log_dir_moves, r.session, r.body)
        ),
        # ACLs and quotas: stored and listed.
        ApiKey.DESCRIBE_ACLS: Route(lambda r: describe_acls(broker.acls, r.session, r.body)),
        ApiKey.CREATE_ACLS: Route(lambda r: create_acls(broker.acls, r.session, r.body)),
        ApiKey.DELETE_ACLS: Route(lambda r: delete_acls(broker.acls, r.session, r.body)),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Route(
            lambda r: describe_client_quotas(broker.clients, r.session, r.body)
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: Route(
            lambda r: alter_client_quotas(broker.clients, r.session, r.body)
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Route(
            lambda r: describe_user_scram_credentials(broker.clients, r.session, r.body)
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Route(
            lambda r: alter_user_scram_credentials(
                broker.clients, r.session, r.body, is_controller=topics.is_controller
            )
        ),
        ApiKey.UPDATE_FEATURES: Route(
            lambda r: update_features(r.session, r.body, is_controller=topics.is_controller)
        ),
        **_token_routes(broker.delegation_tokens),
        # From the controller and other brokers.
        ApiKey.LEADER_AND_ISR: Route(lambda r: inbound.leader_and_isr(r.body, _origin(r))),
        ApiKey.STOP_REPLICA: Route(lambda r: inbound.stop_replica(r.body, _origin(r))),
        ApiKey.UPDATE_METADATA: Route(lambda r: inbound.update_metadata(r.body, _origin(r))),
        ApiKey.ALTER_PARTITION: Route(
            lambda r: _for_brokers(
                r.session,
                lambda: alter_partition(
                    broker.controller,
                    r.body,
                    r.header.api_version,
                    announced=cache.topic_name,
                ),
            )
        ),
        ApiKey.CONTROLLED_SHUTDOWN: Route(
            lambda r: _for_brokers(
                r.session, lambda: controlled_shutdown(broker.controller, r.body)
            )
        ),
        ApiKey.ALLOCATE_PRODUCER_IDS: Route(
            lambda r: _for_brokers(
                r.session, lambda: allocate_producer_ids(broker.draw_producer_ids, r.body)
            )
        ),
    }
    for key in sorted({*table, ApiKey.ENVELOPE}):
        offered = ServedRange(int(key), *APIS[key].served)
        (for_our_tools if key in OWN_APIS else advertised).append(offered)
    return table


def _token_routes(tokens: DelegationTokens | None) -> dict[ApiKey, Route | RawRoute]:
    return {
        ApiKey.CREATE_DELEGATION_TOKEN: Route(
            lambda r: create_delegation_token(tokens, r.session, r.body, r.header.api_version)
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: Route(
            lambda r: renew_delegation_token(tokens, r.session, r.body)
        ),
        ApiKey.EXPIRE_DELEGATION_TOKEN: Route(
            lambda r: expire_delegation_token(tokens, r.session, r.body)
        ),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: Route(
            lambda r: describe_delegation_token(tokens, r.session, r.body, r.header.api_version)
        ),
    }


def _group_routes(broker: ServedParts) -> Mapping[ApiKey, Route]:
    """FindCoordinator, and the APIs of consumer groups."""
    groups, stored, cache = broker.groups, broker.stored_offsets, broker.metadata
    return {
        ApiKey.FIND_COORDINATOR: Route(
            lambda r: find_coordinator(
                cache,
                broker.coordinator_counts,
                r.session,
                r.body,
                r.header.api_version,
                make_topic=broker.internal_topics.make,
                probe=broker.fetchers.probe,
            )
        ),
        ApiKey.JOIN_GROUP: Route(
            lambda r: join_group(groups, r.session, r.body, r.header.api_version)
        ),
        ApiKey.SYNC_GROUP: Route(
            lambda r: sync_group(groups, r.session, r.body, r.header.api_version)
        ),
        ApiKey.HEARTBEAT: Route(lambda r: heartbeat(groups, r.session, r.body)),
        ApiKey.LEAVE_GROUP: Route(
            lambda r: leave_group(groups, r.session, r.body, r.header.api_version)
        ),
        ApiKey.OFFSET_COMMIT: Route(
            lambda r: offset_commit(groups, stored, cache, r.session, r.body, r.header.api_version)
        ),
        ApiKey.OFFSET_FETCH: Route(
            lambda r: offset_fetch(groups, stored, cache, r.session, r.body, r.header.api_version)
        ),
        ApiKey.OFFSET_DELETE: Route(lambda r: offset_delete(groups, cache, r.session, r.body)),
        ApiKey.TXN_OFFSET_COMMIT: Route(
            lambda r: txn_offset_commit(groups, cache, r.session, r.body, r.header.api_version)
        ),
        ApiKey.LIST_GROUPS: Route(lambda r: list_groups(groups, r.session, r.body)),
        ApiKey.DESCRIBE_GROUPS: Route(lambda r: describe_groups(groups, r.session, r.body)),
        ApiKey.DELETE_GROUPS: Route(lambda r: delete_groups(groups, r.session, r.body)),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Route(lambda _: consumer_group_heartbeat()),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Route(lambda r: consumer_group_describe(r.body)),
    }


def _topic_routes(broker: ServedParts) -> Mapping[ApiKey, Route]:
    """The APIs that count against the quota for changes to topics."""
    topics = broker.topic_admin

    def mutations(request: Request, strict_since: int) -> MutationQuota:
        strict = request.header.api_version >= strict_since
        return broker.quotas.mutations(request.session, strict=strict)

    return {
        ApiKey.CREATE_TOPICS: Route(
            lambda r: create_topics(topics, r.session, r.body, mutations(r, 6))
        ),
        ApiKey.DELETE_TOPICS: Route(
            lambda r: delete_topics(
                topics, r.session, r.body, r.header.api_version, mutations(r, 5)
            )
        ),
        ApiKey.CREATE_PARTITIONS: Route(
            lambda r: create_partitions(topics, r.session, r.body, mutations(r, 3))
        ),
    }


def _origin(request: Request) -> Origin:
    return Origin(request.session, request.header.api_version)


def _for_brokers(session: Session, handle: Callable[[], Awaitable[Message]]) -> Awaitable[Message]:
    """Handle a request if its client has CLUSTER_ACTION."""
    if not session.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return handle()


def _when_features_are_known(broker: ServedParts, answer: Callable[[Request], Message]) -> Route:
    """Wait for the cluster's features: a client asks for them once for each connection."""

    async def later(request: Request) -> Message:
        await broker.features.wait_known(broker.config.zookeeper_session_timeout_ms)
        return answer(request)

    return Route(lambda r: answer(r) if broker.features.is_known else later(r))


def _describe_cluster_when_announced(broker: ServedParts) -> Route:
    """Wait for the first UpdateMetadata: without it the answer would be a cluster of no brokers."""
    cache = broker.metadata

    def answer(request: Request) -> Message:
        session, body = request.session, request.body
        return describe_cluster(cache, session, body, cluster_id=broker.cluster_id)

    async def later(request: Request) -> Message:
        within_ms = broker.config.zookeeper_session_timeout_ms
        if not await cache.wait_for(lambda: bool(cache.brokers), within_ms):
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller has announced a broker")
        return answer(request)

    return Route(lambda r: answer(r) if cache.brokers else later(r))
