"""The protocol (assignment strategy) of a group, and the topics that its consumers subscribe to.

A member sends the protocols that it supports, best first, each with metadata. The group uses one
that all members support; each member votes for the first of these in its list. The coordinator does
not read metadata, except the topics of a consumer's subscription: offsets of these neither expire
nor are deleted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import decoder
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL: Final = "consumer"
_VERSION_BYTES: Final = 2

Protocols = tuple[tuple[str, bytes], ...]


def choose_protocol(supported: Sequence[Sequence[str]]) -> str:
    """The protocol that all support and most vote for; of equals the first in the alphabet."""
    shared = frozenset.intersection(*(frozenset(names) for names in supported))
    assert shared, "a member without a common protocol is refused"
    votes = Counter(next(name for name in names if name in shared) for names in supported)
    return min(votes, key=lambda name: (-votes[name], name))


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of these subscriptions; None if one of them cannot be decoded.

    Version 0 of a subscription is the beginning of all later ones.
    """
    decode = decoder(ConsumerProtocolSubscription, 0)
    topics: set[str] = set()
    for metadata in subscriptions:
        try:
            topics.update(decode(memoryview(metadata), _VERSION_BYTES)[0].topics)
        except MalformedRequestError:
            return None
    return frozenset(topics)
