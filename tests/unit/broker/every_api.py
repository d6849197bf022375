"""An example of every API in every version: its request, the rights it needs, its refusals.

The rows follow Apache Kafka 3.9. A request is for topic `t` of two partitions, or creates one.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.unit.broker.live import LOG_DIRS, fetch, produce

from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_user_scram_credentials,
    elect_leaders,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from odradek.wire.messages.describe_state import DescribeStateRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.fetch import ReplicaState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8

Acl = tuple[AclOperation, ResourceType, str]


class Example(NamedTuple):
    """One request, the rights it needs, and the answers with none of them and with just these."""

    name: str
    api: ApiKey
    request: Callable  # of the Live and the version
    acls: tuple[Acl, ...] = ()
    refusal: ErrorCode = ErrorCode.NONE
    allowed: ErrorCode = ErrorCode.NONE
    version_max: int = 99  # the last version in which it needs these rights

    @property
    def last(self) -> int:
        """The last version that is served and needs these rights."""
        return min(APIS[self.api].served.last, self.version_max)

    def __str__(self):
        return self.name


def on_topic(operation, name="t"):
    return (operation, ResourceType.TOPIC, name)


def on_group(operation, name="x"):
    return (operation, ResourceType.GROUP, name)


def on_cluster(operation):
    return (operation, ResourceType.CLUSTER, CLUSTER_NAME)


# ----------------------------------------------------------------------------- requests


def _produce(live, version):
    return produce(live.batch(b"a") if version >= 3 else b"")


def _produce_in_transaction(live, version):
    batch = live.batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    if version < 3:
        return produce(b"")
    return produce(batch, transactional_id="x")


def _fetch(live, version):
    topic = live.partition("t").topic_id if version >= 13 else "t"
    return fetch({(topic, 0): 0}, max_wait_ms=0)


def _fetch_as_follower(live, version):
    request = _fetch(live, version)
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=1, replica_epoch=1)
    else:
        request.replica_id = 1
    return request


def _list_offsets(live, version):
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name="t", partitions=[partition])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


def _offset_for_leader_epoch(live, version):
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=[partition])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])


def _delete_records(live, version):
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=1)
    topic = delete_records.DeleteRecordsTopic(name="t", partitions=[partition])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)


def _init_producer_id(live, version):
    return InitProducerIdRequest(transactional_id=None)


def _add_partitions_to_txn(live, version):
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    if version >= 4:
        transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id="x", producer_id=5, verify_only=version == 4, topics=topics
        )
        return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=5,
        v3_and_below_topics=topics,
    )


def _add_offsets_to_txn(live, version):
    return AddOffsetsToTxnRequest(transactional_id="x", producer_id=5, group_id="g")


def _end_txn(live, version):
    return EndTxnRequest(transactional_id="x", producer_id=5)


def _write_txn_markers(live, version):
    topic = write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(producer_id=5, topics=[topic])
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def _list_transactions(live, version):
    return ListTransactionsRequest()


def _describe_transactions(live, version):
    return DescribeTransactionsRequest(transactional_ids=["x"])


def _describe_state(live, version):
    return DescribeStateRequest(report="broker")


def _describe_producers(live, version):
    topic = describe_producers.TopicRequest(name="t", partition_indexes=[0])
    return describe_producers.DescribeProducersRequest(topics=[topic])


def _init_producer_id_of_a_transaction(live, version):
    return InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)


def _api_versions(live, version):
    if version < 3:
        return ApiVersionsRequest()
    return ApiVersionsRequest(client_software_name="a", client_software_version="1")


def _metadata(live, version):
    return MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def _metadata_of_a_topic_to_make(live, version):
    return MetadataRequest(topics=[MetadataRequestTopic(name="new")])


def _describe_cluster(live, version):
    return DescribeClusterRequest()


def _find_coordinator(key_type):
    def find(live, version):
        if version >= 4:
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        return FindCoordinatorRequest(key="x", key_type=key_type if version >= 1 else 0)

    return find


def _join_group(live, version):
    request = join_group.JoinGroupRequest(
        group_id="x", session_timeout_ms=10_000, protocol_type="consumer"
    )
    request.protocols = [join_group.JoinGroupRequestProtocol(name="range")]
    return request


def _sync_group(live, version):
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return sync_group.SyncGroupRequest(group_id="x", generation_id=1, member_id="m", **names)


def _heartbeat(live, version):
    return heartbeat.HeartbeatRequest(group_id="x", generation_id=1, member_id="m")


def _leave_group(live, version):
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id="x", member_id="m")
    member = leave_group.MemberIdentity(member_id="m")
    return leave_group.LeaveGroupRequest(group_id="x", members=[member])


def _offset_commit(live, version):
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[part])
    return offset_commit.OffsetCommitRequest(
        group_id="x", generation_id_or_member_epoch=-1, topics=[topic]
    )


def _offset_fetch(live, version):
    if version >= 8:
        topic = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        group = offset_fetch.OffsetFetchRequestGroup(group_id="x", topics=[topic])
        return offset_fetch.OffsetFetchRequest(groups=[group])
    topic = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    return offset_fetch.OffsetFetchRequest(group_id="x", topics=[topic])


def _offset_delete(live, version):
    part = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    topic = offset_delete.OffsetDeleteRequestTopic(name="t", partitions=[part])
    return offset_delete.OffsetDeleteRequest(group_id="x", topics=[topic])


def _txn_offset_commit(live, version):
    part = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0)
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="x", group_id="x", producer_id=7, topics=[topic]
    )


def _list_groups(live, version):
    return list_groups.ListGroupsRequest()


def _describe_groups(live, version):
    return describe_groups.DescribeGroupsRequest(groups=["x"])


def _delete_groups(live, version):
    return delete_groups.DeleteGroupsRequest(groups_names=["x"])


def _consumer_group_heartbeat(live, version):
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id="x")


def _consumer_group_describe(live, version):
    return consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["x"])


def _create_topics(live, version):
    topic = create_topics.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)


def _delete_topics(live, version):
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
    states = [delete_topics.DeleteTopicState(name="t")]
    return delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=5000)


def _create_partitions(live, version):
    topic = create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None)
    return create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=5000)


def _describe_configs(resource_type, name):
    def describe(live, version):
        resource = describe_configs.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        return describe_configs.DescribeConfigsRequest(resources=[resource])

    return describe


def _alter_configs(resource_type, name, option):
    def alter(live, version):
        config = alter_configs.AlterableConfig(name=option, value="1000000")
        resource = alter_configs.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=[config]
        )
        return alter_configs.AlterConfigsRequest(resources=[resource])

    return alter


def _incremental_alter_configs(resource_type, name, option, value="1000000"):
    def alter(live, version):
        config = incremental_alter_configs.AlterableConfig(name=option, value=value)
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=[config]
        )
        return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])

    return alter


def _describe_log_dirs(live, version):
    return describe_log_dirs.DescribeLogDirsRequest(topics=None)


def _alter_replica_log_dirs(live, version):
    there = live.broker.logs.directory_of(live.log("t"))
    (elsewhere,) = set(LOG_DIRS) - {there}
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])
    wanted = alter_replica_log_dirs.AlterReplicaLogDir(path=elsewhere, topics=[topic])
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[wanted])


def _from_controller(live):
    orders = live.broker.controller_requests
    return {"controller_id": 0, "controller_epoch": orders.controller_epoch + 1}


def _leader_and_isr(live, version):
    state = leader_and_isr.LeaderAndIsrPartitionState(
        partition_index=0, leader=0, leader_epoch=9, isr=[0], replicas=[0], controller_epoch=1
    )
    if version < 2:
        state.topic_name = "t"
        return leader_and_isr.LeaderAndIsrRequest(
            ungrouped_partition_states=[state], **_from_controller(live)
        )
    topic = leader_and_isr.LeaderAndIsrTopicState(
        topic_name="t", topic_id=live.partition("t").topic_id, partition_states=[state]
    )
    return leader_and_isr.LeaderAndIsrRequest(topic_states=[topic], **_from_controller(live))


def _stop_replica(live, version):
    if version == 0:
        part = stop_replica.StopReplicaPartitionV0(topic_name="t", partition_index=0)
        return stop_replica.StopReplicaRequest(
            ungrouped_partitions=[part], delete_partitions=True, **_from_controller(live)
        )
    if version < 3:
        named = stop_replica.StopReplicaTopicV1(name="t", partition_indexes=[0])
        return stop_replica.StopReplicaRequest(
            topics=[named], delete_partitions=True, **_from_controller(live)
        )
    state = stop_replica.StopReplicaPartitionState(
        partition_index=0, leader_epoch=9, delete_partition=True
    )
    topic = stop_replica.StopReplicaTopicState(topic_name="t", partition_states=[state])
    return stop_replica.StopReplicaRequest(topic_states=[topic], **_from_controller(live))


def _update_metadata(live, version):
    state = update_metadata.UpdateMetadataPartitionState(
        partition_index=0, leader=0, leader_epoch=9, isr=[0], replicas=[0]
    )
    point = update_metadata.UpdateMetadataEndpoint(host="b0", port=9092, listener="PLAINTEXT")
    if version == 0:
        broker = update_metadata.UpdateMetadataBroker(id=0, v0_host="b0", v0_port=9092)
    else:
        broker = update_metadata.UpdateMetadataBroker(id=0, endpoints=[point])
    if version < 5:
        state.topic_name = "new"
        return update_metadata.UpdateMetadataRequest(
            ungrouped_partition_states=[state], live_brokers=[broker], **_from_controller(live)
        )
    topic = update_metadata.UpdateMetadataTopicState(
        topic_name="new", topic_id=b"n" * 16, partition_states=[state]
    )
    return update_metadata.UpdateMetadataRequest(
        topic_states=[topic], live_brokers=[broker], **_from_controller(live)
    )


def _describe_acls(live, version):
    return describe_acls.DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip


def _create_acls(live, version):
    creation = create_acls.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    return create_acls.CreateAclsRequest(creations=[creation])


def _delete_acls(live, version):
    wanted = delete_acls.DeleteAclsFilter(
        resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None,
        operation=1, permission_type=1,
    )  # fmt: skip
    return delete_acls.DeleteAclsRequest(filters=[wanted])


def _describe_client_quotas(live, version):
    return describe_client_quotas.DescribeClientQuotasRequest()


def _alter_client_quotas(live, version):
    entity = alter_client_quotas.EntityData(entity_type="user", entity_name="a")
    op = alter_client_quotas.OpData(key="producer_byte_rate", value=1000.0)
    entry = alter_client_quotas.EntryData(entity=[entity], ops=[op])
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])


def _describe_scram(live, version):
    return describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)


def _alter_scram(live, version):
    new = alter_user_scram_credentials.ScramCredentialUpsertion(
        name="a", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[new])


def _update_features(live, version):
    update = FeatureUpdateKey(feature="f", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=[update])


def _create_delegation_token(live, version):
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    if version >= 3:
        request.owner_principal_type = request.owner_principal_name = None
    return request


# --------------------------------------------------------------------------------- rows

_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_OP = AclOperation
_RES = ResourceType


def _alter_partition(live, version):
    """The present ISR of the partition."""
    held = live.broker.replicas.get("t", 0)
    epoch = live.broker.broker_epoch
    partition = alter_partition.AlterPartitionPartition(
        partition_index=0,
        leader_epoch=held.leader_epoch if held else 0,
        partition_epoch=held.partition_epoch if held else 0,
    )
    if version >= 3:
        member = alter_partition.BrokerState(broker_id=0, broker_epoch=epoch)
        partition.new_isr_with_epochs = [member]
    else:
        partition.new_isr = [0]
    topic = alter_partition.AlterPartitionTopic(
        topic_name="t", topic_id=held.topic_id if held else bytes(16), partitions=[partition]
    )
    return alter_partition.AlterPartitionRequest(broker_id=0, broker_epoch=epoch, topics=[topic])


def _controlled_shutdown(live, version):
    epoch = live.broker.broker_epoch if version >= 2 else -1
    return ControlledShutdownRequest(broker_id=0, broker_epoch=epoch)


def _allocate_producer_ids(live, version):
    return AllocateProducerIdsRequest(broker_id=0, broker_epoch=live.broker.broker_epoch)


def _elect_leaders(live, version):
    topic = elect_leaders.TopicPartitions(topic="t", partitions=[0])
    return elect_leaders.ElectLeadersRequest(topic_partitions=[topic], timeout_ms=5000)


def _alter_partition_reassignments(live, version):
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[0])
    topic = alter_partition_reassignments.ReassignableTopic(name="t", partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def _list_partition_reassignments(live, version):
    return list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)


_NO_AUTHORIZER = ErrorCode.SECURITY_DISABLED
_NO_SASL = ErrorCode.ILLEGAL_SASL_STATE
_NO_TOKENS = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_KRAFT_ONLY = ErrorCode.UNSUPPORTED_VERSION

# fmt: off
EXAMPLES = (
    Example("DescribeAcls", ApiKey.DESCRIBE_ACLS, _describe_acls, (on_cluster(_OP.DESCRIBE),),
            _CLUSTER, _NO_AUTHORIZER),
    Example("CreateAcls", ApiKey.CREATE_ACLS, _create_acls, (on_cluster(_OP.ALTER),),
            _CLUSTER, _NO_AUTHORIZER),
    Example("DeleteAcls", ApiKey.DELETE_ACLS, _delete_acls, (on_cluster(_OP.ALTER),),
            _CLUSTER, _NO_AUTHORIZER),
    Example("DescribeClientQuotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, _describe_client_quotas,
            (on_cluster(_OP.DESCRIBE_CONFIGS),), _CLUSTER),
    Example("AlterClientQuotas", ApiKey.ALTER_CLIENT_QUOTAS, _alter_client_quotas,
            (on_cluster(_OP.ALTER_CONFIGS),), _CLUSTER),
    Example("DescribeUserScramCredentials", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            _describe_scram, (on_cluster(_OP.DESCRIBE),), _CLUSTER),
    Example("AlterUserScramCredentials", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, _alter_scram,
            (on_cluster(_OP.ALTER),), _CLUSTER),
    Example("UpdateFeatures", ApiKey.UPDATE_FEATURES, _update_features,
            (on_cluster(_OP.ALTER),), _CLUSTER, ErrorCode.INVALID_REQUEST),
    Example("CreateDelegationToken", ApiKey.CREATE_DELEGATION_TOKEN, _create_delegation_token,
            (), _NO_TOKENS, _NO_TOKENS),
    Example("RenewDelegationToken", ApiKey.RENEW_DELEGATION_TOKEN,
            lambda live, version: RenewDelegationTokenRequest(hmac=b"h"), (), _NO_TOKENS,
            _NO_TOKENS),
    Example("ExpireDelegationToken", ApiKey.EXPIRE_DELEGATION_TOKEN,
            lambda live, version: ExpireDelegationTokenRequest(hmac=b"h"), (), _NO_TOKENS,
            _NO_TOKENS),
    Example("DescribeDelegationToken", ApiKey.DESCRIBE_DELEGATION_TOKEN,
            lambda live, version: DescribeDelegationTokenRequest(owners=None), (), _NO_TOKENS,
            _NO_TOKENS),
    Example("Produce", ApiKey.PRODUCE, _produce, (on_topic(_OP.WRITE),), _TOPIC),
    Example("Produce in a transaction", ApiKey.PRODUCE, _produce_in_transaction,
            ((_OP.WRITE, _RES.TRANSACTIONAL_ID, "x"), on_topic(_OP.WRITE)), _TRANSACTION,
            ErrorCode.NOT_ENOUGH_REPLICAS),
    Example("Fetch", ApiKey.FETCH, _fetch, (on_topic(_OP.READ),), _TOPIC),
    Example("Fetch of a follower", ApiKey.FETCH, _fetch_as_follower,
            (on_cluster(_OP.CLUSTER_ACTION),), _TOPIC, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Example("ListOffsets", ApiKey.LIST_OFFSETS, _list_offsets, (on_topic(_OP.DESCRIBE),), _TOPIC),
    Example("OffsetForLeaderEpoch", ApiKey.OFFSET_FOR_LEADER_EPOCH, _offset_for_leader_epoch,
            (on_topic(_OP.DESCRIBE),), _TOPIC),
    Example("OffsetForLeaderEpoch of a broker", ApiKey.OFFSET_FOR_LEADER_EPOCH,
            _offset_for_leader_epoch, (on_cluster(_OP.CLUSTER_ACTION),), _TOPIC),
    Example("DeleteRecords", ApiKey.DELETE_RECORDS, _delete_records,
            (on_topic(_OP.DELETE),), _TOPIC),
    Example("InitProducerId", ApiKey.INIT_PRODUCER_ID, _init_producer_id,
            (on_cluster(_OP.IDEMPOTENT_WRITE),), _CLUSTER),
    Example("InitProducerId with the right to write to a topic", ApiKey.INIT_PRODUCER_ID,
            _init_producer_id, (on_topic(_OP.WRITE),), _CLUSTER),
    Example("InitProducerId of a transaction", ApiKey.INIT_PRODUCER_ID,
            _init_producer_id_of_a_transaction, ((_OP.WRITE, _RES.TRANSACTIONAL_ID, "x"),),
            _TRANSACTION, ErrorCode.NOT_COORDINATOR),
    Example("AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, _add_partitions_to_txn,
            ((_OP.WRITE, _RES.TRANSACTIONAL_ID, "x"), on_topic(_OP.WRITE)), _TRANSACTION,
            ErrorCode.NOT_COORDINATOR, 3),
    Example("AddPartitionsToTxn of a broker", ApiKey.ADD_PARTITIONS_TO_TXN,
            _add_partitions_to_txn, (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER,
            ErrorCode.NOT_COORDINATOR),
    Example("AddOffsetsToTxn", ApiKey.ADD_OFFSETS_TO_TXN, _add_offsets_to_txn,
            ((_OP.WRITE, _RES.TRANSACTIONAL_ID, "x"), (_OP.READ, _RES.GROUP, "g")), _TRANSACTION,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    Example("EndTxn", ApiKey.END_TXN, _end_txn,
            ((_OP.WRITE, _RES.TRANSACTIONAL_ID, "x"),), _TRANSACTION, ErrorCode.NOT_COORDINATOR),
    Example("WriteTxnMarkers", ApiKey.WRITE_TXN_MARKERS, _write_txn_markers,
            (on_cluster(_OP.ALTER),), _CLUSTER),
    Example("WriteTxnMarkers of a broker", ApiKey.WRITE_TXN_MARKERS, _write_txn_markers,
            (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER),
    Example("ListTransactions", ApiKey.LIST_TRANSACTIONS, _list_transactions),
    Example("DescribeTransactions", ApiKey.DESCRIBE_TRANSACTIONS, _describe_transactions,
            ((_OP.DESCRIBE, _RES.TRANSACTIONAL_ID, "x"),), _TRANSACTION,
            ErrorCode.NOT_COORDINATOR),
    Example("DescribeProducers", ApiKey.DESCRIBE_PRODUCERS, _describe_producers,
            (on_topic(_OP.READ),), _TOPIC),
    Example("SaslHandshake", ApiKey.SASL_HANDSHAKE,
            lambda live, version: SaslHandshakeRequest(mechanism="PLAIN"), (), _NO_SASL, _NO_SASL),
    Example("SaslAuthenticate", ApiKey.SASL_AUTHENTICATE,
            lambda live, version: SaslAuthenticateRequest(auth_bytes=b"\0a\0"), (), _NO_SASL,
            _NO_SASL),
    Example("ApiVersions", ApiKey.API_VERSIONS, _api_versions),
    Example("Metadata", ApiKey.METADATA, _metadata, (on_topic(_OP.DESCRIBE),), _TOPIC),
    Example("Metadata that makes a topic", ApiKey.METADATA, _metadata_of_a_topic_to_make,
            (on_topic(_OP.DESCRIBE, "new"), on_topic(_OP.CREATE, "new")), _TOPIC,
            ErrorCode.LEADER_NOT_AVAILABLE),
    Example("Metadata that makes any topic", ApiKey.METADATA, _metadata_of_a_topic_to_make,
            (on_topic(_OP.DESCRIBE, "new"), on_cluster(_OP.CREATE)), _TOPIC,
            ErrorCode.LEADER_NOT_AVAILABLE),
    Example("DescribeCluster", ApiKey.DESCRIBE_CLUSTER, _describe_cluster),
    Example("DescribeState", ApiKey.DESCRIBE_STATE, _describe_state,
            (on_cluster(_OP.DESCRIBE),), _CLUSTER),
    Example("FindCoordinator of a group", ApiKey.FIND_COORDINATOR, _find_coordinator(0),
            ((_OP.DESCRIBE, _RES.GROUP, "x"),), _GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    Example("FindCoordinator of a transaction", ApiKey.FIND_COORDINATOR, _find_coordinator(1),
            ((_OP.DESCRIBE, _RES.TRANSACTIONAL_ID, "x"),), _TRANSACTION,
            ErrorCode.COORDINATOR_NOT_AVAILABLE),
    Example("JoinGroup", ApiKey.JOIN_GROUP, _join_group, (on_group(_OP.READ),), _GROUP,
            ErrorCode.NOT_COORDINATOR),
    Example("SyncGroup", ApiKey.SYNC_GROUP, _sync_group, (on_group(_OP.READ),), _GROUP,
            ErrorCode.NOT_COORDINATOR),
    Example("Heartbeat", ApiKey.HEARTBEAT, _heartbeat, (on_group(_OP.READ),), _GROUP,
            ErrorCode.NOT_COORDINATOR),
    Example("LeaveGroup", ApiKey.LEAVE_GROUP, _leave_group, (on_group(_OP.READ),), _GROUP,
            ErrorCode.NOT_COORDINATOR),
    Example("OffsetCommit", ApiKey.OFFSET_COMMIT, _offset_commit,
            (on_group(_OP.READ), on_topic(_OP.READ)), _GROUP, ErrorCode.NOT_COORDINATOR),
    Example("OffsetFetch", ApiKey.OFFSET_FETCH, _offset_fetch,
            (on_group(_OP.DESCRIBE),), _GROUP, ErrorCode.NOT_COORDINATOR),
    Example("OffsetDelete", ApiKey.OFFSET_DELETE, _offset_delete,
            (on_group(_OP.DELETE),), _GROUP, ErrorCode.NOT_COORDINATOR),
    Example("TxnOffsetCommit", ApiKey.TXN_OFFSET_COMMIT, _txn_offset_commit,
            ((_OP.WRITE, _RES.TRANSACTIONAL_ID, "x"), on_group(_OP.READ), on_topic(_OP.READ)),
            _TRANSACTION, ErrorCode.NOT_COORDINATOR),
    Example("ListGroups", ApiKey.LIST_GROUPS, _list_groups, (on_cluster(_OP.DESCRIBE),)),
    Example("DescribeGroups", ApiKey.DESCRIBE_GROUPS, _describe_groups,
            (on_group(_OP.DESCRIBE),), _GROUP, ErrorCode.NOT_COORDINATOR),
    Example("DeleteGroups", ApiKey.DELETE_GROUPS, _delete_groups, (on_group(_OP.DELETE),),
            _GROUP, ErrorCode.NOT_COORDINATOR),
    Example("ConsumerGroupHeartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, _consumer_group_heartbeat,
            (), _KRAFT_ONLY, _KRAFT_ONLY),
    Example("ConsumerGroupDescribe", ApiKey.CONSUMER_GROUP_DESCRIBE, _consumer_group_describe,
            (), _KRAFT_ONLY, _KRAFT_ONLY),
    Example("CreateTopics", ApiKey.CREATE_TOPICS, _create_topics,
            (on_topic(_OP.CREATE, "new"),), _TOPIC),
    Example("CreateTopics by the cluster's right", ApiKey.CREATE_TOPICS, _create_topics,
            (on_cluster(_OP.CREATE),), _TOPIC),
    Example("DeleteTopics", ApiKey.DELETE_TOPICS, _delete_topics, (on_topic(_OP.DELETE),), _TOPIC),
    Example("CreatePartitions", ApiKey.CREATE_PARTITIONS, _create_partitions,
            (on_topic(_OP.ALTER),), _TOPIC),
    Example("DescribeConfigs of a topic", ApiKey.DESCRIBE_CONFIGS, _describe_configs(TOPIC, "t"),
            (on_topic(_OP.DESCRIBE_CONFIGS),), _TOPIC),
    Example("DescribeConfigs of a broker", ApiKey.DESCRIBE_CONFIGS, _describe_configs(BROKER, "0"),
            (on_cluster(_OP.DESCRIBE_CONFIGS),), _CLUSTER),
    Example("DescribeConfigs of loggers", ApiKey.DESCRIBE_CONFIGS,
            _describe_configs(BROKER_LOGGER, "0"), (on_cluster(_OP.DESCRIBE_CONFIGS),), _CLUSTER),
    Example("AlterConfigs of a topic", ApiKey.ALTER_CONFIGS,
            _alter_configs(TOPIC, "t", "retention.ms"), (on_topic(_OP.ALTER_CONFIGS),), _TOPIC),
    Example("AlterConfigs of a broker", ApiKey.ALTER_CONFIGS,
            _alter_configs(BROKER, "", "log.retention.ms"),
            (on_cluster(_OP.ALTER_CONFIGS),), _CLUSTER),
    Example("IncrementalAlterConfigs of a topic", ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _incremental_alter_configs(TOPIC, "t", "retention.ms"),
            (on_topic(_OP.ALTER_CONFIGS),), _TOPIC),
    Example("IncrementalAlterConfigs of a broker", ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _incremental_alter_configs(BROKER, "0", "log.retention.ms"),
            (on_cluster(_OP.ALTER_CONFIGS),), _CLUSTER),
    Example("IncrementalAlterConfigs of loggers", ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _incremental_alter_configs(BROKER_LOGGER, "0", "root", "WARN"),
            (on_cluster(_OP.ALTER_CONFIGS),), _CLUSTER),
    Example("ElectLeaders", ApiKey.ELECT_LEADERS, _elect_leaders,
            (on_cluster(_OP.ALTER),), _CLUSTER, ErrorCode.ELECTION_NOT_NEEDED),
    Example("AlterPartitionReassignments", ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            _alter_partition_reassignments, (on_cluster(_OP.ALTER),), _CLUSTER),
    Example("ListPartitionReassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS,
            _list_partition_reassignments, (on_cluster(_OP.DESCRIBE),), _CLUSTER),
    Example("DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, _describe_log_dirs,
            (on_cluster(_OP.DESCRIBE),), _CLUSTER),
    Example("AlterReplicaLogDirs", ApiKey.ALTER_REPLICA_LOG_DIRS, _alter_replica_log_dirs,
            (on_cluster(_OP.ALTER),), _CLUSTER),
    Example("LeaderAndIsr", ApiKey.LEADER_AND_ISR, _leader_and_isr,
            (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER),
    Example("StopReplica", ApiKey.STOP_REPLICA, _stop_replica,
            (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER),
    Example("UpdateMetadata", ApiKey.UPDATE_METADATA, _update_metadata,
            (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER),
    Example("AlterPartition", ApiKey.ALTER_PARTITION, _alter_partition,
            (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER),
    Example("ControlledShutdown", ApiKey.CONTROLLED_SHUTDOWN, _controlled_shutdown,
            (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER),
    Example("AllocateProducerIds", ApiKey.ALLOCATE_PRODUCER_IDS, _allocate_producer_ids,
            (on_cluster(_OP.CLUSTER_ACTION),), _CLUSTER),
)
# fmt: on


def error_codes(message) -> set[ErrorCode]:
    """Every error code in a response, at any depth; NONE is in it if nothing else is."""
    found = set(_errors(message))
    return found - {ErrorCode.NONE} or {ErrorCode.NONE}


def _errors(part):
    if isinstance(part, list):
        for item in part:
            yield from _errors(item)
    elif hasattr(part, "SCHEMA"):
        for field in part.SCHEMA.fields:
            value = getattr(part, field.name)
            if field.name in {"error_code", "partition_error_code"}:
                yield ErrorCode(value)
            else:
                yield from _errors(value)
