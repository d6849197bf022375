"""Which assignment strategy all members of a group share, and what its consumers subscribe to.

A member brings the strategies that it speaks, best first, each with its own metadata. The group
takes one that all members speak; each votes for its first among these. Metadata is the clients'
affair, but for the topics of a consumer's subscription: what a group still reads is neither
expired nor deleted.
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


def choose_protocol(wishes: Sequence[Sequence[str]]) -> str:
    """The strategy that all speak and most prefer; of equals the one first in the alphabet."""
    shared = frozenset.intersection(*(frozenset(names) for names in wishes))
    assert shared, "nobody is let in who speaks nothing that the others do"
    votes = Counter(next(name for name in names if name in shared) for names in wishes)
    return min(votes, key=lambda name: (-votes[name], name))


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these consumers; None if one of them cannot be understood.

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
