"""The rules that elect leaders."""

import pytest

from odradek.controller.election import (
    Elected,
    elect_first,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_preferred,
    elect_when_offline,
)


@pytest.mark.parametrize(
    ("assigned", "live", "elected"),
    [
        pytest.param((1, 2, 3), {1, 2, 3}, Elected(1, (1, 2, 3)), id="all are in sync"),
        pytest.param((3, 1, 2), {1, 2}, Elected(1, (1, 2)), id="the first registered one"),
        pytest.param((1, 2), {3}, None, id="no replica is registered"),
    ],
)
def test_first_leader(assigned, live, elected):
    assert elect_first(assigned=assigned, live=live) == elected


@pytest.mark.parametrize(
    ("assigned", "isr", "live", "elected"),
    [
        pytest.param((1, 2, 3), (1, 2), {2, 3}, Elected(2, (2,)), id="next in sync"),
        pytest.param((3, 1, 2), (1, 2, 3), {1, 2}, Elected(1, (1, 2)), id="assignment's order"),
        pytest.param((1, 2), (1,), {2}, None, id="offline rather than lose records"),
        pytest.param((1, 2), (1, 2), set(), None, id="no replica is registered"),
    ],
)
def test_clean_election(assigned, isr, live, elected):
    verdict = elect_when_offline(assigned=assigned, isr=isr, live=live, unclean_allowed=False)

    assert verdict == elected


def test_an_unclean_leader_is_the_only_in_sync_replica():
    verdict = elect_when_offline(assigned=(1, 2, 3), isr=(1,), live={2, 3}, unclean_allowed=True)

    assert verdict == Elected(leader=2, isr=(2,))


def test_where_unclean_election_is_allowed_an_in_sync_replica_is_still_preferred():
    verdict = elect_when_offline(assigned=(1, 2, 3), isr=(3,), live={2, 3}, unclean_allowed=True)

    assert verdict == Elected(leader=3, isr=(3,))


@pytest.mark.parametrize(
    ("isr", "live", "elected"),
    [
        pytest.param((2, 1), {1, 2}, Elected(1, (2, 1)), id="the ISR stays"),
        pytest.param((2, 1), {2}, None, id="it is not registered"),
        pytest.param((2,), {1, 2}, None, id="it is not in sync"),
    ],
)
def test_preferred_election(isr, live, elected):
    assert elect_preferred(assigned=(1, 2), isr=isr, live=live) == elected


@pytest.mark.parametrize(
    ("isr", "live", "elected"),
    [
        pytest.param((1, 2, 4), {1, 2, 3, 4}, Elected(4, (1, 2, 4)), id="first in sync"),
        pytest.param((1, 3, 4), {1, 3}, Elected(3, (1, 3, 4)), id="first registered one"),
        pytest.param((1, 2), {1, 2, 3, 4}, None, id="none of the target is in sync"),
    ],
)
def test_election_for_a_reassignment(isr, live, elected):
    assert elect_for_reassignment(target=(4, 3), isr=isr, live=live) == elected


@pytest.mark.parametrize(
    ("isr", "live", "leaving", "elected"),
    [
        pytest.param((1, 2, 3), {1, 2, 3}, {1}, Elected(2, (2, 3)), id="the ISR goes on without"),
        pytest.param((1, 2, 3), {1, 2, 3}, {1, 2}, Elected(3, (3,)), id="two leave at once"),
        pytest.param((1,), {1, 2, 3}, {1}, None, id="no other in-sync replica"),
        pytest.param((1, 2), {1, 3}, {1}, None, id="the other one is not registered"),
    ],
)
def test_election_for_a_shutdown(isr, live, leaving, elected):
    verdict = elect_for_shutdown(assigned=(1, 2, 3), isr=isr, live=live, shutting_down=leaving)

    assert verdict == elected
