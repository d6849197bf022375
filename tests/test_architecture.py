"""Every file that architecture and glossary name exists, and every link leads to a file."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SRC = ROOT / "src" / "odradek"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", PAGE + GLOSSARY)))
PACKAGES = {path.parent.name for path in SRC.glob("*/__init__.py")}


def test_the_page_names_files():
    assert len(NAMED) > 40


@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_is_named_is_there(name):
    assert (SRC / name).is_file()


def test_every_package_has_its_place_in_the_layers():
    chapter = PAGE.partition("## Which package may import which?")[2]
    layers = chapter.partition("There are three kinds")[0]

    assert set(re.findall(r"[a-z]+", layers)) >= PACKAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
