"""The bound that the simulator's quota checker uses: the shipped arithmetic never exceeds it."""

import random

import pytest

from odradek.model.clock import MonotonicMs
from odradek.quota.precedence import Entity, Part
from odradek.quota.usage import RateCount
from odradek.sim.checks.quotas import PRODUCER, REQUEST, USER, Bucket, limit_for

RATE = 10_000.0
RUN_MS = 40_000


def play(seed, *, windows, connections, counted=1.0, throttle_ms_max=1 << 31):
    """Requests of several connections, each muted for its throttle time. Returns what is wrong.

    `counted`: the part of each request that is counted for the quota.
    """
    chance = random.Random(seed)
    largest = chance.choice((100, 2_000, 9_000)) // connections
    pause_ms = chance.choice((0, 0, 5, 300))
    count = RateCount(windows=windows, window_ms=1_000)
    bucket = Bucket(Entity(USER, "c"), RATE, 0.0, 0.0, connections=connections)
    again_s = min(windows, throttle_ms_max / 1_000)
    free_ms = [chance.randrange(1_000) for _ in range(connections)]
    while min(free_ms) < RUN_MS:
        now_ms = min(free_ms)
        which = free_ms.index(now_ms)
        amount = chance.choice((largest, chance.randint(1, largest)))
        bucket.excess = max(bucket.excess, amount)
        wrong = bucket.take(amount, now_ms / 1_000, windows=windows, window_s=1.0, again_s=again_s)
        if wrong:
            return wrong
        throttle_ms = count.record(amount * counted, RATE, MonotonicMs(now_ms))
        idle_ms = 15_000 if chance.random() < 0.01 else chance.randint(0, pause_ms)
        free_ms[which] = now_ms + max(1, min(throttle_ms, throttle_ms_max) + idle_ms)
    return ""


@pytest.mark.parametrize("windows", [4, 11])
@pytest.mark.parametrize("connections", [1, 2, 5])
@pytest.mark.parametrize("throttle_ms_max", [1 << 31, 1_000])
def test_clients_that_are_muted_stay_within_it(windows, connections, throttle_ms_max):
    for seed in range(5):
        given = {"windows": windows, "connections": connections}
        assert not play(seed, **given, throttle_ms_max=throttle_ms_max), seed


@pytest.mark.parametrize("windows", [4, 11])
def test_clients_whose_requests_are_counted_by_half_do_not(windows):
    found = [play(seed, windows=windows, connections=1, counted=0.5) for seed in range(12)]

    assert sum(map(bool, found)) >= 3, "the others pause too much to reach their quota"
    assert any("10000 a second are allowed" in wrong for wrong in found)


LIMITS = {
    Entity(USER, "c"): {PRODUCER: 1.0},
    Entity(Part.DEFAULT, "c"): {PRODUCER: 2.0, REQUEST: 3.0},
    Entity(USER, Part.ABSENT): {PRODUCER: 4.0},
    Entity(Part.ABSENT, Part.DEFAULT): {PRODUCER: 5.0},
}


@pytest.mark.parametrize(
    ("option", "client", "rate", "share"),
    [
        (PRODUCER, "c", 1.0, (USER, "c")),
        (PRODUCER, "other", 4.0, (USER, "")),
        (REQUEST, "c", 30.0, (USER, "c")),  # milliseconds in a second
    ],
)
def test_the_most_specific_limit_holds(option, client, rate, share):
    found = limit_for(LIMITS, option, client)

    assert (found.rate, found.share) == (rate, share)


def test_a_client_without_a_limit():
    assert limit_for(LIMITS, REQUEST, "other") is None
