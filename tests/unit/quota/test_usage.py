"""What clients have used of one quota, in bounded memory."""

from functools import partial

from odradek.quota.precedence import Entity, Part
from odradek.quota.usage import RateCount, Usage

ANY_CLIENT = Entity(Part.ABSENT, Part.DEFAULT)


def usage(limits, kept_max=10):
    made = Usage(partial(RateCount, windows=11, window_ms=1_000), kept_max=kept_max)
    made.set_limits(limits)
    return made


def use(used, client, amount, now_ms, user="u"):
    limit = used.find(user, client)
    return used.count(limit).record(amount, limit.rate, now_ms)


def test_invented_client_ids_take_bounded_memory():
    used = usage({ANY_CLIENT: 1.0})
    for number in range(1_000):
        use(used, f"client-{number}", 1, number)
    assert len(used) == 10
    assert next(used.counts())[0].client == "client-999"


def test_a_client_that_is_used_stays_while_others_are_dropped():
    used = usage({ANY_CLIENT: 1.0})
    for number in range(100):
        use(used, f"client-{number}", 1, number)
        busy_ms = use(used, "busy", 10, number)
    assert busy_ms > 900_000


def test_clients_of_a_user_share_the_limit_of_the_user():
    used = usage({Entity("u", Part.ABSENT): 100.0})
    assert use(used, "a", 1_000, 0) == 0
    assert use(used, "b", 1_000, 0) == 10_000
    assert used.find("other", "a") is None


def test_what_was_used_stays_when_the_limit_changes_and_goes_when_there_is_none():
    used = usage({ANY_CLIENT: 100.0})
    assert use(used, "a", 1_000, 0) == 0
    used.set_limits({ANY_CLIENT: 50.0})
    assert use(used, "a", 0, 0) == 10_000
    used.set_limits({})
    assert not used
    assert not len(used)
    assert used.find("u", "a") is None


def test_counts_that_decide_as_new_ones_are_dropped():
    used = usage({ANY_CLIENT: 100.0})
    use(used, "a", 1, 0)
    use(used, "b", 1, 5_000)
    used.drop_spent(11_000)
    assert [share.client for share, _, _ in used.counts()] == ["b"]
