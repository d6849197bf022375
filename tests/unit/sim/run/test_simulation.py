"""Violations of a simulation besides those of its checkers."""

import errno
import logging

import pytest

from odradek.broker.cluster.features import FeatureShell
from odradek.log.disk import StorageError
from odradek.model.errors import ApiError, ErrorCode
from odradek.sim.clients.admins import Administrator
from odradek.sim.run.simulation import Options, Outcome, simulate

ERRORS = (ApiError(ErrorCode.NOT_CONTROLLER), StorageError("/data/a/x", errno.EIO))


@pytest.mark.parametrize("error", ERRORS, ids=["of an API", "of a disk"])
def test_a_task_of_a_broker_that_fails_is_one_whatever_the_error(monkeypatch, error):
    async def run(self):
        raise error

    monkeypatch.setattr(FeatureShell, "run", run)
    (text, *_) = simulate(1, Options(seconds=3, only=frozenset())).violations
    assert "logged: features failed" in text


@pytest.mark.parametrize("done", [{"acknowledged": 1}, {"committed": 1}, {"commits": 1}], ids=str)
def test_a_seed_of_one_broker_counts_if_its_clients_were_acknowledged(done):
    assert Outcome(1, Options(), **done).counts
    assert Outcome(1, Options()).shortfalls == ["nothing acknowledged"]


@pytest.mark.parametrize(
    "options",
    [
        Options(seconds=3, traits=frozenset(), only=frozenset()),
        Options(seconds=3, traits=frozenset(), only=frozenset(), brokers=3),
    ],
    ids=["one broker", "three"],
)
def test_a_seed_in_which_nothing_was_served_fails_and_says_so(monkeypatch, options):
    assert not simulate(1, options).violations

    async def makes_no_topic(self, topics):
        pass

    monkeypatch.setattr(Administrator, "run", makes_no_topic)
    texts = simulate(1, options).violations
    assert any("nothing was acknowledged to any client" in text for text in texts), texts


def test_after_it_no_logger_logs_more_than_before_it():
    def that_log_info():
        names = [name for name in logging.root.manager.loggerDict if name.startswith("odradek")]
        return [name for name in names if logging.getLogger(name).isEnabledFor(logging.INFO)]

    before = that_log_info()
    simulate(1, Options(seconds=3, only=frozenset()))
    assert that_log_info() == before
