"""Every file that architecture and glossary name exists, and every link leads to a file."""

import pathlib
import re

import pytest
from docs import draw_layers

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


def test_the_page_has_the_layers_of_the_contract():
    chapter = PAGE.partition("## Which package may import which?")[2]
    table = chapter.partition("There are three kinds")[0]
    rows = re.findall(r"^    (\S.*?)(?:  .*)?$", table, re.MULTILINE)
    layers, _ = draw_layers.contracts()
    contract = [{name for name in layer if name != "web"} for layer in layers["odradek"]]

    assert [set(re.findall(r"[a-z_]+", row)) for row in rows] == contract
    assert set().union(*contract) >= PACKAGES


def test_the_picture_is_drawn_from_the_contracts():
    assert draw_layers.PICTURE.read_text() == draw_layers.drawn()


def test_every_room_of_the_broker_is_on_the_page():
    chapter = PAGE.partition("## What is in the folders of `broker`?")[2].partition("\n## ")[0]
    rooms = {path.parent.name for path in SRC.glob("broker/*/__init__.py")}

    assert set(re.findall(r"^\| `([a-z]+)` \|", chapter, re.MULTILINE)) == rooms


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
