"""The scenario `group`: one consumer, then two, then one again, and one that joins later.

    1  a consumer reads all records of a topic of six partitions, and commits
    2  another one joins its group: both read on until each has three partitions
    3  the other one leaves: the first has all six
    4  the first leaves too; a third one joins, fetches the committed offsets, reads nothing again

The plan names topic, group, number of records and, where a client has several, the assignment
strategy. A program reports

    read         how many records the first consumer read
    shared       how many partitions each of the two had, in order
    alone        how many the first had when it was alone again
    committed    the committed offsets that the third one fetches, of each partition
    again        how many records the third one read

Programs poll until the expected state, or for thirty seconds.
"""

import asyncio
import json
import random
from typing import Any, Final

from odradek.client.connection import Connection
from odradek.record.records import Record, build_batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PARTITIONS: Final = 6
RECORDS_EACH: Final = 50
BEFORE_TOPIC_IDS: Final = 11
EXPECTED: Final[dict[str, Any]] = {
    "read": PARTITIONS * RECORDS_EACH,
    "shared": [PARTITIONS // 2, PARTITIONS // 2],
    "alone": PARTITIONS,
    "committed": {str(partition): RECORDS_EACH for partition in range(PARTITIONS)},
    "again": 0,
}


def plan(bootstrap: str, strategy: str = "") -> str:
    """The JSON that a program is given. Creates the topic and its records."""
    name = f"membership-{strategy or 'any'}-{random.getrandbits(40):x}"
    asyncio.run(_prepare(bootstrap, name))
    return json.dumps(
        {
            "topic": name,
            "group": f"{name}-group",
            "partitions": PARTITIONS,
            "records": PARTITIONS * RECORDS_EACH,
            "strategy": strategy,
        }
    )


async def _prepare(bootstrap: str, name: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    async with await Connection.open(host, int(port)) as connection:
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        made = await connection.request(
            CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse
        )
        assert not made.topics[0].error_code, made
        records = [Record(None, b"value %d" % n, 1_700_000_000_000) for n in range(RECORDS_EACH)]
        data = [
            PartitionProduceData(index=index, records=build_batch(records))
            for index in range(PARTITIONS)
        ]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=name, partition_data=data)],
        )
        for _ in range(100):  # a topic may exist before it has leaders
            answer = await connection.request(request, ProduceResponse)
            left = {
                p.index for t in answer.responses for p in t.partition_responses if p.error_code
            }
            if not left:
                return
            request.topic_data[0].partition_data = [each for each in data if each.index in left]
            await asyncio.sleep(0.1)
        raise AssertionError(answer)
