"""Completion in shells: names and flags, of `odradek` and of Kafka's tools."""

import shutil
import subprocess

import pytest
from click.shell_completion import ShellComplete

from odradek.cli.kafka.tool import TOOLS
from odradek.cli.main import odradek, run
from odradek.cli.odradek.completion import SHELLS


def completions(*words, incomplete):
    asked = ShellComplete(odradek, {}, "odradek", "_ODRADEK_COMPLETE")
    return [item.value for item in asked.get_completions(list(words), incomplete)]


def test_flags_of_kafkas_tools_are_completed():
    assert completions("topics", incomplete="--under") == [
        "--under-replicated-partitions",
        "--under-min-isr-partitions",
    ]
    assert "--partition" in completions("topics", "--list", incomplete="--part")[0]
    assert completions("topics", "--topic", incomplete="x") == []


def test_verbs_are_completed_and_their_flags():
    assert completions("cluster", incomplete="cl") == ["cluster-id"]
    assert completions("cluster", "unregister", incomplete="--i") == ["--id"]
    assert completions("transactions", "--bootstrap-server", "a:1", "find-hanging",
                       incomplete="--max") == ["--max-transaction-timeout"]  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_can_be_asked(tool):
    completions(tool, incomplete="--")


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_printed_is_a_script_of_that_shell(shell, capsys):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out

    assert "kafka-topics" in script
    program = shutil.which(shell) or pytest.skip(f"{shell} is not installed")
    checked = subprocess.run(
        [program, "-n"], input=script, text=True, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
