"""A broker's reports over the listeners of its clients."""

import json

import pytest
from tests.unit.broker.live import play

from odradek.broker.apis import describe_state
from odradek.model.errors import ErrorCode
from odradek.wire.messages.describe_state import DescribeStateRequest, Field


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
