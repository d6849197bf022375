"""What every assignment must be: complete, balanced; and for two of them, sticky."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.client.group.assignors import ASSIGNORS, assign_cooperative_sticky, assign_sticky
from odradek.client.group.protocol import MemberSubscription, encode_sticky

TOPICS = ("t0", "t1", "t2")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
NAMES = st.sampled_from([f"m{i}" for i in range(7)])
SAME = st.dictionaries(NAMES, st.just(MemberSubscription(TOPICS)), min_size=1)
ANY = st.dictionaries(
    NAMES,
    st.builds(lambda topics: MemberSubscription(tuple(topics)), st.sets(st.sampled_from(TOPICS))),
    min_size=1,
)


def everything(counts, members):
    read = {topic for member in members.values() for topic in member.topics}
    return sorted((t, i) for t, count in counts.items() if t in read for i in range(count))


def assigned(result):
    return sorted(partition for owned in result.values() for partition in owned)


@given(st.sampled_from(sorted(ASSIGNORS)), COUNTS, ANY)
def test_every_partition_has_one_reader_that_subscribed_to_it(name, counts, members):
    result = ASSIGNORS[name].assign(counts, members)

    assert result.keys() == members.keys()
    assert assigned(result) == everything(counts, members)
    assert all(p.topic in members[m].topics for m, owned in result.items() for p in owned)


@given(st.sampled_from(["roundrobin", "sticky", "cooperative-sticky"]), COUNTS, SAME)
def test_members_with_equal_subscriptions_get_equal_numbers(name, counts, members):
    sizes = [len(owned) for owned in ASSIGNORS[name].assign(counts, members).values()]

    assert max(sizes) - min(sizes) <= 1


@given(COUNTS, ANY)
def test_no_single_move_makes_sticky_more_even(counts, members):
    result = assign_sticky(counts, members)

    for owned in result.values():
        topics = {partition.topic for partition in owned}
        able = [other for other, member in members.items() if topics & set(member.topics)]
        assert all(len(owned) <= len(result[other]) + 1 for other in able)


def remembering(result, members):
    return {
        name: member._replace(
            owned=tuple(result.get(name, ())),
            generation=5,
            user_data=encode_sticky(result.get(name, ()), 5),
        )
        for name, member in members.items()
    }


@given(COUNTS, ANY)
def test_nothing_moves_when_nothing_changes(counts, members):
    first = assign_sticky(counts, members)

    assert assign_sticky(counts, remembering(first, members)) == first
    assert assign_cooperative_sticky(counts, remembering(first, members)) == first


@given(COUNTS, SAME, NAMES)
def test_a_member_keeps_its_partitions_when_another_leaves(counts, members, leaving):
    if members.keys() <= {leaving}:
        return
    first = assign_sticky(counts, members)
    staying = {name: member for name, member in members.items() if name != leaving}

    second = assign_sticky(counts, remembering(first, staying))

    assert all(set(first[name]) <= set(second[name]) for name in staying)


@given(COUNTS, SAME, NAMES)
def test_a_newcomer_is_given_its_share_and_no_more_is_moved(counts, members, coming):
    first = assign_sticky(counts, members)
    more = members | {coming: MemberSubscription(TOPICS)}

    second = assign_sticky(counts, remembering(first, more))

    moved = sum(len(set(first[name]) - set(second[name])) for name in members)
    assert moved <= (0 if coming in members else len(second[coming]))


@given(COUNTS, ANY, ANY)
def test_cooperative_never_gives_away_what_another_holds(counts, before, after):
    held = assign_sticky(counts, before)
    members = remembering({m: held.get(m, []) for m in after}, after)

    given_out = assign_cooperative_sticky(counts, members)

    for name, owned in given_out.items():
        others = [set(member.owned) for other, member in members.items() if other != name]
        assert not set(owned) & set().union(*others)


@given(COUNTS, ANY, ANY)
def test_two_cooperative_rounds_are_complete(counts, before, after):
    held = assign_sticky(counts, before)
    members = remembering({m: held.get(m, []) for m in after}, after)
    first = assign_cooperative_sticky(counts, members)
    # Each gives up what it was not given again.
    kept = {m: [p for p in members[m].owned if p in first[m]] + first[m] for m in after}

    second = assign_cooperative_sticky(
        counts, remembering({m: sorted(set(kept[m])) for m in after}, after)
    )

    assert assigned(second) == everything(counts, after)
