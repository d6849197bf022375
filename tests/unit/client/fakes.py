"""A fake cluster that answers from a list, for producers and group members in simulated time."""

import asyncio

from odradek.client.metadata import ClusterMetadata
from odradek.client.settings import ClientSettings
from odradek.model.partition import TopicPartition
from odradek.wire.header import decode_request_header
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    decode_produce,
)

PRODUCE_VERSION = 12


class FakeCluster:
    """One broker that leads every partition and returns the answers of the test."""

    def __init__(self, partitions=1, *, settings=None):
        self.settings = settings or ClientSettings()
        self.metadata = ClusterMetadata()
        self.partitions = partitions
        self.leader = 1
        self.topics = {"t"}
        self.answers = []  # of requests: a message, an exception, or a function of the request
        self.asked = []
        self.dropped = 0
        self.refreshed = 0
        self.logged = []  # the topics passed to log_errors
        self.connection = FakeConnection(self)

    async def refresh(self, topics=(), *, creating=False):
        self.refreshed += 1
        await asyncio.sleep(0.001)
        answer = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host="b", port=n) for n in (1, 2)],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    error_code=0 if name in self.topics else 3,
                    topic_id=name.encode().ljust(16),
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=i, leader_id=self.leader, leader_epoch=self.leader - 1
                        )
                        for i in range(self.partitions if name in self.topics else 0)
                    ],
                )
                for name in (sorted(self.topics) if topics is None else topics)
            ],
        )
        self.metadata.update(answer, all_topics=topics is None)
        return answer

    def log_errors(self, topics):
        self.logged.append(list(topics))

    async def broker(self, broker_id, lane=""):
        return self.connection

    async def any_broker(self):
        return self.connection

    async def coordinator(self, kind, key, lane=""):
        return self.connection

    def drop_coordinator(self, kind, key):
        self.dropped += 1

    def deadline_s(self):
        return asyncio.get_running_loop().time() + self.settings.api_timeout_ms / 1000

    def retry_pause_s(self, failures):
        return 0.1 if failures else 0.0

    async def close(self):
        pass


class FakeConnection:
    def __init__(self, cluster):
        self.cluster = cluster
        self.produced = []  # (partition, batch) in the order of arrival
        self.produce = []  # answers, one for each request: codes, an exception, or None for success
        self.next_offset = {}
        self.identities = 0
        self.features = {}
        self.versions = set()  # of the produce requests

    def version_of(self, api_key, *, version_max=None):
        return 9

    async def request(self, message, answer, *, version_max=None, timeout_ms=None):
        self.cluster.asked.append(message)
        await asyncio.sleep(0.001)
        if isinstance(message, InitProducerIdRequest) and not self.cluster.answers:
            self.identities += 1
            epoch = message.producer_epoch + 1
            return InitProducerIdResponse(producer_id=7, producer_epoch=epoch)
        reply = self.cluster.answers.pop(0) if self.cluster.answers else answer()
        if callable(reply):
            reply = reply(message)
        if asyncio.isfuture(reply):
            reply = await reply
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, answer), (message, reply)
        return reply

    async def exchange(self, api_key, encode, answer, *, version_max=None, timeout_ms=None):
        version = PRODUCE_VERSION if version_max is None else min(version_max, PRODUCE_VERSION)
        self.versions.add(version)
        frame = memoryview(b"".join(encode(version, 1, "c")))[4:]
        _, at = decode_request_header(frame)
        produce = decode_produce(frame, at, version)
        parts = [
            (TopicPartition(name, index), bytes(records))
            for name, partitions in produce.topics
            for index, records in partitions
        ]
        self.produced += parts
        reply = self.produce.pop(0) if self.produce else None
        await asyncio.sleep(0.005)
        if isinstance(reply, asyncio.Event):
            await reply.wait()
            reply = None
        if isinstance(reply, Exception):
            raise reply
        response = ProduceResponse()
        for partition, _ in parts:
            code = reply or 0
            offset = -1
            if not code:
                offset = self.next_offset.get(partition, 0)
                self.next_offset[partition] = offset + 100
            result = PartitionProduceResponse(
                index=partition.partition, error_code=code, base_offset=offset
            )
            response.responses.append(
                TopicProduceResponse(name=partition.topic, partition_responses=[result])
            )
        return response if answer else None
