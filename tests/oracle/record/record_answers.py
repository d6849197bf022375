"""Send every malformed batch to a broker and print its answers: `answers.txt`.

    python tests/oracle/record/record_answers.py HOST:PORT > tests/oracle/record/answers.txt

The table was made by Apache Kafka 3.9.2 with its default options. A line has the name, the
topic's configuration, the version of Produce, the batch in hex, the error, by how much the log end
offset moved, and the indexes of the refused records.
"""

import asyncio
import pathlib
import sys
from collections.abc import AsyncIterator

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from tests.oracle.record.malformed import Case, cases

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC_OF = {
    config: f"answers-{number}"
    for number, config in enumerate(sorted({case.config for case in cases()}))
}
LATEST = -1


async def make_topics(connection: Connection) -> None:
    """A topic of one partition for each configuration."""
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=option, value=value)
                for option, _, value in [config.partition("=")]
                if option
            ],
        )
        for config, name in TOPIC_OF.items()
    ]
    response = await connection.request(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
    for topic in response.topics:
        if topic.error_code:
            raise SystemExit(f"{topic.name}: {topic.error_message}")


async def log_end(connection: Connection, topic: str) -> int:
    """The partition's log end offset, as soon as it has a leader."""
    for _ in range(50):
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        response = await connection.request(request, ListOffsetsResponse)
        answer = response.topics[0].partitions[0]
        if not answer.error_code:
            return answer.offset
        await asyncio.sleep(0.1)
    raise SystemExit(f"{topic}: {ErrorCode(answer.error_code).name}")


async def answer_to(connection: Connection, case: Case) -> str:
    """The broker's answer, as the last fields of a line."""
    topic = TOPIC_OF[case.config]
    before = await log_end(connection, topic)
    partition = PartitionProduceData(index=0, records=case.batch)
    request = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    response = await connection.request(request, ProduceResponse, version_max=case.api_version)
    answer = response.responses[0].partition_responses[0]
    moved = await log_end(connection, topic) - before
    blamed = ",".join(str(error.batch_index) for error in answer.record_errors)
    return f"{ErrorCode(answer.error_code).name}|{moved}|{blamed}"


async def answers(address: str) -> AsyncIterator[str]:
    """All lines of `answers.txt`."""
    host, port = address.rsplit(":", 1)
    async with await Connection.open(host, int(port)) as connection:
        await make_topics(connection)
        for case in cases():
            fields = (case.name, case.config, str(case.api_version), case.batch.hex())
            yield "|".join((*fields, await answer_to(connection, case)))


async def main(address: str) -> None:
    async for line in answers(address):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
