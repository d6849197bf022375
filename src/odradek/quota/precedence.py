"""Which limit holds for a client: Kafka's eight levels, from the most to the least specific.

    1  user, client id           5  default user, default client id
    2  user, default client id   6  default user
    3  user                      7  client id
    4  default user, client id   8  default client id

All clients to which a level applies by the same user, or by the same client id where the level has
no user, share one limit: a limit of a user is divided among the user's clients, a limit of the
default user holds for each user (`DefaultQuotaCallback` in Kafka's `ClientQuotaManager`).
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple


class Part(Enum):
    """A user or client id of an entity that is not a name."""

    DEFAULT = "the default"
    ABSENT = "not a part of the entity"


Name = str | Part


class Entity(NamedTuple):
    """What a limit is set for."""

    user: Name
    client: Name


class Share(NamedTuple):
    """The clients that use one limit together; an empty string is any."""

    user: str
    client: str


class Limit(NamedTuple):
    """The limit of a client, and the clients it is shared with."""

    rate: float
    share: Share


def entities_of(user: str, client: str) -> Iterator[Entity]:
    """The entities whose limit may hold for a client, the first one that has a limit wins."""
    for each in (user, Part.DEFAULT):
        yield Entity(each, client)
        yield Entity(each, Part.DEFAULT)
        yield Entity(each, Part.ABSENT)
    yield Entity(Part.ABSENT, client)
    yield Entity(Part.ABSENT, Part.DEFAULT)


def limit_of(limits: Mapping[Entity, float], user: str, client: str) -> Limit | None:
    """The limit that holds for a client; None: there is none."""
    for entity in entities_of(user, client):
        rate = limits.get(entity)
        if rate is not None:
            share = Share(
                "" if entity.user is Part.ABSENT else user,
                "" if entity.client is Part.ABSENT else client,
            )
            return Limit(rate, share)
    return None
