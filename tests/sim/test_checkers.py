"""Brokers with a fault on purpose: the simulator has to find each of them."""

import pytest

from odradek.log import recovery
from odradek.log.directories import LogDirectory
from odradek.log.flushing import Flusher
from odradek.log.index.offsets import OffsetIndex
from odradek.log.log import Log
from odradek.log.logs import Logs
from odradek.log.producer_state import ProducerState
from odradek.log.repair import damage
from odradek.log.slices import Appended
from odradek.sim.run.faults import Kind
from odradek.sim.run.simulation import Options, simulate
from odradek.sim.world.disk import SimulatedDisk

CRASHES = Kind.KILL, Kind.CRASH
POWER_LOSSES = (Kind.POWER,)


def found(*kinds: Kind, seeds: int = 20) -> str:
    """The first violation that a seed finds."""
    for seed in range(seeds):
        outcome = simulate(seed, Options(seconds=30, kinds=kinds or tuple(Kind)))
        if outcome.violations:
            return outcome.violations[0]
    pytest.fail(f"{seeds} seeds found nothing")


def test_without_a_fault_nothing_is_found():
    with pytest.raises(pytest.fail.Exception):
        found(seeds=3)


def test_an_acknowledgement_without_an_append(monkeypatch):
    append, count = Log.append_as_leader, 0

    def skip_some(self, batch, header, *others):
        nonlocal count
        count += 1
        if count % 40:
            return append(self, batch, header, *others)
        return Appended(self.leo, self.leo + header.last_offset_delta, -1)

    monkeypatch.setattr(Log, "append_as_leader", skip_some)
    assert "it was" in found()


def test_a_recovery_that_checks_no_batch(monkeypatch):
    monkeypatch.setattr(damage, "has_valid_crc", lambda *_: True)
    assert "after the start" in found()


def test_no_recovery_at_all(monkeypatch):
    opened = LogDirectory.open

    def open_as_clean(self):
        entries = opened(self)
        self.was_clean = True
        return entries

    monkeypatch.setattr(LogDirectory, "open", open_as_clean)
    assert found(*CRASHES)


def test_a_high_watermark_above_the_log(monkeypatch):
    monkeypatch.setattr(
        Log, "set_high_watermark", lambda self, offset: setattr(self, "high_watermark", offset)
    )
    assert found(*POWER_LOSSES)


def test_a_recovery_point_that_does_not_wait_for_the_flush(monkeypatch):
    request = Flusher.request

    def too_early(self, done):
        self._log.recovery_point = self._log.leo
        request(self, done)

    monkeypatch.setattr(Flusher, "request", too_early)
    assert "recovery_point" in found(*POWER_LOSSES)


def test_a_disk_that_flushes_nothing(monkeypatch):
    monkeypatch.setattr(
        SimulatedDisk, "flush", lambda self, targets, done: self.complete_later(lambda: done(None))
    )
    assert "power loss" in found(*POWER_LOSSES)


def test_a_clean_stop_that_leaves_everything_in_the_page_cache(monkeypatch):
    def close(self, done):
        self.recovery_point = self.leo
        done(None)

    monkeypatch.setattr(Log, "close", close)
    assert found()


def test_a_leader_that_checks_no_sequences(monkeypatch):
    monkeypatch.setattr(ProducerState, "check", lambda self, header: None)
    assert "idempotent" in found(Kind.RESET, Kind.CUT)


def test_a_restart_that_drops_the_producer_state(monkeypatch):
    monkeypatch.setattr(recovery, "note_producer", lambda *_: None)
    monkeypatch.setattr(recovery, "replay", lambda *_: None)
    monkeypatch.setattr(recovery, "load_snapshot", lambda log, offset, among: 0)
    assert "idempotent" in found(Kind.CRASH, seeds=60)


def test_an_index_that_points_too_far(monkeypatch):
    lookup = OffsetIndex.lookup
    monkeypatch.setattr(OffsetIndex, "lookup", lambda self, relative: lookup(self, relative + 3))
    assert found()


def test_a_deletion_that_deletes_nothing(monkeypatch):
    monkeypatch.setattr(Logs, "delete", lambda self, partition: True)
    assert found()


def test_a_deletion_that_is_not_flushed(monkeypatch):
    monkeypatch.setattr(Logs, "flush_deletions", lambda self, done: done(True))
    assert found(*POWER_LOSSES, seeds=60)
