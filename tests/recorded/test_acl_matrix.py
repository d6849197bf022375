"""Each request, in each situation of ACLs, is answered as by a broker of Apache Kafka 3.9.2.

Kafka's answers were recorded by `tests/clients/support/acl_matrix.py`.
"""

import asyncio

import pytest
from tests.recorded.acl_matrix import answers
from tests.recorded.acl_matrix.cluster import MatrixCluster
from tests.recorded.acl_matrix.probes import BROKER_ID, PROBES
from tests.recorded.acl_matrix.situations import ADMIN, SITUATIONS
from tests.unit.broker.live import LOG_DIRS, play

from odradek.broker.admin.acls import ACL_AUTHORIZER
from odradek.broker.serving.session import ANONYMOUS

CASES_MIN = 2_000
# A part of the situations, so that they are played in parallel.
PARTS = 4


class LiveWorld:
    """Asks the broker of a test; its connections are those of a principal on a host."""

    def __init__(self, live) -> None:
        self._live = live
        self._peers = {}

    async def ask(self, client, request, version=None):
        peer = self._peers.get(client)
        if peer is None or peer.closed:
            peer = self._peers[client] = self._live.peer(host=client.host)
            session = peer.connection.session
            session.principal, session.security_protocol = client.principal, "SASL_PLAINTEXT"
        try:
            return await peer.ask(request, version)
        except asyncio.CancelledError:
            raise ConnectionResetError("closed by the broker") from None


def differences_in(situations, *, allow_if_no_acl):
    """What differs between Kafka's answers and ours."""
    _, recorded = answers.read()
    places = {situation: place for place, situation in enumerate(SITUATIONS)}
    found = []

    async def story(live):
        cluster = MatrixCluster(LiveWorld(live))
        await cluster.prepare()
        for situation in situations:
            ours = await cluster.answers(situation, PROBES)
            for probe, answer in zip(PROBES, ours, strict=True):
                of_kafka = recorded[probe.name]
                expected = of_kafka.answers[of_kafka.at[places[situation]]]
                found.extend(
                    f"{probe} in {situation}: {difference}"
                    for difference in answers.differences(expected, answer)
                )

    play(
        story,
        broker_id=BROKER_ID,
        log_retention_ms=-1,
        log_dirs=LOG_DIRS[0],
        authorizer_class_name=ACL_AUTHORIZER,
        super_users=f"{ADMIN};{ANONYMOUS}",
        delegation_token_secret_key="the key of the tokens",
        allow_everyone_if_no_acl_found=str(allow_if_no_acl).lower(),
    )
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_the_answers_are_those_of_kafka(part):
    restricted = [each for each in SITUATIONS if not each.allow_if_no_acl]

    found = differences_in(restricted[part::PARTS], allow_if_no_acl=False)

    assert not found, "\n".join(found)


def test_the_answers_are_those_of_kafka_if_all_may_use_what_has_no_acl():
    unrestricted = [each for each in SITUATIONS if each.allow_if_no_acl]

    found = differences_in(unrestricted, allow_if_no_acl=True)

    assert not found, "\n".join(found)


def test_the_recording_is_that_of_the_present_matrix():
    situations, recorded = answers.read()

    assert situations == [answers.as_text(situation) for situation in SITUATIONS]
    assert list(recorded) == [probe.name for probe in PROBES]
    assert [p.name for p in PROBES if not answers.is_of(recorded[p.name], p)] == []
    assert {len(each.at) for each in recorded.values()} == {len(SITUATIONS)}
    assert len(SITUATIONS) * len(PROBES) >= CASES_MIN
