"""What a broker reports of itself: replicas, groups, directories, options, refused clients."""

import json

from tests.unit.broker.live import play, produce

from odradek.broker.incidents import REFUSALS_MAX, Incidents
from odradek.wire.header import encode_request_header
from odradek.wire.messages.describe_state import DescribeStateRequest, Field


async def report(live, name, **query):
    fields = [Field(name=key, value=value) for key, value in query.items()]
    answer = await live.peer().ask(DescribeStateRequest(report=name, fields=fields))
    return json.loads(bytes(answer.body))


def test_a_leader_reports_its_offsets():
    async def story(live):
        await live.topic("t", 2)
        for _ in range(3):
            live.append(b"a")
        (replica,) = (await report(live, "replicas", topic="t", partition="0"))["replicas"]

        assert (replica["role"], replica["leo"], replica["high_watermark"]) == ("leader", 3, 3)
        assert (replica["isr"], replica["isr_min"], replica["followers"]) == ([0], 1, [])
        assert replica["open_transaction_offset"] is None
        assert len((await report(live, "replicas", topic="t"))["replicas"]) == 2
        assert (await report(live, "replicas", topic="u"))["replicas"] == []

    play(story)


def test_groups_are_reported_by_their_coordinator():
    async def story(live):
        assert await report(live, "groups") == {"groups": []}
        found = await report(live, "groups", group="g")
        assert found == {"group": "g", "is_here": False, "why": "NOT_COORDINATOR"}

    play(story)


def test_a_broker_reports_its_directories_and_options_without_their_values():
    async def story(live):
        found = await report(live, "broker")

        assert [d["is_offline"] for d in found["log_dirs"]] == [False] * len(found["log_dirs"])
        assert found["cleaner"]["is_enabled"] is True
        unknown = [{"name": "num.partitons", "similar": ["num.partitions"]}]
        assert found["unknown_options"] == unknown
        assert "secret" not in json.dumps(found)

    play(story, num_partitons="secret")


def test_clients_that_were_refused_are_recorded():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        header = bytearray(encode_request_header(3, 12, 1, "tomorrow"))
        header[2:4] = (99).to_bytes(2, "big")
        peer.send_frame(bytes(header))
        for _ in range(2):
            await live.peer().ask(produce(live.batch(b"x" * 5_000)))
        refusals = (await report(live, "broker"))["refusals"]

        assert [(r["what"], r["client_id"], r["count"]) for r in refusals] == [
            ("Produce to t: MESSAGE_TOO_LARGE", "peer", 2),
            ("Metadata version 99; served are 0-12", "tomorrow", 1),
        ]

    play(story, message_max_bytes="1000")


def test_of_many_kinds_of_refusals_the_oldest_are_dropped():
    incidents = Incidents(iter(range(1_000)).__next__)
    for n in range(REFUSALS_MAX + 1):
        incidents.refused(f"kind {n}", host="h", client_id=None, software="?")
        incidents.refused("kind 0", host="h", client_id=None, software="?")
    kinds = {refusal["what"]: refusal["count"] for refusal in incidents.as_json()}

    assert len(kinds) == REFUSALS_MAX
    assert kinds["kind 0"] == REFUSALS_MAX + 2
    assert "kind 1" not in kinds
