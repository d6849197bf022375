"""Answers with an error in place of the next requests."""

import pytest
from tests.unit.broker.every_api import EXAMPLES
from tests.unit.broker.live import play, produce

from odradek.broker.faults.failing import (
    FailingAnswers,
    OrderedFailure,
    api_of,
    code_of,
    error_answer,
    tickets_in,
)
from odradek.broker.faults.gate import FaultError
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.codec import decoder, encoder
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import Message

REFUSED = {"AlterClientQuotas", "AlterReplicaLogDirs", "AlterUserScramCredentials", "ApiVersions"}
# Their answers have no error of the request and none of what it names.
WITHOUT_ERROR = {"DescribeLogDirs", "ListPartitionReassignments"}
ANSWERED = [
    example
    for example in EXAMPLES
    if APIS[example.api].name not in REFUSED | WITHOUT_ERROR and APIS[example.api].served.last >= 0
]


def codes(message):
    """Every error code in a message."""
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        for each in value if isinstance(value, list) else ():
            yield from codes(each) if isinstance(each, Message) else ()


@pytest.mark.parametrize("example", ANSWERED, ids=str)
def test_every_answer_has_the_error_in_every_version(example):
    async def story(live):
        await live.topic("t", partitions=2)
        for version in range(APIS[example.api].served.first, example.last + 1):
            request = example.request(live, version)
            made = error_answer(request, version, ErrorCode.REQUEST_TIMED_OUT)
            sent = encoder(type(made), version)(made)
            received, _ = decoder(type(made), version)(memoryview(sent), 0)
            assert ErrorCode.REQUEST_TIMED_OUT in set(codes(received)), (version, received)

    play(story)


def test_a_produce_request_fails_in_each_of_its_partitions():
    async def story(live):
        await live.topic("t")
        made = error_answer(produce(live.batch(b"a")), 9, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        (topic,) = made.responses
        assert topic.name == "t"
        assert [(p.index, p.error_code) for p in topic.partition_responses] == [
            (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ]

    play(story)


@pytest.fixture
def tickets(tmp_path):
    def make(count):
        made = [tmp_path / f"{n}.ticket" for n in range(count)]
        for each in made:
            each.touch()
        return tickets_in(map(str, made))

    return make


def test_only_the_ordered_number_of_requests_fail_and_take_no_effect(tickets):
    async def story(live):
        await live.topic("t")
        answers = FailingAnswers(live.broker.server.wrap_frames)
        answers.order(OrderedFailure(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, tickets(2)))
        peer = live.peer()
        found = []
        for _ in range(3):
            response = await peer.ask(produce(live.batch(b"a")))
            found.append(response.responses[0].partition_responses[0].error_code)

        failed = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found == [failed, failed, ErrorCode.NONE]
        assert live.log("t").leo == 1
        assert live.broker.server.frame == live.broker.requests.frame  # nothing in between

    play(story)


def test_two_brokers_with_the_same_tickets_fail_one_request_together(tickets):
    async def story(live):
        await live.topic("t")
        (ticket,) = tickets_in(["used by another broker"])
        answers = FailingAnswers(live.broker.server.wrap_frames)
        answers.order(OrderedFailure(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, (ticket,)))
        response = await live.peer().ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        assert response.topics[0].error_code == 0

    play(story)


@pytest.mark.parametrize("client_id", ["broker-1-fetcher", "odradek-testkit"])
def test_requests_of_brokers_and_of_the_kit_do_not_fail(tickets, client_id):
    async def story(live):
        await live.topic("t")
        answers = FailingAnswers(live.broker.server.wrap_frames)
        answers.order(OrderedFailure(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, tickets(1)))
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        peer = live.peer()
        peer.client_id = client_id
        assert (await peer.ask(wanted)).topics[0].error_code == 0
        failed = await live.peer().ask(wanted)
        assert failed.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert failed.topics[0].name == "t"

    play(story)


def test_names_are_kafkas_and_wrong_ones_are_explained():
    assert api_of("Produce") is ApiKey.PRODUCE
    assert api_of("JOIN_GROUP") is ApiKey.JOIN_GROUP
    assert code_of("not_leader_or_follower") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for wrong in ("Prodice", "ApiVersions"):
        with pytest.raises(FaultError, match=wrong):
            api_of(wrong)
    with pytest.raises(FaultError, match="NOT_MY_ERROR"):
        code_of("NOT_MY_ERROR")
