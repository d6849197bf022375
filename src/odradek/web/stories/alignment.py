"""Which frames of two runs are shown beside each other: the same moment of the plan. Pure.

Two runs of a story do the same up to a point, and then one waits longer than the other, or does
something else. So neither the number of a frame nor its simulated time says which frames belong
together: a frame in which the same thing happens in both runs does. Between two such frames, time
is counted from the first of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from odradek.web.stories.values import StoryFrame

Frames = Sequence[StoryFrame]
Pair = tuple[int, int]
# The sentences that both frames of all pairs have, and the time between the frames of the pairs.
Score = tuple[int, float]


def aligned(runs: Sequence[Frames]) -> tuple[tuple[int, ...], ...]:
    """The steps of a story: for each of its one or two runs the index of the frame that is shown.

    Every frame is shown by a step, in order. A run in which nothing happens at a step stays at its
    frame before.
    """
    if len(runs) == 1:
        return tuple((index,) for index in range(len(runs[0])))
    left, right = runs
    steps: list[Pair] = []
    pairs = same_events(left, right)
    for begin, end in zip(pairs, (*pairs[1:], (len(left), len(right))), strict=True):
        steps.append(begin)
        steps += _between(left, right, begin, end)
    return tuple(steps)


def same_events(left: Frames, right: Frames) -> tuple[Pair, ...]:
    """The frames in which the same happens, in the order of both runs; the first ones are a pair.

    The pairs have as many sentences in common as possible; of equally many, those pairs are taken
    that are nearest in time.
    """
    best: dict[Pair, Score] = {}
    for i in range(len(left), 0, -1):
        for j in range(len(right), 0, -1):
            best[i, j] = max(_apart(best, i, j), _together(best, left, right, i, j))
    pairs = [(0, 0)]
    i = j = 1
    while i < len(left) and j < len(right):
        if best[i, j] > _apart(best, i, j):
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i, j] == best[i + 1, j]:
            i += 1
        else:
            j += 1
    return tuple(pairs)


def _apart(best: dict[Pair, Score], i: int, j: int) -> Score:
    """The score if the frames `i` and `j` are no pair."""
    return max(best.get((i + 1, j), (0, 0.0)), best.get((i, j + 1), (0, 0.0)))


def _together(best: dict[Pair, Score], left: Frames, right: Frames, i: int, j: int) -> Score:
    """The score if the frames `i` and `j` are a pair; that of no pair if they cannot be one."""
    if i >= len(left) or j >= len(right):
        return 0, 0.0
    common = Counter(left[i].sentences) & Counter(right[j].sentences)
    if not common:
        return 0, 0.0
    count, distance = best.get((i + 1, j + 1), (0, 0.0))
    return count + common.total(), distance - abs(left[i].at_s - right[j].at_s)


def _between(left: Frames, right: Frames, begin: Pair, end: Pair) -> Iterator[Pair]:
    """The steps after the pair `begin` and before `end`, by the time since `begin`."""
    i, j = begin
    while (i + 1, j + 1) != end:
        moments = _next(left, i, begin[0], end[0]), _next(right, j, begin[1], end[1])
        i += moments[0] == min(moments)
        j += moments[1] == min(moments)
        yield i, j


def _next(run: Frames, index: int, begin: int, end: int) -> float:
    """When the frame after `index` is, since `begin`; never if it is `end`."""
    if index + 1 == end:
        return inf
    return round(run[index + 1].at_s - run[begin].at_s, 3)
