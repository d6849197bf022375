"""The page of the documentation is generated from the tables."""

import pathlib
import runpy

DOCS = pathlib.Path(__file__).parents[3] / "docs"


def test_the_page_was_made_from_these_tables():
    made = runpy.run_path(str(DOCS / "generate_configuration.py"))["page"]()

    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == made, (
        "run `python docs/generate_configuration.py`"
    )
