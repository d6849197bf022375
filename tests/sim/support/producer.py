"""A transactional producer for scenarios: each request is repeated until it succeeds."""

import asyncio

from odradek.model.partition import TopicPartition
from odradek.record.records import Record, build_batch
from odradek.sim.clients.client import TROUBLE
from odradek.sim.world.clock import EPOCH_MS
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

PATIENCE_S = 120.0
GROUPS, TRANSACTIONS = 0, 1
V2_PRODUCE, V2_END, V2_COMMIT = 12, 5, 5


class Producer:
    """A producer with transactions of version 2."""

    def __init__(self, client, name="x", timeout_ms=60_000):
        self.client, self.name, self.timeout_ms = client, name, timeout_ms
        self.id, self.epoch = -1, -1
        self.sequences = {}

    async def answered(self, ask):
        """Repeat a request until a response has no error. Returns the response."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while True:
            assert loop.time() < deadline_s, "no answer without an error"
            try:
                answer, error = await ask()
            except TROUBLE:
                await self.client.begin_anew()
                continue
            if not error:
                return answer
            cluster = await self.client.cluster()
            cluster.drop_coordinator(TRANSACTIONS, self.name)
            await asyncio.sleep(0.1)

    async def _coordinator(self, request, response, kind=TRANSACTIONS, key=None, **fields):
        async def ask():
            cluster = await self.client.cluster()
            coordinator = await cluster.coordinator(kind, key or self.name)
            answer = await coordinator.request(request, response, **fields)
            return answer, answer.error_code

        return await self.answered(ask)

    async def init(self):
        answer = await self._coordinator(
            InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=self.timeout_ms
            ),
            InitProducerIdResponse,
        )
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def write(self, partition, value, *, leader):
        """Write to the broker with this id: others may not have the topic in their metadata."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + 1
        batch = build_batch(
            [Record(None, value, EPOCH_MS)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=partition.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=2_000,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )

        async def ask():
            connection = await (await self.client.cluster()).broker(leader)
            answer = await connection.request(request, ProduceResponse, version_max=V2_PRODUCE)
            return answer, answer.responses[0].partition_responses[0].error_code

        await self.answered(ask)

    async def commit_offset(self, group, place: TopicPartition, offset, *, coordinator):
        """Commit a group's offset in the transaction, at the broker with this id."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=place.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=place.partition, committed_offset=offset
                        )
                    ],
                )
            ],
        )

        async def ask():
            connection = await (await self.client.cluster()).broker(coordinator)
            answer = await connection.request(
                request, TxnOffsetCommitResponse, version_max=V2_COMMIT
            )
            return answer, answer.topics[0].partitions[0].error_code

        await self.answered(ask)

    async def end(self, *, commit):
        answer = await self._coordinator(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            EndTxnResponse,
            version_max=V2_END,
        )
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
