"""Repeated lines are written up to a limit; the number left out is logged."""

import io
import logging

import pytest

from odradek.obs.log_limit import LogLimit, of


class Log:
    def __init__(self):
        self.ms, self.stream = 0, io.StringIO()
        self.limit = LogLimit(lambda: self.ms, lines_max=3, interval_ms=1_000)
        self.handler = logging.StreamHandler(self.stream)
        self.handler.addFilter(self.limit)
        self.logger = logging.getLogger("test of the log's limit")
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO)
        self.logger.addHandler(self.handler)

    @property
    def lines(self):
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log():
    made = Log()
    yield made
    made.logger.removeHandler(made.handler)


def test_lines_that_differ_only_in_their_values_count_together(log):
    for port in range(10):
        log.logger.warning("closed %s:%d", "10.0.0.7", port)
        log.logger.info("%s", f"partition {port} of topic t")
    log.logger.info("something else")

    assert log.lines == [
        "closed 10.0.0.7:0", "partition 0 of topic t",
        "closed 10.0.0.7:1", "partition 1 of topic t",
        "closed 10.0.0.7:2", "partition 2 of topic t",
        "something else",
    ]  # fmt: skip


def test_the_number_left_out_is_logged_when_the_interval_is_over(log):
    for port in range(10):
        log.logger.warning("closed %d", port)
    log.limit.flush()
    assert len(log.lines) == 3

    log.ms = 1_000
    log.limit.flush()
    log.logger.warning("closed %d", 10)
    assert log.lines[3:] == [
        "7 more lines like this in 1 s were left out: closed %d", "closed 10",
    ]  # fmt: skip


def test_the_number_left_out_is_logged_at_the_end(log):
    for port in range(4):
        log.logger.warning("closed %d", port)
    log.limit.flush(ends=True)

    assert log.lines[-1] == "1 more lines like this in 0 s were left out: closed %d"


def test_nobody_hides_what_is_about_somebody_or_something_else(log):
    for number in range(400):
        log.logger.info("%s may not read %s", "eve", f"x{number}", extra=of("eve", f"x{number}"))
        log.logger.info("%s may not read %s", "eve", "x", extra=of("eve", "x"))
    log.logger.info("%s may not read %s", "eve", "payroll", extra=of("eve", "payroll"))
    log.logger.info("%s may not read %s", "alice", "x", extra=of("alice", "x"))

    assert sum(line == "eve may not read x" for line in log.lines) == 3
    assert len({line for line in log.lines if line.startswith("eve may not read x")}) == 401
    assert log.lines[-2:] == ["eve may not read payroll", "alice may not read x"]


def test_lines_of_another_level_are_not_hidden(log):
    log.logger.setLevel(logging.DEBUG)
    for _ in range(10):
        log.logger.debug("%s is allowed or not", "alice")
    log.logger.info("%s is allowed or not", "alice")

    assert len(log.lines) == 4


def test_what_is_left_out_is_counted_by_who_caused_it(log):
    for who, count in (("eve", 10), ("alice", 5), ("bob", 3)):
        for what in ("x", "y"):
            for _ in range(count):
                log.logger.info("%s may not read %s", who, what, extra=of(who, what))
    written = len(log.lines)
    log.limit.flush(ends=True)

    assert log.lines[written:] == [
        "14 more lines like this of eve in 0 s were left out: %s may not read %s",
        "4 more lines like this of alice in 0 s were left out: %s may not read %s",
    ]


def test_what_is_left_out_is_counted_of_everybody(log):
    everybody = ["alice", "bob", "carol", "dave", "eve"]
    for who in everybody:
        for _ in range(4):
            log.logger.info("%s may not read", who, extra=of(who))
    written = len(log.lines)
    log.limit.flush(ends=True)

    assert log.lines[written:] == [
        f"1 more lines like this of {who} in 0 s were left out: %s may not read"
        for who in everybody
    ]


def test_what_is_counted_is_bounded_and_nothing_is_hidden_by_it(log):
    for _ in range(4):
        log.logger.info("%s", "before", extra=of("bob"))
    for number in range(10_050):
        log.logger.info("no %d", number, extra=of("eve", number))

    written = [line for line in log.lines if line.startswith("no ")]
    assert len(set(written)) == 10_050
    assert "1 more lines like this of bob in 0 s were left out: before" in log.lines
