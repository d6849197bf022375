"""CVE-2018-1288: a client fetched as if it were a follower, and acknowledged what it had not."""

import pytest
from tests.unit.broker.live import fetch, fetched, play

from odradek.broker.serving.session import AllowAll
from odradek.model.acl import AclOperation
from odradek.model.errors import ErrorCode
from odradek.wire.messages.fetch import FetchPartition, ReplicaState

BY_NAME = 12


class NoClusterAction(AllowAll):
    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return operation is not AclOperation.CLUSTER_ACTION


@pytest.mark.parametrize("version", [BY_NAME, 17])
def test_only_a_broker_fetches_as_a_follower(version):
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        live.authorizer.chosen = NoClusterAction()
        asked = FetchPartition(fetch_offset=1, partition_max_bytes=1 << 20)
        if version == BY_NAME:
            request = fetch({("t", 0): asked}, replica_id=2, max_wait_ms=0)
        else:
            request = fetch({(live.partition().topic_id, 0): asked}, max_wait_ms=0)
            request.replica_state = ReplicaState(replica_id=2, replica_epoch=1)
        response = await live.peer().ask(request, version)

        assert set(fetched(response).values()) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert live.partition().leader.followers[2].leo == -1
        assert live.log().high_watermark == 0

    play(story)
