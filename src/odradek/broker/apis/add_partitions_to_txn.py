"""AddPartitionsToTxn (24), versions 0-5: partitions join a transaction before they are written.

Behaviour, for clients (v0-3):
    * All or nothing: a partition that does not exist or may not be written gets its error, and all
      others OPERATION_NOT_ATTEMPTED. Clients may not write to internal topics.
    * The coordinator's answer (`odradek.txn.machine`) is that of each partition.

Behaviour, for brokers (v4-5, KIP-890; with CLUSTER_ACTION):
    * Several transactions. With `verify_only` it is checked whether the partitions belong to the
      transaction; if not: TRANSACTION_ABORTABLE, before v5 INVALID_TXN_STATE. Otherwise they are
      added, for producers of transaction version 2, whose leaders do that.

Versions:
    v2 PRODUCER_FENCED    v3 flexible    v4 many transactions    v5 TRANSACTION_ABORTABLE
"""

import asyncio
from collections.abc import Mapping
from itertools import groupby
from typing import Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.coordinators.txn_shell import TransactionShell
from odradek.broker.serving.session import Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.partition import TopicPartition
from odradek.txn.transaction import VERSION_1, VERSION_2
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE: Final = 2
MANY_SINCE: Final = 4
ABORTABLE_SINCE: Final = 5
LARGE: Final = 10_000  # partitions: other requests are handled before the next step
SLICE: Final = 1_000  # partitions that are looked up before others may run

Errors = Mapping[TopicPartition, ErrorCode]


async def add_partitions_to_txn(
    transactions: TransactionShell,
    cache: MetadataCache,
    session: Session,
    request: AddPartitionsToTxnRequest,
    api_version: int,
) -> AddPartitionsToTxnResponse:
    """Handle it by the coordinator.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED, from v4 on.
    """
    if api_version >= MANY_SINCE:
        if not session.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        # At once: each may have to be written, and they are independent of each other.
        outcomes = await asyncio.gather(
            *(_for_broker(transactions, asked, api_version) for asked in request.transactions)
        )
        await _pause(sum(map(len, outcomes)))
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id, topic_results=_results(errors)
                )
                for asked, errors in zip(request.transactions, outcomes, strict=True)
            ]
        )
    errors = await _for_client(transactions, cache, session, request, api_version)
    await _pause(len(errors))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(errors))


async def _for_client(
    transactions: TransactionShell,
    cache: MetadataCache,
    session: Session,
    request: AddPartitionsToTxnRequest,
    api_version: int,
) -> Errors:
    name = request.v3_and_below_transactional_id
    partitions = _partitions(request.v3_and_below_topics)
    if not session.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not name:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    await _pause(len(partitions))
    refused = await _refused(cache, session, partitions)
    if refused:
        return {p: refused.get(p, ErrorCode.OPERATION_NOT_ATTEMPTED) for p in partitions}
    error = await transactions.add_partitions(
        name,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=partitions,
        client_version=VERSION_1,
    )
    if error is ErrorCode.PRODUCER_FENCED and api_version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, error)


async def _refused(
    cache: MetadataCache, session: Session, partitions: list[TopicPartition]
) -> Errors:
    allowed = {
        topic: topic not in INTERNAL_TOPICS
        and session.authorize(AclOperation.WRITE, ResourceType.TOPIC, topic)
        for topic in {topic for topic, _ in partitions}
    }
    refused = {}
    for number, partition in enumerate(partitions, 1):
        if not number % SLICE:
            await asyncio.sleep(0)
        if not allowed[partition.topic]:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif cache.partition(*partition) is None:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


async def _for_broker(
    transactions: TransactionShell, asked: AddPartitionsToTxnTransaction, api_version: int
) -> Errors:
    name = asked.transactional_id
    partitions = _partitions(asked.topics)
    if not name:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    await _pause(len(partitions))
    if not asked.verify_only:
        error = await transactions.add_partitions(
            name,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            partitions=partitions,
            client_version=VERSION_2,
        )
        return dict.fromkeys(partitions, error)
    errors = transactions.verify(
        name,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=partitions,
    )
    if api_version >= ABORTABLE_SINCE:
        return errors
    return {
        partition: ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.TRANSACTION_ABORTABLE
        else error
        for partition, error in errors.items()
    }


async def _pause(partitions: int) -> None:
    """Let other requests be handled, if a step was about many partitions."""
    if partitions > LARGE:
        await asyncio.sleep(0)


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _results(errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                for (_, index), error in group
            ],
        )
        for topic, group in groupby(errors.items(), key=lambda item: item[0].topic)
    ]
