"""The two clocks are two types, and a time is named after its clock."""

import ast
import pathlib

from mypy import api

import odradek

SRC = pathlib.Path(odradek.__file__).parent
TYPES = {"wall_ms": "WallMs", "monotonic_ms": "MonotonicMs"}


def parameters():
    """Each annotated parameter or field: its file, name and annotation."""
    for path in sorted(SRC.rglob("*.py")):
        where = str(path.relative_to(SRC))
        if where.startswith(("sim/", "spark/")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg) and node.annotation is not None:
                yield where, node.arg, ast.unparse(node.annotation)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield where, node.target.id, ast.unparse(node.annotation)


def test_a_parameter_named_after_a_clock_has_the_type_of_that_clock():
    wrong = [
        f"{where}: {name}: {annotation}"
        for where, name, annotation in parameters()
        if name in TYPES and TYPES[name] not in annotation
    ]
    assert wrong == []


def test_no_parameter_is_named_now():
    found = {where for where, name, _ in parameters() if name == "now_ms"}
    assert found == set()


SWAPPED = """
from odradek.group.offsets import Offsets
from odradek.model.clock import Now
from odradek.plan.facts import clock
from odradek.txn.transaction import Transaction, fenced


def swap(offsets: Offsets, transaction: Transaction, now: Now) -> None:
    Now(now.wall_ms, now.wall_ms)
    offsets.expired(wall_ms=now.monotonic_ms, retention_ms=1, since=lambda _: 0)
    fenced(transaction, wall_ms=now.monotonic_ms)
    clock(0, now.monotonic_ms)
    clock(0, now.wall_ms)
"""


def test_mypy_refuses_a_time_of_the_other_clock(tmp_path):
    path = tmp_path / "swapped.py"
    path.write_text(SWAPPED)
    out, _, _ = api.run(["--strict", str(path)])
    refused = [line.split(":")[1] for line in out.splitlines() if "[arg-type]" in line]
    assert refused == ["9", "10", "11", "12"], out
