"""The selector of the event loop: how long turns take, and what is ready in the present one."""

import contextlib
import socket
from selectors import EVENT_READ

from odradek.broker.serving.loop_meter import MeteredSelector


@contextlib.contextmanager
def watched(count):
    """A selector that watches so many sockets, and the other ends of these."""
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(MeteredSelector())
        others = []
        for _ in range(count):
            own, other = socket.socketpair()
            others.append(stack.enter_context(other))
            selector.register(stack.enter_context(own), EVENT_READ)
        yield selector, others


def test_a_socket_is_alone_if_no_other_is_ready_in_its_turn():
    with watched(3) as (selector, others):
        assert not selector.is_alone(), "no turn has begun"
        others[0].send(b"a")
        assert len(selector.select(5)) == 1
        assert selector.is_alone()
        others[1].send(b"b")
        assert selector.is_alone(), "that is of the next turn"
        assert len(selector.select(5)) == 2
        assert not selector.is_alone()


def test_in_a_turn_of_timers_no_socket_is_alone():
    with watched(1) as (selector, others):
        others[0].send(b"a")
        (found,) = selector.select(5)
        found[0].fileobj.recv(1)
        assert selector.is_alone()
        assert selector.select(0) == []
        assert not selector.is_alone()


def test_each_turn_is_measured():
    with watched(1) as (selector, _):
        for _ in range(3):
            selector.select(0)
        assert sum(selector.turns.busy_ms.counts) == 3
