"""The ways to install of docs/install.md, as they are written, in empty systems of Debian."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from tests.clients.systems import roots
from tests.documentation.blocks import blocks, commands

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "install.md").read_text()
PACKAGES = "ca-certificates,git,python3,python3-venv"
WAYS = ("from a clone", "from the git address", "from a wheel")

pytestmark = [
    pytest.mark.skipif(os.environ.get("ODRADEK_CLIENTS") != "1", reason="run by `./run clients`"),
    pytest.mark.skipif(not roots.may_make_systems(), reason="needs root, debootstrap"),
]


def chapter(heading: str) -> str:
    """The part of the page below a heading, with its commands as a shell script."""
    text = PAGE.partition(f"{heading}?\n")[2].partition("\n## ")[0]
    found = [block for block in blocks(text) if block.is_executed and block.language != "hidden"]
    assert found, heading
    return "\n".join(
        block.text if block.language == "sh" else "\n".join(each.text for each in commands(block))
        for block in found
    )


@pytest.fixture(scope="module", params=["bookworm", "trixie", "sid"])
def system(request):
    """An empty Debian with Python 3.11, 3.13 or the newest."""
    return roots.system(request.param, PACKAGES)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """What a newcomer is given: a git repository, and the wheel."""
    folder = tmp_path_factory.mktemp("published")
    subprocess.run(["git", "clone", "--quiet", "--bare", ROOT, folder / "odradek.git"], check=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist"],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def machine(system, published, tmp_path):
    """A copy of the system with the network of this machine, and what is published in /root."""
    root = roots.copied(system, tmp_path / "root")
    shutil.copytree(published, root / "root", dirs_exist_ok=True)
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_installed_as_the_page_says_and_works(machine, way):
    lines = [
        "cd /root", "export ODRADEK=file:///root/odradek.git",
        chapter(f"How do I install it {way}"), chapter("Does it work"), "odradek --version",
    ]  # fmt: skip
    printed = roots.run_in(machine, lines)

    assert "Nothing is wrong: 1 broker, 0 topics, 0 partitions." in printed
    assert "odradek, version" in printed
