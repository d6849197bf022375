"""What changed in a text, as few words. Pure.

A text is split at blanks and ends of lines, which are pieces, too: the words have the even indices.
An edit is the index of a piece of the old text, how many pieces are replaced, and the new text. The
edits of a text are in order, and each index is that before any of them; `static/page.js` does them.
Lines are compared first, so that one with more words does not shift those after it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """So many pieces from a place on become the text."""

    place: int
    pieces: int
    text: str


def edits(before: str, after: str) -> list[Edit]:
    """How the first text becomes the second one."""
    return list(_edits(before.split("\n"), after.split("\n")))


def _edits(old: Sequence[str], new: Sequence[str]) -> Iterator[Edit]:
    runs = _different(old, new)
    index = line = 0
    for place, new_place in runs:
        index += sum(_pieces(each) + 1 for each in old[line : place.start])
        line = place.stop
        if place.stop - place.start == new_place.stop - new_place.start:
            for before, after in zip(old[place], new[new_place], strict=True):
                yield from _words(index, before.split(" "), after.split(" "))
                index += _pieces(before) + 1
        else:
            replaced = "\n".join(old[place])
            yield Edit(index, _pieces(replaced), "\n".join(new[new_place]))
            index += _pieces(replaced) + 1


def _words(index: int, old: Sequence[str], new: Sequence[str]) -> Iterator[Edit]:
    for place, new_place in _different(old, new):
        count = 2 * (place.stop - place.start) - 1
        yield Edit(index + 2 * place.start, count, " ".join(new[new_place]))


def _pieces(text: str) -> int:
    return 2 * (text.count(" ") + text.count("\n")) + 1


def _different(old: Sequence[str], new: Sequence[str]) -> list[tuple[slice, slice]]:
    """Where they differ; of two lengths, one place from the first difference to the last one."""
    least = min(len(old), len(new))
    if len(old) == len(new):
        places = [place for place in range(least) if old[place] != new[place]]
        begins = [place for place in places if place == 0 or old[place - 1] == new[place - 1]]
        ends = [p + 1 for p in places if p + 1 == least or old[p + 1] == new[p + 1]]
        return [(slice(b, e), slice(b, e)) for b, e in zip(begins, ends, strict=True)]
    begin = next((p for p in range(least) if old[p] != new[p]), least)
    begin = min(begin, least - 1)  # one item is replaced at least
    most = least - begin - 1
    rest = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    return [(slice(begin, len(old) - rest), slice(begin, len(new) - rest))]
