"""Why a broker's process ended, read from its log."""

import pytest

from odradek.local.ends import end_of, last_lines

SERVES = "[2026-05-04 10:00:00,000] INFO broker 0 serves PLAINTEXT://h:1 (odradek.broker.main)"
FULL = "odradek: the last of log.dirs has failed: /d: No space left on device (errno 28)"
OFFLINE = "[2026-05-04 10:00:01,000] ERROR controller failed (odradek.broker.server)"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([SERVES, FULL], FULL.removeprefix("odradek: ")),
        ([SERVES, OFFLINE, FULL], FULL.removeprefix("odradek: ")),
        ([SERVES, OFFLINE, "Traceback (most recent call last):"], "controller failed"),
        ([FULL, SERVES], ""),  # it was started again since
        ([SERVES], ""),
        ([], ""),
    ],
)
def test_the_last_reason_since_it_served_last(lines, reason):
    assert end_of(lines) == reason


def test_of_a_long_log_the_end_is_read(tmp_path):
    log = tmp_path / "broker-0.log"
    log.write_text("x" * 100 + "\n" + FULL + "\n")

    assert last_lines(log, len(FULL) + 5)[-1] == FULL
    assert last_lines(tmp_path / "none.log") == []
