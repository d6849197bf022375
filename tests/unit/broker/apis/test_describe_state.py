"""A broker's reports over the listeners of its clients."""

import json

import pytest
from tests.unit.broker.coordinators.test_group_shell import coordinated
from tests.unit.broker.live import play

from odradek.broker.apis import describe_state
from odradek.broker.error_counts import Subject
from odradek.broker.incidents import Lacks
from odradek.coord import layout
from odradek.coord.memory import MemoryStore
from odradek.log.repair.cuts import CutKind, LogCut
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.replica.failures import LASTING_MS, Failure
from odradek.wire.messages.describe_state import DescribeStateRequest, Field
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def asked(report, **query):
    fields = [Field(name=name, value=value) for name, value in query.items()]
    return DescribeStateRequest(report=report, fields=fields)


def test_it_answers_what_http_answers():
    async def story(live):
        await live.topic("t", 2)
        answer = await live.peer().ask(asked("controller", topic="t", partition="1"))

        (partition,) = json.loads(bytes(answer.body))["partitions"]
        assert (partition["topic"], partition["partition"]) == ("t", 1)
        journal = await live.peer().ask(asked("journal", topic="t"))
        says = [entry["says"] for entry in json.loads(bytes(journal.body))["entries"]]
        assert any("because the topic was created" in each for each in says)

    play(story)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asked("secrets"), "there is no report 'secrets'"),
        (asked("journal", limit="x"), "limit='x', must be a number"),
        (asked("broker", **{str(n): "" for n in range(17)}), "there is no report 'broker'"),
    ],
    ids=str,
)
def test_what_it_does_not_understand_is_refused(request_, why):
    async def story(live):
        answer = await live.peer().ask(request_)

        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert why in answer.error_message

    play(story)


def test_a_report_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(describe_state, "BYTES_MAX", 100)

    async def story(live):
        await live.topic("t", 2)
        answer = await live.peer().ask(asked("controller", topic="t"))

        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert "ask for one topic, partition or group" in answer.error_message

    play(story)


# ------------------------------------------------------------------------- who may see what

DESCRIBE = AclOperation.DESCRIBE
CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)
SECRETS = ("payroll", "pensions", "192.0.2.66", "spy")


class Only:
    """An authorizer that allows these operations on these resources, to everybody."""

    version = 0

    def __init__(self, *allowed):
        self.allowed = allowed

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return (operation, resource_type, name) in self.allowed

    def authorize_any(self, session, operation, resource_type):
        return False


async def secretive(live):
    """A cluster with the topics `open` and `payroll`, and the group `pensions`, and refusals."""
    await live.topic("open")
    await live.topic("payroll")
    peer = live.peer()
    await coordinated(live)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    for group in ("pensions", "open"):
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name="payroll", partitions=[partition])],
        )

        answer = await peer.ask(commit, 7)
        assert answer.topics[0].partitions[0].error_code == 0
    payroll = TopicPartition("payroll", 0)
    broker = live.broker
    broker.settings.invalid["payroll"] = {"retention.ms": "abc"}
    broker.incidents.cuts.note(LogCut(payroll, CutKind.TRUNCATION, "/data/a", 1, 2, 90, 2, "x"))
    broker.cleaner.uncleanable[payroll] = live.log("payroll")
    broker.cleaner.given_up[payroll] = (1, "a batch is damaged")
    failure = Failure(MonotonicMs(live.clock.monotonic_ms() - LASTING_MS), "no answer")
    broker.fetchers.failures = lambda: iter([(2, payroll, failure)])
    store = MemoryStore(live.tree)
    await store.open()
    await store.create(f"{layout.TOPICS}/payroll-2", b"{")
    await live.until(lambda: broker.controller.unreadable_topics)
    spy = live.peer(host="192.0.2.66").connection.session
    broker.incidents.counts.count(spy, 3, ErrorCode.INVALID_TOPIC_EXCEPTION, Subject("payroll"))
    broker.incidents.counts.throttled(spy, 9, "producer_byte_rate", 1.0, "spy", "")
    own = Lacks("User:ANONYMOUS", "Read", "Topic", "open", is_denied=False)
    other = Lacks("User:spy", "Read", "Topic", "payroll", is_denied=False)
    for lacks, host in ((own, "10.0.0.7"), (other, "192.0.2.66")):
        broker.incidents.refused("Fetch", host=host, client_id="app", software="x", lacks=lacks)


async def report(live, name, **query):
    answer = await live.peer().ask(asked(name, **query))
    assert answer.error_code == 0, ErrorCode(answer.error_code).name
    return bytes(answer.body).decode()


def test_describe_on_the_cluster_shows_no_names_of_others():
    async def story(live):
        await secretive(live)
        live.authorizer.chosen = Only((DESCRIBE, *CLUSTER))
        broker = live.broker.config.broker_id
        shown = [
            await report(live, "journal"),
            await report(live, "journal", broker=str(broker)),
            await report(live, "controller", broker=str(broker)),
            await report(live, "replicas"),
            await report(live, "groups"),
            await report(live, "broker"),
        ]

        assert [word for word in SECRETS for text in shown if word in text] == []
        (own,) = json.loads(shown[-1])["refusals"]
        assert own["lacks"]["principal"] == "User:ANONYMOUS"
        assert json.loads(shown[-1])["shows_clients"] is False
        assert json.loads(shown[-1])["state"] == "running"

    play(story)


def test_without_describe_on_the_cluster_there_is_no_report():
    async def story(live):
        await live.topic("open")
        everything_else = Only(
            (DESCRIBE, ResourceType.TOPIC, "open"), (AclOperation.ALTER, *CLUSTER)
        )
        live.authorizer.chosen = everything_else
        for name in ("journal", "controller", "broker", "replicas", "groups", "missing"):
            answer = await live.peer().ask(asked(name, topic="open"))
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert bytes(answer.body) == b""

    play(story)


def test_an_operator_sees_all_of_it():
    """So what the test above does not find would be there."""

    async def story(live):
        await secretive(live)
        broker = json.loads(await report(live, "broker"))
        controller = json.loads(await report(live, "controller", only="unreadable_topics"))

        assert list(broker["invalid_topic_options"]) == ["payroll"]
        assert [cut["topic"] for cut in broker["cuts"]] == ["payroll"]
        assert [each["partition"] for each in broker["cleaner"]["given_up"]] == ["payroll-0"]
        assert [each["topic"] for each in broker["fetch_problems"]] == ["payroll"]
        assert [each["topic"] for each in broker["errors"]] == ["payroll"]
        assert [each["user"] for each in broker["throttles"]] == ["spy"]
        assert list(controller["unreadable_topics"]) == ["payroll-2"]

    play(story)


def test_what_a_client_may_describe_is_shown():
    async def story(live):
        await secretive(live)
        live.authorizer.chosen = Only(
            (DESCRIBE, *CLUSTER),
            (DESCRIBE, ResourceType.TOPIC, "payroll"),
            (DESCRIBE, ResourceType.GROUP, "pensions"),
            (AclOperation.ALTER, *CLUSTER),
        )
        replicas = json.loads(await report(live, "replicas"))["replicas"]
        groups = json.loads(await report(live, "groups"))["groups"]
        entries = json.loads(await report(live, "journal"))["entries"]
        broker = json.loads(await report(live, "broker"))

        assert {each["topic"] for each in replicas} == {"payroll"}
        assert [each["group"] for each in groups] == ["pensions"]
        assert {each.get("topic") for each in entries} == {None, "payroll"}
        assert [each["host"] for each in broker["refusals"]] == ["192.0.2.66", "10.0.0.7"]
        assert broker["shows_clients"] is True

    play(story)


@pytest.mark.parametrize(
    ("name", "query", "error"),
    [
        ("replicas", {"topic": "payroll"}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("controller", {"topic": "payroll"}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("journal", {"topic": "missing"}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("groups", {"group": "pensions"}, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("groups", {"group": "missing"}, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
    ids=str,
)
def test_a_topic_or_group_that_may_not_be_described_is_refused_by_name(name, query, error):
    async def story(live):
        await live.topic("payroll")
        live.authorizer.chosen = Only((DESCRIBE, *CLUSTER))
        answer = await live.peer().ask(asked(name, **query))

        assert ErrorCode(answer.error_code) is error
        assert bytes(answer.body) == b""

    play(story)
