"""README and the pages of docs/ show what their commands and programs print."""

import pathlib

import pytest
from tests.documentation.blocks import EXECUTED, blocks, is_heavy, not_fenced
from tests.documentation.page_run import pages, run_page

ROOT = pathlib.Path(__file__).parents[2]
# Blocks of all pages that are not executed. The number may not grow.
NOT_RUN = 13


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


TEXTS = {page: page.read_text(encoding="utf-8") for page in pages(ROOT)}
WITH_BLOCKS = [
    page for page, text in TEXTS.items() if any(block.is_executed for block in blocks(text))
]
# The others are those of ./run clients (tests/clients/test_pages.py).
LIGHT = [page for page in WITH_BLOCKS if not is_heavy(TEXTS[page])]


@pytest.mark.parametrize("page", LIGHT, ids=name_of)
def test_a_page_shows_what_its_commands_print(page):
    run_page(page)


def test_few_commands_are_not_executed():
    reasons = [
        f"{name_of(page)}:{block.first}: {block.directives['not run']}"
        for page, text in TEXTS.items()
        for block in blocks(text)
        if block.language in EXECUTED and "not run" in block.directives
    ]
    assert len(reasons) <= NOT_RUN, "\n".join(reasons)


def test_commands_are_in_fenced_blocks():
    found = {name_of(page): not_fenced(text) for page, text in TEXTS.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}
