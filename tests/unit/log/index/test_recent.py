"""The positions of the latest batches, against a list of all batches."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.index.recent import KEPT_MAX, RecentBatches

# How many offsets and bytes each batch has.
batches = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 90)), max_size=40)


def ends(begin, sizes):
    """The offsets and positions at which batches begin, and the end."""
    found = [begin]
    for offsets, size in sizes:
        found.append((found[-1][0] + offsets, found[-1][1] + size))
    return found


def filled(known):
    recent = RecentBatches(*known[0])
    for end in known[1:]:
        recent.add(*end)
    return recent


@given(st.integers(0, 9), st.integers(0, 900), batches)
def test_an_offset_has_the_position_of_its_batch(offset, position, sizes):
    known = ends((offset, position), sizes)
    recent = filled(known)
    for number in range(offset, known[-1][0] + 1):
        assert recent.position_of(number) == max(at for begin, at in known if begin <= number)
    assert recent.position_of(offset - 1) is None


@given(st.integers(0, 900), batches, st.integers(-200, 2_000), st.data())
def test_whole_batches_are_the_most_that_fits(position, sizes, bytes_max, data):
    known = [at for _, at in ends((0, position), sizes)]
    start = data.draw(st.sampled_from(known))
    fitting = [at - start for at in known if start <= at <= start + bytes_max]
    assert filled(ends((0, position), sizes)).whole_batches_in(start, bytes_max) == max(
        fitting, default=0
    )


def test_the_oldest_are_forgotten_and_the_latest_are_not():
    recent = filled(ends((0, 0), [(1, 70)] * 1_000))
    assert KEPT_MAX // 2 < len(recent) <= KEPT_MAX
    oldest = 1_000 - len(recent) + 1
    assert recent.position_of(oldest - 1) is None
    assert [recent.position_of(n) for n in (oldest, 1_000)] == [oldest * 70, 70_000]
    assert recent.whole_batches_in(oldest * 70, 200) == 140
    assert recent.whole_batches_in(oldest * 70 - 70, 200) == 0, "not known"
