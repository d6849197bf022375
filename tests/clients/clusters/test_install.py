"""The ways to install that docs/install.md shows, as they are written, in empty systems of Debian.

They need root, debootstrap (`apt-get install debootstrap`) and the network. A system is made once,
in .cache/roots, from the mirror that this machine's apt uses.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from tests.documentation.blocks import blocks, commands

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "install.md").read_text()
PACKAGES = "ca-certificates,git,python3,python3-venv"
WAYS = ("from a clone", "from the git address", "from a wheel")
# What the machine needs to reach a package index, if it is configured.
PASSED = re.compile(r"PIP_\w+|SSL_CERT_FILE|\w+_proxy|\w+_PROXY")
ENTER = """
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" sh /way
"""

pytestmark = [
    pytest.mark.skipif(os.environ.get("ODRADEK_CLIENTS") != "1", reason="run by `./run clients`"),
    pytest.mark.skipif(
        shutil.which("debootstrap") is None or os.geteuid() != 0, reason="needs root, debootstrap"
    ),
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


def mirror() -> str:
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return next(uri for uri in listed.stdout.split() if uri.rstrip("/").endswith("/debian"))


@pytest.fixture(scope="module", params=["bookworm", "trixie", "sid"])
def system(request):
    """An empty Debian with Python 3.11, 3.13 or the newest."""
    root = ROOT / ".cache" / "roots" / request.param
    if not root.exists():
        unfinished = root.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", request.param,
             unfinished, mirror()],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        unfinished.rename(root)
    return root


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
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", system, root], check=True)
    given = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
    for name in ("/etc/hosts", "/etc/resolv.conf", "/etc/pip.conf", given.get("PIP_CERT")):
        if name is not None and pathlib.Path(name).is_file():
            shutil.copy(name, root / name.lstrip("/"))
    shutil.copytree(published, root / "root", dirs_exist_ok=True)
    (root / "environment").write_text(
        "".join(f"export {name}='{value}'\n" for name, value in given.items())
    )
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_installed_as_the_page_says_and_works(machine, way):
    lines = [
        "set -e", ". /environment", "cd /root", "export ODRADEK=file:///root/odradek.git",
        chapter(f"How do I install it {way}"), chapter("Does it work"), "odradek --version",
    ]  # fmt: skip
    (machine / "way").write_text("\n".join(lines))
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
         "sh", "-ec", ENTER, machine],
        env={"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing is wrong: 1 broker, 0 topics, 0 partitions." in done.stdout
    assert "odradek, version" in done.stdout
