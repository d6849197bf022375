"""docs/spark.md lists every option, and no other."""

import pathlib
import re

from odradek.spark.options import SINK_OPTIONS, SOURCE_OPTIONS

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "spark.md").read_text()
ROWS = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
NAMED = {name for row in ROWS for name in re.findall(r"`([A-Za-z.]+)`", row)}


def test_every_option_has_its_row():
    assert {*SOURCE_OPTIONS, *SINK_OPTIONS} <= NAMED
