"""Which assignments and commits of a group's members contradict each other."""

from random import Random
from types import SimpleNamespace

import pytest

from odradek.sim.clients.groups import GroupBook, Place
from odradek.sim.traits import Trait


class Stage:
    """A group's book, and the violations that it has reported."""

    def __init__(self, *traits):
        self.violations = []
        workload = SimpleNamespace(
            traits=frozenset(traits),
            client=lambda name: SimpleNamespace(random=Random(name)),
            violated=self.violations.append,
            succeeded=lambda: None,
        )
        self.book = GroupBook(workload)

    def commit(self, member, generation):
        place = Place(partition=0, fetched=-1, floor=-1, offset=5)
        self.book.committed(member, place, self.book.newest_given, generation)


@pytest.fixture
def stage():
    """A group that is deleted when it has neither members nor committed offsets."""
    return Stage(Trait.REGISTERS)


def test_two_members_do_not_own_a_partition_in_one_generation():
    stage = Stage()
    stage.book.given("a", 1, [0], may_be_former=False)
    stage.book.given("b", 1, [0], may_be_former=False)
    assert stage.violations == ["a and b have partition 0 in generation 1"]


def test_a_member_may_report_late_what_it_got_from_a_group_that_was_deleted(stage):
    former = stage.book.may_be_deleted
    stage.book.given("new", 1, [0], may_be_former=stage.book.may_be_deleted)
    stage.commit("new", 1)
    stage.book.given("old", 1, [0], may_be_former=former)
    assert stage.violations == []


def test_the_generation_of_a_deleted_group_does_not_fence_commits_of_its_successor(stage):
    former = stage.book.may_be_deleted
    stage.book.given("new", 1, [0], may_be_former=stage.book.may_be_deleted)
    stage.commit("new", 1)
    stage.book.given("old", 3, [0], may_be_former=former)
    stage.commit("new", 1)
    assert stage.violations == []


def test_a_group_with_offsets_cannot_be_deleted_so_later_assignments_are_compared(stage):
    stage.book.given("a", 1, [0], may_be_former=stage.book.may_be_deleted)
    stage.commit("a", 1)
    assert not stage.book.may_be_deleted
    stage.book.given("a", 2, [0], may_be_former=stage.book.may_be_deleted)
    stage.book.given("b", 2, [0], may_be_former=stage.book.may_be_deleted)
    assert stage.violations == ["a and b have partition 0 in generation 2"]


def test_a_group_without_expiry_is_never_taken_for_deleted():
    assert not Stage().book.may_be_deleted
