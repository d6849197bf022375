import asyncio
from itertools import pairwise

import pytest

from odradek.net.retry import Retries, retry, until
from odradek.sim.world.loop import run


class Operation:
    """Raises these errors one after the other, then returns the time; notes the times of calls."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.called_s = []

    async def __call__(self):
        self.called_s.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def gaps(times):
    return [round(later - earlier, 6) for earlier, later in pairwise(times)]


def test_a_call_is_repeated_after_a_fixed_pause_until_it_succeeds():
    operation = Operation(ConnectionError(), ConnectionError())

    assert run(retry(operation, 0.1, on=ConnectionError)) == "done"

    assert gaps(operation.called_s) == [0.1, 0.1]


def test_the_pause_may_depend_on_the_number_of_failures():
    operation = Operation(*(OSError() for _ in range(3)))

    run(retry(operation, lambda failures: failures * 0.5, on=OSError))

    assert gaps(operation.called_s) == [0.5, 1.0, 1.5]


def test_another_error_ends_the_attempts_at_once():
    operation = Operation(ConnectionError(), ValueError("no"))

    with pytest.raises(ValueError, match="no"):
        run(retry(operation, 0.1, on=ConnectionError))


def test_the_callback_is_given_each_error_and_may_raise_it():
    final = ConnectionError("final")
    operation = Operation(ConnectionError("first"), final, ConnectionError("never raised"))
    seen = []

    def failed(error):
        seen.append(str(error))
        if error is final:
            raise error

    with pytest.raises(ConnectionError, match="final"):
        run(retry(operation, 0.1, on=ConnectionError, failed=failed))
    assert seen == ["first", "final"]


def test_the_last_error_is_raised_before_a_pause_that_would_reach_the_deadline():
    operation = Operation(*(ConnectionError(str(n)) for n in range(9)))

    async def within_a_second():
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        with pytest.raises(ConnectionError, match="2"):
            await retry(operation, 0.4, on=ConnectionError, deadline_s=begun_s + 1)
        return loop.time() - begun_s

    assert run(within_a_second()) == pytest.approx(0.8)


def test_a_cancelled_pause_ends_the_attempts():
    operation = Operation(*(ConnectionError() for _ in range(9)))

    async def cancelled():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await retry(operation, 0.1, on=ConnectionError)

    run(cancelled())

    assert len(operation.called_s) == 3


def test_a_check_is_repeated_until_it_returns_true():
    answers = [False, False, True]

    async def check():
        return answers.pop(0)

    run(until(check, 0.1))

    assert answers == []


def test_retries_count_their_failures_and_refuse_the_pause_that_would_reach_the_deadline():
    async def pauses():
        retries = Retries(0.4, deadline_s=asyncio.get_running_loop().time() + 1)
        return [await retries.pause() for _ in range(3)], retries.failures

    assert run(pauses()) == ([True, True, False], 3)
