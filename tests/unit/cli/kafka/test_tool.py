"""Kafka's tools are found by name and start fast; all of them run through `run_tool`."""

import importlib
import pathlib
import socket
import subprocess
import sys
import tomllib

import pytest

from odradek.cli.kafka import tool
from odradek.cli.kafka.tool import TOOLS, run_tool, script_name
from odradek.cli.main import run

ROOT = pathlib.Path(__file__).parents[4]


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_of_the_table_is_there(name):
    module = importlib.import_module(TOOLS[name].module)

    assert callable(module.main)
    assert module.__doc__


def test_every_tool_has_its_console_script_with_and_without_the_suffix():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    mine = {name for name, target in scripts.items() if target == "odradek.cli.kafka.tool:script"}
    names = {script_name(name) for name in TOOLS}
    assert mine == names | {f"{name}.sh" for name in names}


@pytest.mark.parametrize("more", [(), ("--partitions", "9")])
def test_altering_the_replication_factor_is_refused_with_the_way_that_there_is(more, capsys):
    asked = ("--bootstrap-server", "h:1", "--alter", "--topic", "a", "--replication-factor", "3")
    assert run_tool("topics", [*asked, *more]) == 1
    output = capsys.readouterr().err
    hint = output.index("odradek plan replication-factor --topic a --replication-factor 3 --boot")
    assert 0 < output.index("Option  ") < hint  # after Kafka's message and the help
    assert "kafka-reassign-partitions --reassignment-json-file" in output[hint:]


def test_a_tool_loads_nothing_that_it_does_not_need():
    program = (
        "import sys; from odradek.cli.kafka.tool import run_tool;"
        "code = run_tool('topics', ['--list']);"
        "heavy = {'click', 'rich', 'sqlite3', 'argparse', 'odradek.broker.server', 'kazoo'};"
        "sys.exit(f'{code} {heavy & sys.modules.keys()}')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stderr.endswith("1 set()\n")


def test_a_console_script_goes_by_the_name_it_is_called_by(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/somewhere/kafka-topics.sh", "--list"])
    with pytest.raises(SystemExit) as ended:
        tool.script()

    assert ended.value.code == 1
    assert capsys.readouterr().err == "--bootstrap-server must be specified\n"


def test_a_name_that_no_tool_has_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kafka-frobnicate"])
    with pytest.raises(SystemExit) as ended:
        tool.script()

    assert ended.value.code == 1
    assert "kafka-frobnicate: no tool of this name" in capsys.readouterr().err


def test_a_tool_is_a_subcommand_too(capsys):
    assert run(["topics", "--list", "--frobnicate"]) == 1
    assert capsys.readouterr().err == "frobnicate is not a recognized option\n"


def test_conflicting_options_are_named_and_the_help_follows(capsys):
    assert run_tool("topics", ["--bootstrap-server", "a:1", "--create", "--delete"]) == 1
    output = capsys.readouterr()

    assert output.out == ""
    first, *rest = output.err.splitlines()
    assert first.startswith("Command must include exactly one action: --list, --describe")
    assert any("--bootstrap-server" in line for line in rest)


def test_an_unreachable_server_is_named_with_the_reason(tmp_path, capsys, free_port):
    servers = f"127.0.0.1:{free_port},127.0.0.2:{free_port}"
    hasty = tmp_path / "hasty.properties"
    hasty.write_text("default.api.timeout.ms=150\nrequest.timeout.ms=100\n")
    where = ["--bootstrap-server", servers, "--command-config", str(hasty)]

    assert run_tool("topics", [*where, "--list"]) == 1
    output = capsys.readouterr()
    for server, line in zip(servers.split(","), output.err.splitlines(), strict=False):
        assert f"(/{server}) could not be established" in line
        assert "refused" in line
    assert "Timed out waiting for a node assignment. Call: listTopics" in output.out


@pytest.mark.parametrize("server", ["nonsense", "a:b", "host:"])
def test_an_invalid_address_is_reported_on_stderr(capsys, server):
    assert run_tool("topics", ["--bootstrap-server", server, "--list"]) == 1
    output = capsys.readouterr()

    assert output.out == ""
    first, second = output.err.splitlines()
    assert first == "Failed to create new KafkaAdminClient"
    assert server in second


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def parsers(name):
    """The parsers of a tool: its own, or those of its verbs."""
    line = getattr(importlib.import_module(TOOLS[name].module), "command_line", None)
    if line is None:
        return []
    return [line(), *line().verbs.values()]


@pytest.mark.parametrize("name", TOOLS)
def test_each_tool_that_connects_to_brokers_takes_a_file_of_client_properties(name):
    for parser in parsers(name):
        names = {each for option in parser.options for each in option.names}
        connects = names & {"bootstrap-server", "broker-list", "producer-props"}
        assert not connects or "command-config" in names, (name, sorted(names))


@pytest.mark.parametrize(
    ("name", "flag", "complaint"),
    [
        ("console-producer", "producer.config", "Option producer.config requires an argument"),
        ("verifiable-producer", "producer.config", "argument --producer.config: expected one"),
    ],
)
def test_our_name_of_a_flag_is_not_in_kafkas_messages(name, flag, complaint, capsys):
    run_tool(name, [f"--{flag}"])
    assert complaint in capsys.readouterr().err
