"""Requests to the controller, and to the next one after a change."""

import asyncio

import pytest

from odradek.broker.cluster.peers import PeerError
from odradek.broker.controller.link import ControllerLink
from odradek.model.cluster import Broker, EndPoint
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

QUESTION = ControlledShutdownRequest(broker_id=1)
OWN = ControlledShutdownResponse()


class Cache:
    def __init__(self, controller_id=-1):
        self.controller_id = controller_id
        self.brokers = {}

    def put(self, id_, port=9092, listener="INTERNAL"):
        point = EndPoint(
            listener=listener, security_protocol="PLAINTEXT", host=f"b{id_}", port=port
        )
        self.brokers[id_] = Broker(id=id_, end_points=(point,))


class FakePeer:
    def __init__(self, host, port):
        self.address = host, port
        self.closed = False

    async def ask(self, request, kind):
        return self.address, request, kind

    def close(self):
        self.closed = True


class Stage:
    def __init__(self, controller_id=-1):
        self.cache = Cache(controller_id)
        self.peers = []
        self.link = ControllerLink(
            broker_id=1,
            listener="INTERNAL",
            cache=self.cache,
            own=self.own,
            make_peer=self.make,
        )

    async def own(self, request):
        assert request is QUESTION
        return OWN

    def make(self, host, port):
        self.peers.append(FakePeer(host, port))
        return self.peers[-1]

    def ask(self):
        return asyncio.run(self.link.ask(QUESTION, ControlledShutdownResponse))


def test_there_is_no_controller():
    with pytest.raises(PeerError, match="no controller is known"):
        Stage().ask()


def test_a_controller_that_is_not_registered():
    with pytest.raises(PeerError, match="no controller is known"):
        Stage(2).ask()


def test_the_controller_of_this_broker_is_called_directly():
    stage = Stage(1)
    stage.cache.put(1)
    assert stage.ask() is OWN
    assert stage.peers == []


def test_another_controller_is_sent_requests_over_one_connection_to_its_inter_broker_listener():
    stage = Stage(2)
    stage.cache.put(2, port=9500)
    assert stage.ask() == (("b2", 9500), QUESTION, ControlledShutdownResponse)
    stage.ask()
    assert len(stage.peers) == 1


def test_the_next_controller_is_sent_requests_over_another_connection():
    stage = Stage(2)
    stage.cache.put(2)
    stage.cache.put(3)
    stage.ask()
    stage.cache.controller_id = 3
    assert stage.ask() == (("b3", 9092), QUESTION, ControlledShutdownResponse)
    assert [peer.closed for peer in stage.peers] == [True, False]


def test_a_controller_without_a_listener_for_brokers():
    stage = Stage(2)
    stage.cache.put(2, listener="EXTERNAL")
    with pytest.raises(PeerError, match="controller 2 has no listener INTERNAL"):
        stage.ask()


def test_the_connection_is_closed():
    stage = Stage(2)
    stage.link.close()
    stage.cache.put(2)
    stage.ask()
    stage.link.close()
    assert stage.peers[0].closed
