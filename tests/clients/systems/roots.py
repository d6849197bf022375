"""Empty systems of Debian in folders: made once by debootstrap, entered by chroot.

They need root, debootstrap (`apt-get install debootstrap`) and the network. A system is made from
the mirror that this machine's apt uses, and kept in .cache/roots.
"""

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parents[3]
# What the machine needs to reach a package index, if it is configured.
_PASSED = re.compile(r"PIP_\w+|SSL_CERT_FILE|\w+_proxy|\w+_PROXY")
_ENTER = """
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" sh /way
"""


def may_make_systems() -> bool:
    return shutil.which("debootstrap") is not None and os.geteuid() == 0


def system(suite: str, packages: str, name: str = "") -> pathlib.Path:
    """The folder of a Debian with these packages; it is not changed afterwards."""
    root = ROOT / ".cache" / "roots" / (name or suite)
    if not root.exists():
        unfinished = root.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={packages}", suite, unfinished,
             _mirror()],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        unfinished.rename(root)
    return root


def _mirror() -> str:
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return next(uri for uri in listed.stdout.split() if uri.rstrip("/").endswith("/debian"))


def copied(system: pathlib.Path, root: pathlib.Path) -> pathlib.Path:
    """A copy of a system that reaches what this machine reaches."""
    subprocess.run(["cp", "-a", "--reflink=auto", system, root], check=True)
    given = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    for name in ("/etc/hosts", "/etc/resolv.conf", "/etc/pip.conf", given.get("PIP_CERT")):
        if name is not None and pathlib.Path(name).is_file():
            shutil.copy(name, root / name.lstrip("/"))
    (root / "environment").write_text(
        "".join(f"export {name}='{value}'\n" for name, value in given.items())
    )
    return root


def run_in(root: pathlib.Path, lines: Sequence[str], timeout_s: float = 600.0) -> str:
    """Run a shell script in a copied system; what it prints. It has to succeed."""
    (root / "way").write_text("\n".join(["set -e", ". /environment", *lines, ""]))
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
         "sh", "-ec", _ENTER, root],
        env={"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
