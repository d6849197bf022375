"""Long lists in pages."""

import pytest

from odradek.web.paging import PAGE_ROWS_MAX, page_links, rows_of


@pytest.mark.parametrize(
    ("page", "limit", "rows"),
    [
        (1, 3, ((0, 1, 2), 1, 3)),
        (3, 3, ((6,), 3, 3)),
        (9, 3, ((6,), 3, 3)),
        (0, 3, ((0, 1, 2), 1, 3)),
        (1, 0, ((0,), 1, 7)),
        (1, 7, (tuple(range(7)), 1, 1)),
    ],
)
def test_a_page_has_some_of_the_rows(page, limit, rows):
    assert rows_of(range(7), page, limit) == rows


def test_no_rows_are_one_page_and_a_page_has_at_most_a_thousand():
    assert rows_of([], 1) == ((), 1, 1)
    assert len(rows_of(range(5_000), 1, 9_999).shown) == PAGE_ROWS_MAX


@pytest.mark.parametrize(
    ("page", "pages", "links"),
    [
        (1, 1, (1,)),
        (1, 3, (1, 2, 3)),
        (1, 100, (1, 2, 3, None, 100)),
        (4, 100, (1, 2, 3, 4, 5, 6, None, 100)),
        (5, 100, (1, 2, 3, 4, 5, 6, 7, None, 100)),
        (50, 100, (1, None, 48, 49, 50, 51, 52, None, 100)),
        (100, 100, (1, None, 98, 99, 100)),
    ],
)
def test_the_links_name_the_first_the_last_and_the_pages_near_this_one(page, pages, links):
    assert page_links(page, pages) == links
