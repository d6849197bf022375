"""Connections that are not authenticated: the limits for all of them together."""

from odradek.net.unauthenticated import CONNECTION_BYTES, Unauthenticated


class Peer:
    """A connection, as far as unauthenticated know it."""

    def __init__(self):
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

    def accept(self):
        peer = Peer()
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
        f"5 connections that are not authenticated take {5 * CONNECTION_BYTES} bytes of memory; "
        f"odradek.unauthenticated.memory.max.bytes={3 * CONNECTION_BYTES}; the 0 closed so far and "
        "those of the next minute are not logged"
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
