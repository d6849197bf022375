"""How a test asks for simulations: by the decorator, by the fixture, or by a plain function."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

from odradek.local.cores import usable_cores
from odradek.testkit.simulation.engine import Test, play
from odradek.testkit.simulation.errors import SimulationError
from odradek.testkit.simulation.outcome import RunOptions
from odradek.testkit.simulation.report import failure_text
from odradek.testkit.simulation.runs.children import Children
from odradek.testkit.simulation.runs.forks import Here, has_fixed_hashes
from odradek.testkit.simulation.runs.search import Runs, Say, SeedSearch, search

SEEDS: Final = 100
BROKERS: Final = 3
MINUTES: Final = 0.5


def kafka_simulation(
    *,
    seeds: int = SEEDS,
    brokers: int = BROKERS,
    minutes: float = MINUTES,
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Make a test function a simulation: it gets `sim`, and says what there is and must hold.

    It is called once for each seed. Its other arguments are fixtures of pytest, which are made once
    for all seeds of a child process.
    """

    def decorate(test: Callable[..., object]) -> Callable[..., None]:
        signature = inspect.signature(test)
        names = list(signature.parameters)
        if "sim" not in names:
            raise SimulationError(f"{test.__name__} has to take an argument `sim`")

        @wraps(test)
        def wrapped(*arguments: Any, kafka_simulation: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True

            def of_seed(sim: Any) -> object:
                return test(*arguments, sim=sim, **fixtures)

            of_seed.__name__ = test.__name__
            kafka_simulation(of_seed, seeds=seeds, brokers=brokers, minutes=minutes)

        others = [p for name, p in signature.parameters.items() if name != "sim"]
        asked = inspect.Parameter("kafka_simulation", inspect.Parameter.KEYWORD_ONLY)
        wrapped.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*others, asked], return_annotation=None
        )
        del wrapped.__wrapped__  # pytest would look for the fixtures of what is wrapped
        return wrapped

    return decorate


def simulate(  # noqa: PLR0913 - what a search is made of
    test: Test,
    *,
    seeds: int | Sequence[int] = SEEDS,
    brokers: int = BROKERS,
    minutes: float = MINUTES,
    jobs: int | None = None,
    say: Say = lambda _: None,
    stop_at_first: bool = True,
) -> SeedSearch:
    """Simulate without pytest. Returns what was found; nothing is raised for a failing seed.

    Seeds run side by side if `test` is a function of a file's top level; others run here, and
    depend on the order of sets of strings in this process (PYTHONHASHSEED) as well.

    Raises:
        SimulationError: a child process has ended.
    """
    asked = [RunOptions(seed) for seed in (range(seeds) if isinstance(seeds, int) else seeds)]
    here = partial(play, test, brokers=brokers, seconds=60 * minutes, test_name=_name(test))
    where = _place(test)
    if where is None or (jobs == 1 and has_fixed_hashes()):
        return search(Here(here), asked, say=say, stop_at_first=stop_at_first)
    command = [
        "-m", "odradek.testkit.simulation.runs.child",
        *where, str(brokers), str(60 * minutes),
    ]  # fmt: skip
    with Children(command, jobs=jobs or usable_cores()) as children:
        return search(children, asked, say=say, stop_at_first=stop_at_first)


def asked_by_pytest(
    test: Test,
    runs: Runs,
    asked: Sequence[RunOptions],
    *,
    repeat: str,
    say: Say,
    failed: Callable[[RunOptions], object],
) -> None:
    """Search on behalf of a test.

    Raises:
        AssertionError: a seed fails; the message is the report.
    """
    __tracebackhide__ = True
    found = search(runs, asked, say=say)
    if found.first is None and not found.unlike:
        return
    if found.smallest is not None and not found.smallest.error:
        failed(found.smallest.options)
    raise AssertionError(failure_text(found, name=_name(test), repeat=repeat))


def _name(test: Test) -> str:
    return getattr(test, "__name__", "the test")


def _place(test: Test) -> tuple[str, str] | None:
    """The file and name by which a child finds a test."""
    code, name = getattr(test, "__code__", None), getattr(test, "__qualname__", "<")
    if code is None or "<" in name or not Path(code.co_filename).is_file():
        return None
    return code.co_filename, name
