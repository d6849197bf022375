"""Which of Kafka's eight levels holds for a client, and with which clients it is shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.quota.precedence import Entity, Limit, Part, Share, limit_of

DEFAULT, ABSENT = Part.DEFAULT, Part.ABSENT
LEVELS = [
    (Entity("alice", "app"), Share("alice", "app")),
    (Entity("alice", DEFAULT), Share("alice", "app")),
    (Entity("alice", ABSENT), Share("alice", "")),
    (Entity(DEFAULT, "app"), Share("alice", "app")),
    (Entity(DEFAULT, DEFAULT), Share("alice", "app")),
    (Entity(DEFAULT, ABSENT), Share("alice", "")),
    (Entity(ABSENT, "app"), Share("", "app")),
    (Entity(ABSENT, DEFAULT), Share("", "app")),
]


@pytest.mark.parametrize("level", range(8))
def test_the_most_specific_level_with_a_limit_wins(level):
    limits = {entity: float(number) for number, (entity, _) in enumerate(LEVELS)}
    for entity, _ in LEVELS[:level]:
        del limits[entity]
    limits |= {Entity("bob", "app"): 99.0, Entity("alice", "other"): 99.0}
    assert limit_of(limits, "alice", "app") == Limit(float(level), LEVELS[level][1])


def test_a_client_without_any_level_has_no_limit():
    assert limit_of({Entity("bob", ABSENT): 1.0, Entity(ABSENT, "x"): 1.0}, "alice", "app") is None


NAMES = st.sampled_from(("a", "b", ""))
PARTS = st.one_of(NAMES, st.sampled_from(Part))


@given(st.dictionaries(st.builds(Entity, PARTS, PARTS), st.floats(1, 9)), NAMES, NAMES)
def test_the_limit_is_that_of_a_naive_search(limits, user, client):
    def rank(part, name):
        return {name: 0, DEFAULT: 1, ABSENT: 2}.get(part)

    ranked = sorted(
        (rank(entity.user, user), rank(entity.client, client), rate)
        for entity, rate in limits.items()
        if rank(entity.user, user) is not None
        and rank(entity.client, client) is not None
        and entity != Entity(ABSENT, ABSENT)
    )
    found = limit_of(limits, user, client)
    assert (found.rate if found else None) == (ranked[0][2] if ranked else None)
