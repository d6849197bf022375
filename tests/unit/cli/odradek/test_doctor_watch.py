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
    address,
    change,
    lines,
    message,
    metrics_text,
    post,
)
from odradek.model.command import command
from odradek.model.sentence import sentence
from odradek.plan.facts import Finding, Severity

DOWN = Finding(
    Severity.CRITICAL,
    "down",
    "broker 1",
    "it does not run",
    sentence(command("odradek", "start", "1")),
)
LAGS = Finding(Severity.WARNING, "lags", "group g", "7 records", sentence("start it"))


def watched(*rounds):
    """What is reported of these examinations, and the exit code."""
    reported, left = [], [list(findings) for findings in rounds]

    def report(changed, findings):
        reported.append((len(rounds) - len(left), changed.new, changed.solved, len(findings)))

    code = ClusterWatch(lambda: left.pop(0), report=report, wait=lambda: bool(left)).run()
    return reported, code


def test_the_first_examination_and_each_change_are_reported():
    reported, code = watched([], [DOWN], [DOWN], [DOWN, LAGS], [LAGS])

    assert reported == [
        (1, (), (), 0),
        (2, (DOWN,), (), 1),
        (4, (LAGS,), (), 2),
        (5, (), (DOWN,), 1),
    ]
    assert code == 0


@pytest.mark.parametrize(("last", "code"), [([], 0), ([LAGS], 0), ([LAGS, DOWN], 1)])
def test_the_exit_code_is_that_of_the_last_examination(last, code):
    assert watched([DOWN], last)[1] == code


def test_a_finding_whose_numbers_change_is_the_same():
    assert not change([LAGS], [LAGS._replace(why="9 records")])


def test_a_change_is_printed_with_what_to_do():
    body = message(0, change([LAGS], [DOWN]), [DOWN])
    at = "1970-01-01T00:00:00Z"

    assert lines(body) == (
        f"{at} solved: lags: group g\n"
        f"{at} critical: down: broker 1\n"
        "    why: it does not run\n"
        "    fix: odradek start 1\n"
        f"{at} 1 finding."
    )
    assert lines(message(0, change([DOWN], []), [])).endswith("Nothing is wrong.")


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
    text = metrics_text([DOWN, LAGS._replace(subject='group "g"')], 12.5).decode()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    finding = ("kind", "lags"), ("severity", "warning"), ("subject", 'group "g"')
    assert samples["odradek_doctor_finding", *finding] == 1
    assert samples["odradek_doctor_findings", ("severity", "critical")] == 1
    assert samples["odradek_doctor_findings", ("severity", "note")] == 0
    assert samples["odradek_doctor_examined_timestamp_seconds",] == 12.5


def test_the_exporter_serves_the_latest_findings():
    exporter = Exporter("127.0.0.1", 0)
    try:
        exporter.text = metrics_text([DOWN], 1)
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
