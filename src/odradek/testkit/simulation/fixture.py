"""The fixture `kafka_simulation` of pytest."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pytest

from odradek.local.cores import usable_cores
from odradek.testkit.simulation.asking import (
    BROKERS,
    MINUTES,
    SEEDS,
    asked_by_pytest,
)
from odradek.testkit.simulation.engine import Test, play
from odradek.testkit.simulation.outcome import RunOptions
from odradek.testkit.simulation.report import options_of, words_of
from odradek.testkit.simulation.runs.children import Children
from odradek.testkit.simulation.runs.forks import Here, has_fixed_hashes
from odradek.testkit.simulation.runs.pipe import call_of_child, pipe_of_child, serve

_REMEMBERED_MAX: Final = 10


class KafkaSimulation:
    """Called by a test: `kafka_simulation(plan, seeds=200)`; `plan(sim)` says what there is."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._config = request.config
        self._calls = 0

    def __call__(
        self,
        plan: Test,
        *,
        seeds: int = SEEDS,
        brokers: int = BROKERS,
        minutes: float = MINUTES,
    ) -> None:
        """Simulate seeds until one fails.

        Raises:
            AssertionError: a seed fails; the message is the report.
        """
        __tracebackhide__ = True
        call, self._calls = self._calls, self._calls + 1
        here = partial(play, plan, brokers=brokers, seconds=60 * minutes)
        child = call_of_child()
        if child is not None:
            if child == call:
                serve(*pipe_of_child(), here)
                os._exit(0)  # what runs have left is not freed one by one
            return
        asked = self._seeds(seeds, call)
        ordered = self._config.getoption("--kafka-seed")
        search = partial(
            asked_by_pytest,
            plan,
            asked=asked,
            repeat=f"pytest {self._nodeid()}",
            say=self._say,
            failed=partial(self._remember, call),
        )
        if self._config.getoption("usepdb") or (ordered and has_fixed_hashes()):
            search(runs=Here(here, forks=False))
            return
        jobs = self._config.getoption("--kafka-jobs") or usable_cores()
        with Children(
            self._command(), jobs=min(jobs, len(asked)), call=call, cwd=os.getcwd()
        ) as children:
            search(runs=children)

    def _seeds(self, count: int, call: int) -> Sequence[RunOptions]:
        ordered = self._config.getoption("--kafka-seed")
        if ordered:
            return [options_of(words) for words in ordered]
        count = self._config.getoption("--kafka-seeds") or count
        drawn = [RunOptions(seed) for seed in range(count)]
        return [*dict.fromkeys([*map(options_of, self._remembered(call)), *drawn])]

    def _command(self) -> list[str]:
        config, request = self._config, self._request
        command = ["-m", "pytest", f"{config.rootpath}/{request.node.nodeid}"]
        command += ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir"]
        command += [str(config.rootpath), f"--import-mode={config.getoption('importmode')}"]
        if config.inipath is not None:
            command += ["-c", str(config.inipath)]
        return command

    # ---------------------------------------------------------------------- failing seeds

    def _key(self, call: int) -> str:
        return f"odradek/failing-seeds/{self._request.node.nodeid.replace('/', '|')}-{call}"

    def _remembered(self, call: int) -> list[str]:
        """The seeds that failed in earlier runs of the test: they are tried first."""
        cache = getattr(self._config, "cache", None)
        return [] if cache is None else cache.get(self._key(call), [])

    def _remember(self, call: int, options: RunOptions) -> None:
        cache = getattr(self._config, "cache", None)
        if cache is not None:
            known = [words_of(options), *self._remembered(call)]
            cache.set(self._key(call), [*dict.fromkeys(known)][:_REMEMBERED_MAX])

    # ------------------------------------------------------------------------- what is said

    def _nodeid(self) -> str:
        path, _, name = self._request.node.nodeid.partition("::")
        shown = os.path.relpath(self._config.rootpath / path)
        return f"{shown}::{name}"

    def _say(self, what: str) -> None:
        manager = self._config.pluginmanager
        reporter: Any = manager.getplugin("terminalreporter")
        capture: Any = manager.getplugin("capturemanager")
        if reporter is None or capture is None:  # a worker of pytest-xdist
            return
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"  {self._request.node.name}: {what}")
