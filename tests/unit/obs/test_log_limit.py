"""Repeated lines are written up to a limit; the number left out is logged."""

import io
import logging

import pytest

from odradek.obs.log_limit import LogLimit


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
