"""Reports of different moments do not make sentences that contradict each other."""

import pytest

from odradek.explain.collected import picture_of
from odradek.explain.replicas import explain_replicas
from odradek.explain.reports import Asked
from odradek.explain.sentences import explain_topic
from odradek.plan.commands import Caller, clock

NOW_MS = 1_700_000_000_000
CONTROLLER = {
    "is_controller": True, "controller_id": 1, "brokers": {"1": {}, "2": {}}, "shutting_down": [],
    "topic": {"exists": True, "being_deleted": False, "deletion_waits": None},
    "partitions": [{
        "topic": "t", "partition": 0, "leader": 1, "isr": [1], "recovering": False,
        "replicas": [1, 2], "adding": [], "removing": [], "dead": [], "on_failed_dirs": [],
    }],
}  # fmt: skip
LEADER = {
    "topic": "t", "partition": 0, "role": "leader", "leader": 1, "leader_epoch": 5,
    "log_start_offset": 0, "leo": 3, "high_watermark": 3, "last_stable_offset": 3,
    "open_transaction_offset": None, "isr": [1], "isr_min": 1, "is_under_min_isr": False,
    "followers": [{"broker": 2, "leo": -1, "caught_up_ms_ago": 9, "fetched_ms_ago": None,
                   "in_sync": False}],
}  # fmt: skip
COPIES = "it copies what it misses, and joins the ISR by itself"


def problem(*, is_lasting):
    return {"leader": 1, "topic": None, "partition": None, "problem": "the log-in is refused",
            "since_ms": NOW_MS - 2_000, "is_lasting": is_lasting}  # fmt: skip


def said(earlier, later):
    """The line of the topic, and the last of the table; of broker 2 there are two reports."""
    broker = {"log_dirs": (), "bound": ()}
    asked = Asked(Caller("b:9"), {
        1: {"controller": CONTROLLER, "broker": broker,
            "replicas": {"replicas": [LEADER], "lag_ms_max": 30_000}},
        2: {"broker": {**broker, "fetch_problems": earlier},
            "replicas": {"replicas": [], "lag_ms_max": 30_000, "fetch_problems": later}},
    })  # fmt: skip
    (line,) = explain_topic(picture_of(asked, NOW_MS), "t")
    return str(line), str(explain_replicas(asked.by_broker("replicas"), 0)[-1])


def test_a_problem_that_has_just_begun_is_said_in_both():
    line, row = said([], [problem(is_lasting=False)])

    assert row.endswith("; broker 2 cannot fetch from broker 1: the log-in is refused")
    assert line.endswith(
        f"broker 2 cannot fetch from broker 1 since {clock(NOW_MS - 2_000, NOW_MS)}: the log-in "
        f"is refused; when that is over, {COPIES}"
    )


def test_a_problem_that_lasts_has_its_fix():
    line, row = said([problem(is_lasting=True)], [problem(is_lasting=True)])

    assert "the log-in is refused" in row
    assert "let broker 2 reach broker 1" in line
    assert COPIES not in line


def test_a_problem_that_is_over_in_the_later_report_is_said_in_neither():
    line, row = said([problem(is_lasting=True)], [])

    assert line.endswith(COPIES)
    assert "refused" not in line + row


@pytest.mark.parametrize("is_lasting", [True, False])
def test_a_broker_that_gave_one_report_only_is_explained_by_it(is_lasting):
    asked = Asked(Caller("b:9"), {
        1: {"controller": CONTROLLER, "broker": {"log_dirs": ()}},
        2: {"broker": {"log_dirs": (), "fetch_problems": [problem(is_lasting=is_lasting)]}},
    })  # fmt: skip

    (line,) = explain_topic(picture_of(asked, NOW_MS), "t")
    assert "the log-in is refused" in str(line)
