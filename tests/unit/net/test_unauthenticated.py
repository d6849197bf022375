"""Connections that are not authenticated: the limits for all of them together."""

import pytest

from odradek.net.unauthenticated import CONNECTION_BYTES, Unauthenticated, network_of


class Peer:
    """A connection, as far as the limits use it."""

    def __init__(self, host="10.0.0.1", listener="SSL"):
        self.peer_host, self.listener = host, listener
        self.memory_bytes = 0
        self.aborted = False

    def abort(self):
        self.aborted = True


class Broker:
    def __init__(self, **limits):
        self.ms, self.soon, self.reasons = 0, [], []
        self.unauthenticated = Unauthenticated(
            monotonic_ms=lambda: self.ms,
            soon=self.soon.append,
            dropped=lambda _, reason: self.reasons.append(reason),
        )
        for name, value in limits.items():
            setattr(self.unauthenticated, name, value)

    def accept(self, *address):
        peer = Peer(*address)
        self.unauthenticated.enter(peer)
        return peer

    def grow(self, peer, more):
        peer.memory_bytes += more
        self.unauthenticated.holds(peer, more)

    def run(self):
        while self.soon:
            self.soon.pop(0)()


def test_connections_above_the_memory_limit_are_closed_the_first_accepted_first():
    broker = Broker(bytes_max=3 * CONNECTION_BYTES)
    peers = [broker.accept() for _ in range(5)]
    assert not any(peer.aborted for peer in peers), "not inside of the callback that accepts"
    broker.run()

    assert [peer.aborted for peer in peers] == [True, True, False, False, False]
    assert broker.unauthenticated.memory_bytes == 3 * CONNECTION_BYTES
    assert (len(broker.unauthenticated), broker.unauthenticated.dropped_connections) == (3, 2)
    (reason,) = broker.reasons
    assert reason == (
        f"closed for memory: 5 connections that are not authenticated take {5 * CONNECTION_BYTES} "
        f"bytes; odradek.unauthenticated.memory.max.bytes={3 * CONNECTION_BYTES}; 10.0.0.1 has 5 "
        "of them and loses them first; the 0 closed so far and those of the next minute are not "
        "logged"
    )


def test_one_closed_connection_in_a_minute_is_logged():
    broker = Broker(bytes_max=0)
    for ms in (0, 59_999, 60_000):
        broker.ms = ms
        broker.accept()
        broker.run()
    assert len(broker.reasons) == 2
    assert "; the 2 closed so far and" in broker.reasons[1]


def test_a_handshake_begins_after_earlier_ones_are_closed_for_its_memory():
    broker = Broker(bytes_max=3 * CONNECTION_BYTES)
    peers = [Peer() for _ in range(5)]
    for peer in peers:
        assert broker.unauthenticated.begin_handshake(peer, 0)
        assert broker.unauthenticated.memory_bytes <= 3 * CONNECTION_BYTES
    assert [peer.aborted for peer in peers] == [True, True, False, False, False]
    assert not broker.unauthenticated.begin_handshake(Peer(), 3 * CONNECTION_BYTES)
    assert broker.unauthenticated.memory_bytes == 0


def test_an_accepted_connection_counts_once_and_returns_all_that_its_handshake_took():
    broker = Broker()
    peer = broker.accept()
    broker.unauthenticated.begin_handshake(peer, 1_000)
    assert broker.unauthenticated.memory_bytes == CONNECTION_BYTES + 1_000
    broker.unauthenticated.leave(peer)
    assert (broker.unauthenticated.memory_bytes, len(broker.unauthenticated)) == (0, 0)


def test_half_a_frame_counts_until_the_connection_is_closed():
    broker = Broker(bytes_max=10 * CONNECTION_BYTES)
    first, second = broker.accept(), broker.accept()
    broker.grow(second, 8 * CONNECTION_BYTES)
    broker.run()
    assert not second.aborted
    broker.unauthenticated.leave(second)
    broker.grow(second, CONNECTION_BYTES)
    assert broker.unauthenticated.memory_bytes == CONNECTION_BYTES
    broker.unauthenticated.leave(second)
    broker.unauthenticated.leave(first)

    assert broker.unauthenticated.memory_bytes == 0


def test_memory_of_the_one_connection_that_takes_too_much():
    broker = Broker(bytes_max=2 * CONNECTION_BYTES)
    peer = broker.accept()
    broker.grow(peer, 2 * CONNECTION_BYTES)
    broker.run()

    assert peer.aborted
    assert broker.unauthenticated.memory_bytes == 0


def test_connections_that_take_too_long_are_closed():
    broker = Broker(ms_max=1000)
    late, authenticated = broker.accept(), broker.accept()
    broker.unauthenticated.leave(authenticated)
    broker.ms = 500
    early = broker.accept()
    broker.ms = 1001
    broker.unauthenticated.drop_late()

    assert (late.aborted, authenticated.aborted, early.aborted) == (True, False, False)
    assert broker.reasons == ["not authenticated within odradek.unauthenticated.timeout.ms=1000"]


def test_a_storm_from_one_address_closes_its_own_connections_alone():
    broker = Broker(bytes_max=10 * CONNECTION_BYTES)
    others = [broker.accept(f"10.0.1.{number}") for number in range(3)]
    storm = []
    for _ in range(100):
        storm.append(broker.accept("10.0.0.9"))
        broker.run()
        assert broker.unauthenticated.memory_bytes <= 10 * CONNECTION_BYTES
    assert not any(peer.aborted for peer in others)
    assert [peer.aborted for peer in storm] == [True] * 93 + [False] * 7
    others.append(broker.accept("10.0.1.9"))
    assert broker.unauthenticated.begin_handshake(others[-1], 0)
    assert not any(peer.aborted for peer in others)


def test_the_share_of_an_address_counts_the_memory_that_its_connections_take():
    broker = Broker(bytes_max=20 * CONNECTION_BYTES)
    many = [broker.accept("10.0.1.1") for _ in range(5)]
    few = [broker.accept("10.0.1.2") for _ in range(2)]
    broker.grow(few[1], 14 * CONNECTION_BYTES)
    broker.run()
    assert [peer.aborted for peer in (*many, *few)] == [False] * 5 + [True, False]
    broker.unauthenticated.leave(few[1])
    broker.accept("10.0.1.3")
    broker.grow(many[4], 14 * CONNECTION_BYTES)
    broker.run()
    assert not any(peer.aborted for peer in many)


def test_addresses_within_their_shares_lose_the_connection_that_was_accepted_first():
    broker = Broker(bytes_max=128 * CONNECTION_BYTES)
    peers = [broker.accept(f"10.0.{number % 70}.1") for number in range(128)]
    broker.accept("10.0.200.1")
    broker.run()
    assert [peer.aborted for peer in peers] == [True] + [False] * 127


def test_a_smaller_limit_makes_smaller_shares():
    broker = Broker()
    peers = [broker.accept(host) for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2")]
    broker.unauthenticated.bytes_max = 3 * CONNECTION_BYTES
    broker.accept("10.0.0.3")
    broker.run()
    assert [peer.aborted for peer in peers] == [False, True, False]


def test_the_address_with_most_connections_makes_room_for_others_and_not_for_itself():
    broker = Broker(bytes_max=64 * CONNECTION_BYTES)
    first, second = broker.accept("10.0.0.9", "SSL"), broker.accept("10.0.0.9", "SASL")
    broker.accept("10.0.0.1")
    make_room = broker.unauthenticated.make_room
    assert not make_room("10.0.0.9")
    assert not make_room("10.0.0.1", "ANOTHER")
    assert make_room("10.0.0.1", "SASL")
    assert (first.aborted, second.aborted) == (False, True)
    assert not make_room("10.0.0.1"), "no address is above its share now"
    assert "closed for a connection of another address: 3 connections" in broker.reasons[0]


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::7:1:2:3", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_an_ipv6_network_of_64_bits_counts_as_one_address(host, network):
    assert network_of(host) == network
