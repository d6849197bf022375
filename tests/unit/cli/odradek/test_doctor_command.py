"""`odradek doctor` without an answer from a broker reports what the directory shows."""

import json

import pytest

from odradek.cli import connect
from odradek.cli.main import run
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord, TargetState
from odradek.local.options import UpOptions, write_options

FULL = "the last of log.dirs has failed: /d: No space left on device (errno 28)"


@pytest.fixture
def directory(tmp_path):
    """A cluster of two brokers: the process of one has ended by itself, the other was stopped."""
    made = ClusterDirectory(tmp_path / "D")
    write_options(made, UpOptions(port=9092), brokers=2)
    brokers = {
        0: BrokerRecord(wanted=TargetState.RUNNING),
        1: BrokerRecord(wanted=TargetState.STOPPED),
    }
    made.save(ClusterRecord(up=True, brokers=brokers))
    made.log(0).parent.mkdir()
    made.log(0).write_text(f"odradek: {FULL}\n")
    return made


def test_a_broker_that_ended_by_itself_is_reported_with_its_reason(directory, capsys):
    assert run(["doctor", "--json", "--dir", str(directory.path)]) == 1
    crashed, stopped = json.loads(capsys.readouterr().out)["findings"]

    assert (crashed["kind"], crashed["subject"]) == ("crashed", "broker 0")
    assert FULL in crashed["why"]
    assert crashed["fix"].endswith(f"odradek start 0 --dir {directory.path}")
    assert stopped["why"] == "it does not run: it was stopped"
    assert stopped["fix"] == f"odradek start 1 --dir {directory.path}"


def test_status_names_the_reason_why_a_broker_ended(directory, capsys):
    assert run(["status", "--dir", str(directory.path)]) == 0

    assert f"it ended by itself: {FULL}" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["doctor"], ["why", "topic", "t"]])
def test_an_address_where_nothing_listens_is_named_with_the_reason(command, monkeypatch, capsys):
    monkeypatch.setattr(connect, "OWN_WAIT_MS", 0)
    assert run([*command, "--bootstrap-server", "127.0.0.1:1"]) == 1

    assert "no broker answers (127.0.0.1:1: Connection refused)" in capsys.readouterr().err
