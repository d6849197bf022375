"""What clients choose cannot forge lines of a broker's log, nor act on a terminal."""

import io
import logging
import re

import pytest

from odradek.obs.log_lines import LineFormatter

BEGIN = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] ")


@pytest.fixture
def log():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("test of the log's lines")
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, stream
    logger.removeHandler(handler)


def test_ordinary_lines_are_unchanged(log):
    logger, stream = log
    logger.warning("group %s is empty", "größe 5 €")

    assert BEGIN.sub("", stream.getvalue()) == (
        "WARNING group größe 5 € is empty (test of the log's lines)\n"
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x\n[2026-11-27 00:00:00,000] WARNING forged", "x\\n[2026-11-27 00:00:00,000] WARNING"),
        ("x\r\x1b[2J\x1b]0;title\x07", "x\\r\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m\x85", "\\u009b31m\\u0085"),
        ("\u202egnp\u2028", "\\u202egnp\\u2028"),
    ],
    ids=["line", "escape", "C1", "bidirectional"],
)
def test_a_name_stays_in_its_line_and_is_printable(log, name, shown):
    logger, stream = log
    logger.warning("client %s", name)

    assert f"WARNING client {shown}" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue()[:-1].isprintable()


def test_a_traceback_has_no_line_that_looks_like_a_record(log):
    logger, stream = log
    try:
        _fail("x\n[2026-11-27 00:00:00,000] WARNING forged\x1b[31m")
    except ValueError:
        logger.exception("it failed", stack_info=True)

    lines = stream.getvalue().split("\n")
    assert BEGIN.match(lines[0])
    assert all(line.startswith("    ") for line in lines[1:-1])
    assert "forged\\x1b[31m" in stream.getvalue()
    assert lines[-1] == ""


def _fail(text):
    raise ValueError(text)
