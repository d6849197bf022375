"""A long list in pages. Pure."""

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
PAGE_ROWS: Final = 100
PAGE_ROWS_MAX: Final = 1_000  # for programs
_NEAR: Final = 2  # pages before and after the one that is shown


class Rows(NamedTuple, Generic[T]):
    """The rows of a page, its number and the number of pages."""

    shown: tuple[T, ...]
    page: int
    pages: int


def rows_of(rows: Sequence[T], page: int, limit: int = PAGE_ROWS) -> Rows[T]:
    """A page of these rows; the last one if there are fewer."""
    limit = min(max(limit, 1), PAGE_ROWS_MAX)
    pages = max(1, -(-len(rows) // limit))
    page = min(max(page, 1), pages)
    return Rows(tuple(rows[(page - 1) * limit : page * limit]), page, pages)


def page_links(page: int, pages: int) -> tuple[int | None, ...]:
    """The pages that are linked: the first, the last, and those near this one; None is a gap."""
    near = {1, pages, *range(max(1, page - _NEAR), min(pages, page + _NEAR) + 1)}
    found: list[int | None] = []
    for number in sorted(near):
        if found and number - 1 not in near:
            # A gap of one page is that page.
            found.append(number - 1 if number - 2 in near else None)
        found.append(number)
    return tuple(found)
