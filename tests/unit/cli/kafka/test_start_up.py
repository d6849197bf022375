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


COUNTED = """
import contextlib, importlib, io, sys
before = set(sys.modules)
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    {}
ours = [name for name in sys.modules if name.partition(".")[0] == "odradek"]
others = {{name.partition(".")[0] for name in sys.modules.keys() - before - set(ours)}}
print(len(ours), *sorted(others - sys.stdlib_module_names))
"""


@pytest.mark.parametrize(
    ("work", "ours_max", "others"),
    [
        ("importlib.import_module('odradek.cli.main').run(['--help'])", 12, ["click"]),
        ("importlib.import_module('odradek.cli.main').run(['status'])", 32, ["click"]),
        ("importlib.import_module(TOOLS['topics'].module)", 51, []),
        ("importlib.import_module(TOOLS['configs'].module)", 50, []),
        ("importlib.import_module(TOOLS['consumer-groups'].module)", 63, []),
    ],
)
def test_a_command_imports_few_modules(work, ours_max, others, tmp_path):
    if "TOOLS" in work:
        work = f"from odradek.cli.kafka.tool import TOOLS; {work}"
    done = subprocess.run(
        [sys.executable, "-c", COUNTED.format(work)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    count, *found = done.stdout.split()

    assert int(count) <= ours_max
    assert found == others
