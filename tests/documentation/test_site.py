"""The site of docs/ can be built, and its links lead somewhere."""

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("zensical") is None, reason="the group `docs`")
def test_the_site_can_be_built_strictly(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    done = subprocess.run(
        [pathlib.Path(sys.executable).parent / "zensical", "build", "--strict"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert (tmp_path / "site" / "architecture.html").is_file()


PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_marker_of_a_merge(page):
    assert not re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", page.read_text(), re.MULTILINE)


def leaves(entries):
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else leaves(value)


def test_every_page_is_in_the_navigation():
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}

    assert sorted(leaves(navigation)) == sorted(pages)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_links_of_the_site_stay_in_it(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).resolve().is_relative_to(ROOT / "docs"), target


def without_blocks(page):
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors of a page's headings, as the site and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).strip().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_leads_to_a_file_and_a_heading(page):
    wrong = []
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", without_blocks(page)):
        file, _, anchor = link.partition("#")
        target = (page.parent / file) if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)

    assert wrong == []


def test_the_readme_is_read_in_a_minute():
    text = (ROOT / "README.md").read_text()

    assert len(text.splitlines()) <= 60
    assert re.findall(r"^\./run \w+", text, re.MULTILINE) == [
        "./run demo",
        "./run demo",
        "./run test",
    ]


def test_the_readme_installs_as_the_page_about_it_does_before_its_first_command():
    text = (ROOT / "README.md").read_text()
    lines = [
        "python3 -m venv .venv",
        ".venv/bin/pip install .",
        'export PATH="$PWD/.venv/bin:$PATH"',
    ]
    block = "\n".join(lines)

    assert 0 < text.find(block) < text.find("$ odradek ")
    assert block in (ROOT / "docs/install.md").read_text()
