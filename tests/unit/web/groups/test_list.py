"""The list of groups is shown in pages."""

import pytest

from odradek.model.clock import WallMs
from odradek.web.facts.poller import Collected
from odradek.web.groups.collect import GROUPS, GroupsView, groups_view

FACTS = {
    GROUPS: Collected(
        WallMs(1), GroupsView(groups=tuple({"group": f"Group-{n:03}"} for n in range(250)))
    )
}


@pytest.mark.parametrize(
    ("name", "page", "first", "shown", "found", "at", "pages"),
    [
        ("", 1, "Group-000", 100, 250, 1, 3),
        ("", 3, "Group-200", 50, 250, 3, 3),
        ("", 9, "Group-200", 50, 250, 3, 3),
        ("", 0, "Group-000", 100, 250, 1, 3),
        ("group-01", 1, "Group-010", 10, 10, 1, 1),
    ],
)
def test_a_page_has_some_of_the_groups(name, page, first, shown, found, at, pages):
    view = groups_view(FACTS, name, page)

    assert (view.groups[0]["group"], len(view.groups)) == (first, shown)
    assert (view.found, view.page, view.pages) == (found, at, pages)


def test_a_name_that_no_group_has_shows_none_and_what_was_not_collected_is_not_known():
    assert groups_view(FACTS, "nothing").groups == ()
    assert groups_view({}).groups is None
