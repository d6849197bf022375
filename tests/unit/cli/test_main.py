"""The command line starts fast; a failure is one message and exit code 1."""

import contextlib
import json
import subprocess
import sys

import click
import pytest

from odradek import __version__
from odradek.cli import main
from odradek.cli.main import COMMANDS, LazyGroup, run
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord, TargetState
from odradek.local.options import UpOptions, write_options


@pytest.fixture
def stopped(tmp_path):
    """The directory of a stopped cluster."""
    directory = ClusterDirectory(tmp_path / "D")
    write_options(directory, UpOptions(port=9092), brokers=2)
    record = BrokerRecord(wanted=TargetState.STOPPED, listeners=["PLAINTEXT://127.0.0.1:9092"])
    directory.save(ClusterRecord(up=False, brokers={0: record, 1: BrokerRecord()}))
    return directory


def test_help_loads_nothing_that_it_does_not_need():
    program = (
        "import sys; from odradek.cli.main import run; code = run(['--help']);"
        "heavy = {'asyncio', 'rich', 'sqlite3', 'subprocess', 'odradek.wire.codec'};"
        "sys.exit(f'{code} {heavy & sys.modules.keys()}')"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stderr == "0 set()\n"
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_of_the_table_is_there(name):
    command = LazyGroup().get_command(click.Context(main.odradek), name)

    assert command is not None
    assert command.name == name
    assert command.help


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nope"], "No such command 'nope'"),
        (["topcs"], "No such command 'topcs'; did you mean topics"),
        (["statsu"], "No such command 'statsu'; did you mean status"),
        (["plan", "rebalanc"], "No such command 'rebalanc'; did you mean rebalance"),
        (
            ["up", "--", "num.partitons=6"],
            "num.partitons: there is no such broker option; did you mean num.partitions?",
        ),
        (["up", "--nope"], "No such option"),
        (["up", "--brokers", "x"], "'x' is not a number, nor auto"),
        (["up", "--brokers", "0"], "--brokers 0: must be from 1 to 100"),
        (["up", "--", "retention"], "'retention': must have the form key=value"),
        (["up", "--", "broker.id=1"], "broker.id: not to be set here"),
        (["kill"], "Missing argument 'ID'"),
        (["kill", "0", "--dir", "none"], "there is no cluster in"),
        (["status", "--json", "--dir", "none"], "there is no cluster in"),
        (["down", "--dir", "none"], "there is no cluster in"),
        (["server-start", "none.properties"], "none.properties"),
    ],
)
def test_errors_of_commands_are_printed_on_stderr(
    arguments, complaint, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)

    assert run(arguments) == 1
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_broken_properties_file_is_named(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("broker.id=0\nlog.dirs=\\u00zz\n")

    assert run(["server-start", str(file)]) == 1
    assert f"{file}: line 2: \\u00zz" in capsys.readouterr().err


def test_ctrl_c_is_no_traceback(monkeypatch, stopped):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("odradek.cli.odradek.local.Supervisor.down", interrupted)

    assert run(["down", "--dir", str(stopped.path)]) == 130


def test_status_for_machines_has_the_agreed_form(stopped, capsys):
    assert run(["status", "--json", "--dir", str(stopped.path)]) == 0
    home = stopped.path

    assert json.loads(capsys.readouterr().out) == {
        "version": __version__,
        "bootstrap": "127.0.0.1:9092",
        "http": None,
        "brokers": [
            {
                "id": 0,
                "pid": None,
                "state": "stopped",
                "listeners": ["PLAINTEXT://127.0.0.1:9092"],
                "http": None,
                "http_token_file": f"{home}/broker-0/data/http.token",
                "log_dirs": [f"{home}/broker-0/data"],
                "reason": None,
            },
            {
                "id": 1,
                "pid": None,
                "state": "stopped",
                "listeners": [],
                "http": None,
                "http_token_file": f"{home}/broker-1/data/http.token",
                "log_dirs": [f"{home}/broker-1/data"],
                "reason": None,
            },
        ],
    }


def test_status_for_people(stopped, capsys):
    assert run(["status", "--dir", str(stopped.path)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "broker 0    stopped                PLAINTEXT://127.0.0.1:9092",
        "broker 1    stopped                -",
        "connect to  127.0.0.1:9092",
    ]


def test_a_shell_completes_commands_and_tools(monkeypatch, capsys):
    monkeypatch.setenv("_ODRADEK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "odradek t")
    monkeypatch.setenv("COMP_CWORD", "1")
    with contextlib.suppress(SystemExit, click.exceptions.Exit):
        run([])

    completed = {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()}
    assert completed == {"testkit", "topics", "transactions"}


@pytest.mark.parametrize(
    ("log_dirs", "reason"),
    [
        (
            "{home}/file",
            "none of log.dirs can be used: {home}/file: {home}/file: File exists",
        ),
        ("{home}/file/x", "none of log.dirs can be used: {home}/file/x: "),
        ("{home}/file/x,{home}/d", "log.dirs: {home}/file/x cannot be used: "),
    ],
)
def test_impossible_log_directories_are_named_with_the_reason(log_dirs, reason, tmp_path, capsys):
    (tmp_path / "file").touch()
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\n"
                    f"log.dirs={log_dirs.format(home=tmp_path)}\n")  # fmt: skip

    assert run(["server-start", str(file)]) == 1
    output = capsys.readouterr().err
    assert f"{file}: {reason.format(home=tmp_path)}" in output
    assert "coordination.db" not in output


def test_a_misspelt_option_of_one_start_is_refused(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\n")

    assert run(["server-start", str(file), "--override", "log.retention.hour=1"]) == 1
    assert "did you mean log.retention.hours" in capsys.readouterr().err
