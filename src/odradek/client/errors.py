"""What a producer or consumer of ours gives up for, besides the brokers' own error codes."""

from odradek.model.errors import ErrorCode, OdradekError


class ClientTimeoutError(OdradekError):
    """What was asked for did not happen in time (Java's TimeoutException)."""


class RecordTooLargeError(OdradekError):
    """A record is larger than the client may send (Java's RecordTooLargeException)."""


class ClosedError(OdradekError):
    """The client was closed."""


class IllegalStateError(OdradekError):
    """A call that does not go with what was called before (Java's IllegalStateException)."""


class NoOffsetError(OdradekError):
    """There is neither a committed offset nor `auto.offset.reset` for a partition."""


class WakeUpError(OdradekError):
    """Somebody called `wake_up` (Java's WakeupException)."""


def refusal(code: int, topic: str) -> str:
    """What Java says of a topic that metadata refuses."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"Not authorized to access topics: [{topic}]"
    return f"Invalid topics: [{topic}]"
