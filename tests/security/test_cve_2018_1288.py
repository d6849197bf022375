"""CVE-2018-1288: a client fetched as a follower, and acknowledged records that no replica had."""

import pytest
from tests.unit.broker.live import fetch, part_of, play

from odradek.coord import layout
from odradek.model.cluster import Broker, EndPoint
from odradek.model.errors import ErrorCode
from odradek.wire.messages.fetch import ReplicaState

BY_NAME, BY_ID = 12, 17


class Denied:
    """Allows everything but ClusterAction."""

    version = 1

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return operation.name != "CLUSTER_ACTION"


async def follow(live, replica_id, *, epoch=None, offset=1):
    """Fetch as a follower that has everything below the offset."""
    if epoch is None:
        request = fetch({("t", 0): offset}, replica_id=replica_id, max_wait_ms=0)
        return part_of(await live.peer().ask(request, BY_NAME))
    request = fetch({(live.partition().topic_id, 0): offset}, max_wait_ms=0)
    request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=epoch)
    return part_of(await live.peer().ask(request, BY_ID))


def acknowledged(live, replica_id):
    return live.partition().leader.followers[replica_id].leo


async def register(live, broker_id):
    """Register a broker in the store. Returns its broker epoch, once the brokers have read it."""
    point = EndPoint(
        listener="PLAINTEXT", security_protocol="PLAINTEXT", host=f"b{broker_id}", port=9092
    )
    data = layout.encode_broker(Broker(id=broker_id, end_points=(point,)), timestamp_ms=1)
    path = layout.broker_path(broker_id)
    await live.store.create(path, data, ephemeral=True)
    stat = await live.store.exists(path)
    await live.until(lambda: live.broker.features.broker_epochs.get(broker_id) == stat.created_id)
    return stat.created_id


@pytest.mark.parametrize("epoch", [None, 1])
def test_a_client_without_cluster_action_does_not_follow(epoch):
    async def story(live):
        await live.order(replicas=(0, 2))
        live.append(b"a")
        live.authorizer.chosen = Denied()
        part = await follow(live, 2, epoch=epoch)

        assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not part.records
        assert acknowledged(live, 2) == -1
        assert live.log().high_watermark == 0

    play(story)


@pytest.mark.parametrize("epoch", [None, 1])
def test_a_broker_that_is_not_registered_does_not_follow(epoch):
    async def story(live):
        await live.order(replicas=(0, 9))  # broker 9 is not in the metadata
        live.append(b"a")
        part = await follow(live, 9, epoch=epoch)

        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not part.records
        assert acknowledged(live, 9) == -1
        assert live.log().high_watermark == 0

    play(story)


def test_an_earlier_registration_of_a_broker_does_not_follow():
    async def story(live):
        epoch = await register(live, 2)
        await live.order(replicas=(0, 2))
        live.append(b"a")
        part = await follow(live, 2, epoch=epoch - 1)

        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert acknowledged(live, 2) == -1
        assert live.log().high_watermark == 0

    play(story)


@pytest.mark.parametrize("more", [None, -1, 0, 1], ids=["without", "-1", "same", "newer"])
def test_a_registered_broker_follows(more):
    """Before version 15 of Fetch there is no broker epoch; a broker may not know its own yet."""

    async def story(live):
        epoch = await register(live, 2)
        await live.order(replicas=(0, 2))
        live.append(b"a")
        sent = {None: None, -1: -1, 0: epoch, 1: epoch + 1}[more]
        part = await follow(live, 2, epoch=sent)

        assert part.error_code == ErrorCode.NONE
        assert acknowledged(live, 2) == 1
        assert live.log().high_watermark == 1

    play(story)
