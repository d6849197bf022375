"""What the server's side of a SASL mechanism answers to one message of the client."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from odradek.model.clock import WallMs

_QUOTED_MAX = 100


class Challenge(NamedTuple):
    """The exchange continues: the message for the client."""

    token: bytes


class Done(NamedTuple):
    """The client is authenticated."""

    principal: str  # with its type: User:alice
    token: bytes = b""  # the last message for the client
    expires_ms: WallMs | None = None  # when the credential expires; None: it does not expire
    is_delegation_token: bool = False
    extensions: Mapping[str, str] = {}


class Failed(NamedTuple):
    """The client is refused.

    `reason` is for the log: what happened, without secrets. `text` is what the client receives;
    None: the text that Kafka sends for all invalid credentials, which does not reveal whether the
    user exists.
    """

    reason: str
    text: str | None = None


Step = Challenge | Done | Failed


class Computation(NamedTuple):
    """The answer takes too long for the event loop: `work` computes it in another thread."""

    work: Callable[[], Step]


class SaslServer(Protocol):
    """The server's side of one exchange. It never raises because of what the client sends."""

    def step(self, token: bytes) -> Step | Computation:
        """Handle one message of the client; none follows after `Done` or `Failed`."""


def quoted(text: str) -> str:
    """A client's text for one line of a log: escaped and bounded."""
    return ascii(text[:_QUOTED_MAX])
