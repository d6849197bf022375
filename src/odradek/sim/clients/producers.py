"""Simulated producers: they send, lose responses, send again, and keep what was acknowledged.

torrent      acks 1, one or two records at a time, without a pause: the leader always has a tail
             that its followers lack, and loses it if its host loses power
plain        acks 0, 1 or all; sends the same batch again, so a record may be written twice
idempotent   acks all, with sequences; sends the same batch again until it gets a response. After
             OUT_OF_ORDER_SEQUENCE_NUMBER, or after giving up without a response, it begins again
             with another producer id, as Java's producer does
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.client.connection import Connection
from odradek.model.errors import RETRIABLE, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.compression import Codec
from odradek.record.message_set import write_messages
from odradek.record.records import Record, build_batch
from odradek.sim.checks.history import Facts, Topic, value_of
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.traits import Trait
from odradek.wire.api_keys import ApiKey
from odradek.wire.codec import encoder
from odradek.wire.header import encode_request_header
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

GIVE_UP_S: Final = 20.0
ALL: Final = -1
ACKS: Final = (ALL, ALL, 1, 1, 0)
ACKS_ALONE: Final = (1, ALL)
BATCH_RECORDS_ALONE: Final = (1, 1, 2, 3, 6)
BATCH_RECORDS: Final = (1, 2, 8, 20, 40)
TORRENT_EACH_SECOND: Final = 12.0
VERSIONS: Final = (3, 5, 8, 9, 11)
CODECS: Final = (
    Codec.NONE,
    Codec.NONE,
    Codec.NONE,
    Codec.LZ4,
    Codec.ZSTD,
    Codec.SNAPPY,
    Codec.GZIP,
)
OLD_VERSIONS: Final = (0, 1, 2)  # with messages of format v0, in version 2 also of v1
OLD_CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
# What ends the session of an idempotent producer.
FENCED: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


@dataclass(slots=True)
class Pending:
    """A batch without a definite response."""

    partition: TopicPartition
    facts: Facts
    keys: list[bytes]
    batch: bytes


class SimulatedProducer:
    """A producer without transactions; its kind, acks, codec and version are drawn."""

    def __init__(
        self, workload: "Workload", client: Client, name: str, *, torrent: bool = False
    ) -> None:
        self._workload = workload
        self._client = client
        self._random = client.random
        self._name = name
        self._sent = 0
        self._is_idempotent = self._random.random() < 0.6
        plain = ACKS if workload.replication_factor > 1 else ACKS_ALONE
        self._acks = ALL if self._is_idempotent else self._random.choice(plain)
        sizes = BATCH_RECORDS if workload.replication_factor > 1 else BATCH_RECORDS_ALONE
        self._sizes: tuple[int, ...] = sizes
        self._each_second = workload.produces_each_second
        if torrent:
            self._is_idempotent, self._acks = False, 1
            self._sizes, self._each_second = (1, 2), TORRENT_EACH_SECOND
        self._codec = self._random.choice(CODECS)
        self._version = 11 if self._codec is Codec.ZSTD else self._random.choice(VERSIONS)
        if Trait.OLD in workload.traits and self._codec is Codec.ZSTD:
            self._codec = Codec.LZ4  # zstd is not for readers of messages
        self._magic = 2
        is_old = Trait.OLD in workload.traits and not self._is_idempotent and self._acks
        if is_old and self._random.random() < 0.7:
            self._version = self._random.choice(OLD_VERSIONS)
            self._magic = self._random.randint(0, 1) if self._version > 1 else 0
            self._codec = self._random.choice(OLD_CODECS)
        self._producer_id = -1
        self._sequences: dict[TopicPartition, int] = {}
        # The leader epoch in which its last batch was acknowledged.
        self._leader_epochs: dict[TopicPartition, int] = {}
        # The topic's id then.
        self._topic_ids: dict[TopicPartition, bytes] = {}

    async def run(self) -> None:
        """Send until the workload ends."""
        while not self._workload.is_over:
            await asyncio.sleep(self._random.expovariate(self._each_second))
            topics = self._workload.topics
            if not topics:
                continue
            topic = self._random.choice(topics)
            if self._is_idempotent and self._producer_id < 0:
                await self._begin_session()
                if self._producer_id < 0:
                    return  # the workload ended before it got a producer id
            pending = {p.partition: p for p in self._batches(topic)}
            await self._deliver(pending)
            if pending:
                self._producer_id = -1  # whether they were written is not known

    async def _begin_session(self) -> None:
        while self._producer_id < 0 and not self._workload.is_over:
            try:
                leader = await self._client.controller()
                answer = await leader.request(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                    InitProducerIdResponse,
                )
            except TROUBLE:
                await self._client.begin_anew()
                continue
            if answer.error_code:
                self._workload.expect_retriable("InitProducerId", answer.error_code)
                await self._client.pause()
            else:
                self._workload.producer_id_given(answer.producer_id)
                self._producer_id = answer.producer_id
                self._sequences.clear()
                self._leader_epochs.clear()
                self._topic_ids.clear()

    def _batches(self, topic: Topic) -> list[Pending]:
        random = self._random
        count = min(topic.partitions, random.choice((1, 1, 1, 2, 3)))
        return [
            self._batch(topic, index)
            for index in sorted(random.sample(range(topic.partitions), count))
        ]

    def _batch(self, topic: Topic, index: int) -> Pending:
        count = self._random.choice(self._sizes)
        keys = [f"{self._name}/{self._sent + n}".encode() for n in range(count)]
        self._sent += count
        for key in keys:
            self._workload.history.sending(key, topic, index, idempotent=self._is_idempotent)
        partition = TopicPartition(topic.name, index)
        now_ms = self._workload.wall_ms()
        records = [Record(key, value_of(key), now_ms, (), n) for n, key in enumerate(keys)]
        if self._magic < 2:
            batch = bytes(write_messages(records, magic=self._magic, codec=self._codec))
        elif self._is_idempotent:
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + count
            batch = build_batch(
                records,
                codec=self._codec,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
        else:
            batch = build_batch(records, codec=self._codec)
        return Pending(partition, self._workload.history.of(topic, index), keys, batch)

    async def _deliver(self, pending: dict[TopicPartition, Pending]) -> None:
        """Send until each batch has a definite response; the rest in `pending` is given up."""
        give_up_s = self._workload.now_s() + GIVE_UP_S
        while pending and self._workload.now_s() < give_up_s:
            try:
                leader = await self._client.leader(next(iter(pending)))
                there = [
                    p for p in pending.values() if await self._client.leader(p.partition) is leader
                ]
                await self._send(leader, there, pending)
            except TROUBLE:
                await self._client.begin_anew()
            else:
                if pending:
                    await self._client.pause()

    async def _send(
        self,
        leader: Connection,
        batches: Sequence[Pending],
        pending: dict[TopicPartition, Pending],
    ) -> None:
        data = [
            TopicProduceData(
                name=p.partition.topic,
                partition_data=[PartitionProduceData(index=p.facts.index, records=p.batch)],
            )
            for p in batches
        ]
        request = ProduceRequest(acks=self._acks, timeout_ms=2_000, topic_data=data)
        if not self._acks:
            await leader.exchange(ApiKey.PRODUCE, partial(_framed, request), None)
            for sent in batches:
                del pending[sent.partition]  # acks=0: there is no response
            return
        began = {p.partition: self._leader_epoch(leader, p) for p in batches}
        answer = await leader.request(request, ProduceResponse, version_max=self._version)
        for topic in answer.responses:
            for outcome in topic.partition_responses:
                sent = pending[TopicPartition(topic.name, outcome.index)]
                epochs = began[sent.partition], self._leader_epoch(leader, sent)
                self._outcome(pending, sent, outcome, epochs)
        if pending:
            await self._client.refresh(sorted({p.partition.topic for p in batches}))

    def _leader_epoch(self, leader: Connection, batch: Pending) -> int:
        return self._workload.leader_epoch_at(leader, batch.facts)

    def _outcome(
        self,
        pending: dict[TopicPartition, Pending],
        sent: Pending,
        outcome: PartitionProduceResponse,
        epochs: tuple[int, int],
    ) -> None:
        """`epochs`: the leader epochs of the broker at the request and at the response."""
        workload, facts = self._workload, sent.facts
        error = ErrorCode(outcome.error_code)
        if error is ErrorCode.NONE:
            del pending[sent.partition]
            # A broker that was killed after its response has no leader epoch any more.
            self._leader_epochs[sent.partition] = max(epochs)
            self._topic_ids[sent.partition] = facts.topic.id
            # Produce names the topic: a new topic of the same name may have got the batch.
            if not facts.topic.is_doomed:
                by_all = self._acks == ALL
                workload.history.acked(facts, outcome.base_offset, sent.keys, by_all=by_all)
                workload.succeeded()
        elif self._is_idempotent and error in FENCED:
            # A former leader may lack batches that a later leader has acknowledged, and a new topic
            # of the same name has none of the batches before: sequences go on, as those of clients.
            is_new = self._topic_ids.get(sent.partition, facts.topic.id) != facts.topic.id
            if not is_new and epochs[0] >= self._leader_epochs.get(sent.partition, -1):
                workload.fenced(facts, error)
            del pending[sent.partition]
            self._producer_id = -1
        elif error not in RETRIABLE:
            workload.unexpected(f"Produce to {facts}: {error.name}: {outcome.error_message}")
            del pending[sent.partition]


def _framed(
    request: ProduceRequest, version: int, correlation_id: int, client_id: str
) -> tuple[bytes, ...]:
    """A produce request as a frame: size, header, body."""
    header = encode_request_header(ApiKey.PRODUCE, version, correlation_id, client_id)
    body = encoder(ProduceRequest, version)(request)
    return (len(header) + len(body)).to_bytes(4), header, body
