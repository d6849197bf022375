"""The small responses of several connections are sent one after the other, at the end of a turn.

A client that waits has to be woken up, which takes the broker's core as long as a `send` without
it, and on a virtual machine longer: the host takes part in it. If a response is sent as soon as it
is ready, its client has read it and waits again before the next one is ready. If several are sent
one after the other, a client that has many connections is woken up once.

A response does not wait for requests that another connection begins in a later millisecond, and not
at all if no other socket was ready in this turn of the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from odradek.model.clock import MonotonicMs


class Sends(Protocol):
    """A connection that has responses to send."""

    def send_ready(self) -> None:
        """Send the responses that are ready, if there are any."""


class Together:
    """The connections of one broker that have responses to send in this turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_alone: Callable[[], bool]) -> None:
        """`is_alone`: whether no other socket is ready in the present turn."""
        self._loop = loop
        self._is_alone = is_alone
        self.waiting: list[Sends] = []
        self._since_ms = MonotonicMs(0)

    def defer(self, connection: Sends, monotonic_ms: MonotonicMs) -> bool:
        """Let the connection send at the end of the turn; False: it has to send now."""
        if not self.waiting:
            if self._is_alone():
                return False
            self._since_ms = monotonic_ms
            self._loop.call_soon(self._send)
        self.waiting.append(connection)
        return True

    def begins(self, monotonic_ms: MonotonicMs) -> None:
        """A connection begins to handle requests: those of an earlier millisecond send before."""
        if monotonic_ms != self._since_ms:
            self._send()

    def _send(self) -> None:
        waiting, self.waiting = self.waiting, []
        for connection in waiting:
            connection.send_ready()
