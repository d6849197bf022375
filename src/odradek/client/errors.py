"""Errors of producers and consumers that are not error codes of a broker."""

from odradek.model.errors import ErrorCode, OdradekError


class ClientTimeoutError(OdradekError):
    """An operation did not finish in time (Java's TimeoutException)."""


class RecordTooLargeError(OdradekError):
    """A record is larger than `max.request.size` or `buffer.memory` (Java's exception of this
    name).
    """


class ClosedError(OdradekError):
    """The producer or consumer was closed before or during the call."""


class IllegalStateError(OdradekError):
    """A call that is not allowed in the current state (Java's IllegalStateException)."""


class NoOffsetError(OdradekError):
    """A partition has no committed offset and `auto.offset.reset` is none."""


class WakeUpError(OdradekError):
    """`wake_up` was called (Java's WakeupException)."""


def refusal(code: int, topic: str) -> str:
    """Java's message for a topic that Metadata refuses."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"Not authorized to access topics: [{topic}]"
    return f"Invalid topics: [{topic}]"
