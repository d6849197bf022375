"""The client program of kafka-python 0.9, driven by a plan; see old/rounds.py.

For Python 2.7 and 3.6: the library has parameters of the name `async`. Its offsets are in ZooKeeper
(OffsetCommit v0).
"""

import base64
import json
import sys
import time

from kafka import KafkaClient, KafkaConsumer
from kafka.common import OffsetCommitRequest, OffsetFetchRequest, ProduceRequest
from kafka.protocol import CODEC_GZIP, CODEC_NONE, CODEC_SNAPPY, create_message_set
from kafka.version import __version__

CODECS = {"none": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY}
ACKS = {"0": 0, "1": 1, "all": -1}
TIMEOUT_S = 30


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(data):
    return None if data is None else base64.b64encode(data).decode()


def round_trip(bootstrap, asked):
    topic = asked["topic"].encode()
    group = asked["group"].encode()
    client = KafkaClient(bootstrap)
    sent = produce(client, topic, asked)
    read = []
    places = consume(bootstrap, topic, group, asked["first"], read)
    requests = [OffsetCommitRequest(topic, p, offset, b"") for p, offset in places.items()]
    for response in client.send_offset_commit_request(group, requests):
        assert response.error == 0, response
    partitions = range(asked["partitions"])
    requests = [OffsetFetchRequest(topic, p) for p in partitions]
    found = client.send_offset_fetch_request(group, requests)
    committed = {response.partition: response.offset for response in found}
    consume(bootstrap, topic, group, asked["total"] - asked["first"], read)
    consumer = KafkaConsumer(bootstrap_servers=[bootstrap], auto_offset_reset="smallest")
    ends = {p: consumer.get_partition_offsets(topic, p, -1, 1)[0] for p in partitions}
    consumer.close()
    client.close()
    return {
        "topic": asked["topic"],
        "sent": sent,
        "read": read,
        "committed": committed,
        "ends": ends,
    }


def produce(client, topic, asked):
    """In requests of twenty messages of a partition, in the order of the plan."""
    sent = [None] * len(asked["records"])
    for partition in range(asked["partitions"]):
        mine = [n for n, r in enumerate(asked["records"]) if r["partition"] == partition]
        for at in range(0, len(mine), 20):
            some = mine[at : at + 20]
            records = [asked["records"][n] for n in some]
            pairs = [(to_bytes(r["value"]), to_bytes(r["key"])) for r in records]
            messages = create_message_set(pairs, CODECS[asked["codec"]])
            responses = client.send_produce_request(
                [ProduceRequest(topic, partition, messages)],
                acks=ACKS[asked["acks"]],
                timeout=10000,
            )
            offset = responses[0].offset if responses else None
            for place, n in enumerate(some):
                sent[n] = [partition, None if offset is None else offset + place]
    return sent


def consume(bootstrap, topic, group, count, read):
    """Read so many on from the committed offsets; the offsets that follow, by partition."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=[bootstrap], group_id=group, auto_offset_reset="smallest"
    )
    places = {}
    deadline = time.time() + TIMEOUT_S
    left = count
    while left and time.time() < deadline:
        for m in consumer.fetch_messages():
            if not left:
                break
            item = {"partition": m.partition, "offset": m.offset, "timestamp": -1, "headers": []}
            item.update(key=to_text(m.key), value=to_text(m.value))
            read.append(item)
            places[m.partition] = m.offset + 1
            left -= 1
    consumer.close()
    return places


def main():
    bootstrap, _, file = sys.argv[1:]
    with open(file) as text:
        plan = json.load(text)
    rounds = [round_trip(bootstrap, asked) for asked in plan["rounds"]]
    json.dump({"client": "kafka-python " + __version__, "rounds": rounds}, sys.stdout)


if __name__ == "__main__":
    main()
