"""Which topics of a stream were deleted, with brokers that may have just started."""

import asyncio
from types import SimpleNamespace

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.spark.options import read_options
from odradek.spark.stream_topics import StreamTopics
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Brokers:
    """Answers in turn; the last answer stays. A topic is its id and its partition count."""

    def __init__(self, *answers, timeout_ms=10_000):
        self.settings = SimpleNamespace(api_timeout_ms=timeout_ms)
        self.asked = 0
        self._answers = list(answers)
        self._now = self._answers[0]

    async def refresh(self, names, *, creating=False):
        if names is not None:
            self._now = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            self.asked += 1
        return MetadataResponse(topics=[self._topic(name) for name in names or self._now])

    def _topic(self, name):
        if name not in self._now:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic_id, count = self._now[name]
        parts = [MetadataResponsePartition(partition_index=number) for number in range(count)]
        return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=parts)

    def topic_id(self, name):
        return self._now[name][0]


def stream(**options):
    given = {"kafka.bootstrap.servers": "localhost:1", **options}
    return StreamTopics(read_options(given, streaming=True))


def look(topics, brokers, begun=()):
    return asyncio.run(topics.look(brokers, begun))


def test_a_topic_missing_in_a_brokers_metadata_is_waited_for():
    brokers = Brokers({}, {}, {"a": (b"1", 2)})

    seen = look(stream(subscribe="a"), brokers, [A0, A1])

    assert (seen.partitions, seen.missing, seen.replaced) == ([A0, A1], [], [])
    assert brokers.asked == 3


def test_the_offsets_of_a_topic_that_stays_missing_are_kept():
    seen = look(stream(subscribe="a,b"), Brokers({"b": (b"2", 1)}, timeout_ms=0), [A0, A1, B0])

    assert (seen.partitions, seen.missing, seen.kept) == ([B0], ["a"], [A0, A1, B0])


def test_a_deleted_topic_is_waited_for_once():
    topics = stream(subscribe="a,b")
    look(topics, Brokers({"b": (b"2", 1)}, timeout_ms=0), [A0, B0])
    brokers = Brokers({"b": (b"2", 1)})

    seen = look(topics, brokers, [A0, B0])

    assert (seen.missing, brokers.asked) == (["a"], 1)


def test_another_topic_with_the_name_has_other_offsets():
    topics = stream(subscribe="a")
    look(topics, Brokers({"a": (b"1", 2)}), [A0, A1])
    other = Brokers({"a": (b"2", 2)})

    first = look(topics, other, [A0, A1])
    assert (first.partitions, first.replaced, first.kept) == ([], ["a"], [])
    # Until the query has dropped its offsets the topic is not read, however often it is looked up.
    assert look(topics, other, [A0, A1]) == first
    assert look(topics, other).partitions == [A0, A1]
    assert look(topics, other, [A0, A1]).replaced == []


def test_a_list_of_topics_may_lack_a_topic_of_the_query():
    topics = stream(subscribePattern="^a$")
    brokers = Brokers({"b": (b"2", 1)}, {"b": (b"2", 1)}, {"a": (b"1", 1), "b": (b"2", 1)})

    seen = look(topics, brokers, [A0])

    assert (seen.partitions, seen.missing) == ([A0], [])


def test_a_pattern_matches_anywhere_in_a_name():
    brokers = Brokers({"orders.eu-1": (b"1", 1), "other": (b"2", 1)})

    seen = look(stream(subscribePattern="eu.1"), brokers)

    assert seen.partitions == [TopicPartition("orders.eu-1", 0)]


def test_what_the_options_no_longer_name_is_not_kept():
    brokers = Brokers({"a": (b"1", 2), "b": (b"2", 1)})

    assert look(stream(subscribe="a"), brokers, [A0, B0]).kept == [A0]
    assert look(stream(assign='{"a":[1]}'), brokers, [A0, A1]).kept == [A1]
