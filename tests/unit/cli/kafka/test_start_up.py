"""Modules that a tool must not import, because they would dominate its start."""

import subprocess
import sys

import pytest

from odradek.cli.kafka.tool import TOOLS

HEAVY = {
    "odradek.broker", "odradek.local", "numpy", "pyarrow", "pandas", "rich", "scipy",
    "kazoo", "cryptography", "prometheus_client", "sqlite3",
}  # fmt: skip
PROGRAM = """
import io, sys
from contextlib import redirect_stderr, redirect_stdout
from odradek.cli.kafka.tool import run_tool
with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
    run_tool(sys.argv[1], ["--help"])
print("\\n".join(sys.modules))
"""
OF_BROKERS = {"server-start", "server-stop"}


@pytest.mark.parametrize("tool", sorted(set(TOOLS) - OF_BROKERS))
def test_help_imports_nothing_heavy(tool):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tool], capture_output=True, text=True, check=True
    )

    assert not HEAVY & set(done.stdout.splitlines())
