"""The pages of docs/ whose commands take long, or need Java."""

import os
import pathlib

import pytest
from tests.documentation.blocks import is_heavy
from tests.documentation.page_run import pages, run_page

ROOT = pathlib.Path(__file__).parents[2]
HEAVY = [page for page in pages(ROOT) if is_heavy(page.read_text(encoding="utf-8"))]


@pytest.mark.skipif(os.environ.get("ODRADEK_CLIENTS") != "1", reason="run by `./run clients`")
@pytest.mark.parametrize("page", HEAVY, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(page: pathlib.Path) -> None:
    run_page(page)
