"""`odradek doctor --watch`: what it reports, when, and what a webhook and Prometheus get."""

import io
import json
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.cli.failures import ToolError
from odradek.cli.main import run
from odradek.cli.odradek.doctor_watch import (
    ATTEMPTS,
    ClusterWatch,
    Exporter,
    Findings,
    FindingsChange,
    Present,
    address,
    lines,
    message,
    metrics_text,
    post,
)
from odradek.model.command import command
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.sentence import sentence
from odradek.plan.examination import Denied, Examination, failed
from odradek.plan.facts import Finding, Severity

DOWN = Finding(
    Severity.CRITICAL,
    "down",
    "broker 1",
    "it does not run",
    sentence(command("odradek", "start", "1")),
)
LAGS = Finding(Severity.WARNING, "lag", "group g", "7 records", sentence("start it"))


DISK = Finding(Severity.WARNING, "disk", "broker 0, /d", "95 % full", sentence("free space"), 0)


def seen(*findings, **more):
    return Examination(findings=findings, **more)


def watched(*rounds):
    """What is reported of these examinations, and the exit code."""
    reported, left = [], list(rounds)

    def examine():
        if isinstance(left[0], Exception):
            raise left.pop(0)
        return left.pop(0)

    def report(changed, findings):
        reported.append((len(rounds) - len(left), changed, findings))

    watching = ClusterWatch(
        examine,
        now_s=lambda: 100.0 * (len(rounds) - len(left)),
        examined=lambda _: None,
        report=report,
        wait=lambda: bool(left),
    )
    return reported, watching.run()


def test_the_first_examination_and_each_change_are_reported():
    reported, code = watched(seen(), seen(DOWN), seen(DOWN), seen(DOWN, LAGS), seen(LAGS))

    assert [(at, changed, len(found.present)) for at, changed, found in reported] == [
        (1, FindingsChange(), 0),
        (2, FindingsChange(new=(DOWN,)), 1),
        (4, FindingsChange(new=(LAGS,)), 2),
        (5, FindingsChange(solved=(DOWN,)), 1),
    ]
    assert code == 0


@pytest.mark.parametrize(("last", "code"), [([], 0), ([LAGS], 0), ([LAGS, DOWN], 1)])
def test_the_exit_code_is_that_of_the_last_examination(last, code):
    assert watched(seen(DOWN), seen(*last))[1] == code


def test_a_finding_whose_numbers_change_is_the_same():
    reported, _ = watched(seen(LAGS), seen(LAGS._replace(why="9 records")))

    assert len(reported) == 1


SILENT = failed("no answer")


@pytest.mark.parametrize(
    "blind",
    [
        SILENT,
        ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer"),
        TimeoutError(),
        seen(not_examined={"lag": "no answer"}),
        seen(unavailable={"lag": "the coordinator is a broker of Apache Kafka now"}),
    ],
)
def test_a_finding_is_not_solved_by_an_examination_that_could_not_look(blind):
    reported, _ = watched(seen(LAGS), blind, blind, seen())

    assert [changed.solved for _, changed, _ in reported] == [(), (), (LAGS,)]
    _, changed, found = reported[1]
    assert changed.not_examined == (LAGS,)
    assert found.present == (Present(LAGS, 100.0),)


def test_a_finding_that_is_found_again_was_not_new():
    reported, _ = watched(seen(LAGS), SILENT, seen(LAGS))

    assert [changed.new for _, changed, _ in reported] == [(LAGS,), (), ()]
    assert reported[2][1].examined_again == (LAGS,)
    assert reported[2][2].present == (Present(LAGS),)


@pytest.mark.parametrize(("unreported", "solved"), [({0}, ()), ({1}, (DISK,))])
def test_a_finding_of_a_broker_needs_the_report_of_that_broker(unreported, solved):
    reported, _ = watched(seen(DISK), seen(unreported=frozenset(unreported)))

    assert reported[1][1].solved == solved


def test_the_exit_code_says_that_something_was_not_examined():
    assert watched(seen(), SILENT)[1] == 1
    assert watched(SILENT, seen())[1] == 0
    assert watched(seen(), seen(unavailable={"reports": "brokers of Apache Kafka"}))[1] == 0


def test_wrong_options_end_the_watch_at_once():
    with pytest.raises(ToolError):
        watched(ToolError("no such file"), seen())


def change_of(before, after):
    found, _ = Findings().after(before, 0)
    found, changed = found.after(after, 60)
    return message(changed, found)


AT = "1970-01-01T00:01:00Z"


def test_a_change_is_printed_with_what_to_do():
    assert lines(change_of(seen(LAGS), seen(DOWN))) == (
        f"{AT} solved: lag: group g\n"
        f"{AT} critical: down: broker 1\n"
        "    why: it does not run\n"
        "    fix: odradek start 1\n"
        f"{AT} 1 finding."
    )
    assert lines(change_of(seen(DOWN), seen())).endswith("Nothing is wrong.")


def test_what_may_not_be_examined_is_printed_with_the_acl_and_solves_nothing():
    denied = {"lag": Denied("GROUP_AUTHORIZATION_FAILED", sentence("add: ", command("kafka-acls")))}
    changed = change_of(seen(LAGS), seen(denied=denied))

    assert lines(changed).startswith(
        f"{changed['at']} may not be examined: lag: GROUP_AUTHORIZATION_FAILED\n"
        "    fix: add: kafka-acls\n"
    )
    assert changed["solved"] == []
    assert changed["denied"]["lag"]["commands"] == [
        {"words": ("kafka-acls",), "text": "kafka-acls"}
    ]
    assert watched(seen(LAGS), seen(denied=denied))[1] == 0
    assert lines(change_of(seen(), seen(denied=denied))).endswith(
        " Nothing is wrong in what was examined."
    )


def test_what_was_not_examined_is_printed_with_the_reason():
    assert lines(change_of(seen(LAGS), seen(not_examined={"cluster": "no answer"}))) == (
        f"{AT} not examined: cluster: no answer\n"
        f"{AT} unknown whether it is solved: lag: group g: not examined since "
        "1970-01-01T00:00:00Z\n"
        f"{AT} 1 finding, 1 of them not examined now."
    )
    assert lines(change_of(seen(), seen(not_examined={"cluster": "x"}))).endswith(
        "Nothing was examined."
    )


class Receiver:
    """A webhook that answers with these status codes, or is not there (None)."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.received = []

    def __call__(self, request, *, timeout):
        assert timeout > 0
        self.received.append(json.loads(request.data))
        answer = self.answers.pop(0)
        if answer is None:
            raise urllib.error.URLError("refused")
        if answer >= 300:
            raise urllib.error.HTTPError(request.full_url, answer, "no", {}, io.BytesIO())
        return io.BytesIO()


@pytest.mark.parametrize(
    ("answers", "why", "pauses"),
    [
        ([200], None, []),
        ([None, 503, 204], None, [1, 2]),
        ([503] * ATTEMPTS, "HTTP 503", [1, 2]),
        ([404], "HTTP 404", []),
    ],
)
def test_a_webhook_is_tried_a_few_times_with_pauses(answers, why, pauses):
    receiver, paused = Receiver(*answers), []

    assert post("http://hook", {"new": []}, pause=paused.append, opener=receiver) == why
    assert receiver.received == [{"new": []}] * len(answers)
    assert paused == pauses


def test_findings_are_metrics():
    groups = seen(DOWN, LAGS._replace(subject='group "g"'), not_examined={"retention": "no answer"})
    text = metrics_text(Findings().after(groups, 12.5)[0]).decode()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    finding = ("kind", "lag"), ("severity", "warning"), ("subject", 'group "g"')
    assert samples["odradek_doctor_finding", *finding] == 1
    assert samples["odradek_doctor_findings", ("severity", "critical")] == 1
    assert samples["odradek_doctor_findings", ("severity", "note")] == 0
    assert samples["odradek_doctor_not_examined", ("area", "retention")] == 1
    assert samples["odradek_doctor_examined_timestamp_seconds",] == 12.5


def test_the_exporter_serves_the_latest_findings():
    exporter = Exporter("127.0.0.1", 0)
    try:
        exporter.text = metrics_text(Findings().after(seen(DOWN), 1)[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as answer:
            assert answer.read() == exporter.text
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/other")
        with pytest.raises(ToolError, match=f"--listen 127.0.0.1:{exporter.port}"):
            Exporter("127.0.0.1", exporter.port)
    finally:
        exporter.close()


def test_addresses_to_listen_on():
    assert address("9308") == ("127.0.0.1", 9308)
    assert address("[::1]:9308") == ("::1", 9308)
    assert address("0.0.0.0:9308") == ("0.0.0.0", 9308)


@pytest.mark.parametrize(
    "flags",
    [
        ["--webhook", "http://hook"],
        ["--watch", "--webhook", "ftp://hook"],
        ["--watch", "--listen", "metrics"],
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, capsys):
    assert run(["doctor", "--bootstrap-server", "127.0.0.1:1", *flags]) == 1
    assert flags[-2] in capsys.readouterr().err
