"""Why a connection is muted: its requests are not handled for the time being.

The reasons are independent: a connection is read again when the last of them has ended. So the end
of a throttle time does not let a client go on whose authentication was refused.
"""

import enum


class Mute(enum.IntFlag):
    """The reasons, each of them set and ended by one part of the broker."""

    QUOTA = enum.auto()  # the client has exceeded a quota
    RATE = enum.auto()  # the connection was made above a rate
    REFUSED = enum.auto()  # authentication failed: it is closed after a delay
