"""Every file, module, command and flag that the documentation names exists, and so do its links."""

import pathlib
import re
from importlib.util import find_spec

import pytest
from docs import draw_layers

from odradek.cli.kafka.tool import TOOLS
from odradek.cli.main import COMMANDS

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
    contract = [set(layer) for layer in layers["odradek"]]

    assert [set(re.findall(r"[a-z_]+", row)) for row in rows] == contract
    assert set().union(*contract) >= PACKAGES


def test_the_picture_is_drawn_from_the_contracts():
    assert draw_layers.PICTURE.read_text() == draw_layers.drawn()


def test_every_room_of_the_broker_is_on_the_page():
    chapter = PAGE.partition("## What is in the folders of `broker`?")[2].partition("\n## ")[0]
    rooms = {path.parent.name for path in SRC.glob("broker/*/__init__.py")}

    assert set(re.findall(r"^\| `([a-z]+)` \|", chapter, re.MULTILINE)) == rooms


def test_no_page_has_a_conflict_marker():
    marker = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [page.name for page in PAGES if marker.search(page.read_text())] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


PATH = re.compile(r"(?<![\w./{<-])((?:[a-z_]+/)+[\w.-]+\.(?:py|c|jsonl|json|md|svg|txt))\b")
FOLDER = re.compile(
    r"(?<![\w./{<-])((?:src|tests|docs|bench|examples|pipelines)/[\w/]*\w)(?![\w./-])"
)
MODULE = re.compile(r"\bpython -m ([\w.]+)|\b(?:import|from) (odradek[\w.]*)")
RUN = re.compile(r"(?:^    |`)\./run ([a-z]+)", re.MULTILINE)
BENCH = re.compile(r"\./run bench (\w+)")
COMMAND = re.compile(r"(?:^    |`|\$ |bin/)odradek ([a-z][a-z-]+)", re.MULTILINE)
TOOL = re.compile(r"^    kafka-([a-z-]+) ", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+[a-z])")
OF_SPARK = {"archives", "master"}  # flags of spark-submit
DOCUMENTS = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which also names former files


@pytest.fixture(scope="module")
def source():
    """The text of everything that defines a flag."""
    folders = ("src", "bench", "docs", "examples", "pipelines", "release", "tests/cluster")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(path.read_text() for path in [*paths, ROOT / "run"])


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_paths_and_modules_on_a_page_exist(page):
    text = page.read_text()
    bases = (ROOT, ROOT / "src", SRC, ROOT / "bench", page.parent)
    paths = {*PATH.findall(text), *FOLDER.findall(text)}
    modules = {first or second for first, second in MODULE.findall(text)}

    assert [path for path in paths if not any((base / path).exists() for base in bases)] == []
    assert [m for m in modules if m.startswith("odradek.") and find_spec(m) is None] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_commands_and_flags_on_a_page_exist(page, source):
    text = page.read_text()
    runs = re.findall(r"^  ([a-z]+) ", (ROOT / "run").read_text(), re.MULTILINE)

    assert set(RUN.findall(text)) <= set(runs)
    assert [name for name in BENCH.findall(text) if not (ROOT / f"bench/{name}.py").exists()] == []
    assert set(COMMAND.findall(text)) <= {*COMMANDS, *TOOLS}
    assert set(TOOL.findall(text)) <= set(TOOLS)
    flags = set(FLAG.findall(text)) - OF_SPARK
    assert [flag for flag in flags if f"--{flag}" not in source and f'"{flag}"' not in source] == []
