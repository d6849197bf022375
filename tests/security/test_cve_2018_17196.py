"""CVE-2018-17196: a produce request bypassed the checks of transactional and idempotent writes."""

import pytest
from tests.unit.broker.live import play, produce, produced

from odradek.broker.serving.session import AllowAll
from odradek.model.acl import ResourceType
from odradek.model.errors import ErrorCode

T0 = ("t", 0)


class Only(AllowAll):
    """Allows everything on these types of resources, and nothing else."""

    def __init__(self, *types):
        self.types = types

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return resource_type in self.types


@pytest.mark.parametrize(
    ("authorizer", "error"),
    [
        (Only(ResourceType.TOPIC), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (Only(ResourceType.TRANSACTIONAL_ID), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_transactional_write_needs_both_rights(authorizer, error):
    async def story(live):
        await live.topic("t", 1)
        live.authorizer.chosen = authorizer
        batch = live.batch(
            b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
        )
        response = await live.peer().ask(produce(batch, transactional_id="x"))
        assert produced(response) == {T0: error}
        assert live.log().leo == 0

    play(story)
