"""DescribeCluster: the brokers, with the addresses of the client's listener."""

import pytest
from tests.unit.broker.live import play

from odradek.model.errors import ErrorCode
from odradek.wire.messages.describe_cluster import DescribeClusterRequest


def test_brokers_controller_and_id():
    async def story(live):
        response = await live.peer().ask(DescribeClusterRequest())

        assert response.error_code == ErrorCode.NONE
        assert response.cluster_id == live.broker.cluster_id
        assert len(response.cluster_id) == 22
        assert response.controller_id == 0
        assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [
            (0, "b0", 9092, "r1")
        ]

    play(story, broker_rack="r1")


def test_addresses_are_those_of_the_listener_that_was_asked():
    async def story(live):
        for port, host in ((9092, "inside"), (9093, "outside")):
            response = await live.peer(port).ask(DescribeClusterRequest())
            assert [(b.host, b.port) for b in response.brokers] == [(host, port)]

    play(
        story,
        listeners="IN://b0:9092,OUT://b0:9093",
        advertised_listeners="IN://inside:9092,OUT://outside:9093",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="IN",
    )


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_there_are_brokers_and_no_controllers_to_be_described(endpoint_type, error):
    async def story(live):
        response = await live.peer().ask(DescribeClusterRequest(endpoint_type=endpoint_type))

        assert response.error_code == error
        assert bool(response.brokers) is (error is ErrorCode.NONE)

    play(story)


def test_the_id_of_the_cluster_outlives_its_brokers():
    async def story(live):
        before = live.broker.cluster_id
        await live.restart()

        assert live.broker.cluster_id == before

    play(story)
