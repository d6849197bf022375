"""Make what is published, twice, and try it: `./run build [--dist DIR]`.

The wheel and the source archive of `odradek`, and those of `odradek-fast` (the folder fast/). Both
are made in two copies of the sources, in different directories, with the time of the last commit
(SOURCE_DATE_EPOCH): their bytes have to be the same. On Linux the kernel is compiled by the
compiler of the package `ziglang`, for each of `TARGETS`, so that the wheels do not depend on the C
library and the processor of this machine; auditwheel and abi3audit verify that. Then the wheels for
this machine are installed into a fresh environment, whose broker stores and returns records with
nothing on PATH.
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Final

ROOT: Final = pathlib.Path(__file__).parents[1]
GLIBC: Final = "2.17"
# The platforms of the kernel's wheels, and what its compiler calls them.
TARGETS: Final = {
    f"{tag}_{machine}": f"{machine}-linux-{libc}"
    for machine in ("x86_64", "aarch64")
    for tag, libc in (("manylinux_2_17", f"gnu.{GLIBC}"), ("musllinux_1_2", "musl"))
}
MUSL: Final = "libc.so"  # what a shared library may need there
# What the bytes depend on, beside the sources.
TOOLS: Final = ("hatchling", "setuptools", *(["ziglang"] if sys.platform == "linux" else []))
PLACEHOLDER: Final = "git.example"
_SMOKE: Final = pathlib.Path(__file__).parent / "smoke.py"
_STARTED_S: Final = time.monotonic()


class BuildError(Exception):
    """Something that must not be published; the text says why."""


def say(text: str) -> None:
    print(f"build: {time.monotonic() - _STARTED_S:5.1f} s  {text}", file=sys.stderr, flush=True)


def run(command: Sequence[str | pathlib.Path], cwd: pathlib.Path, **environ: str) -> str:
    """Run a command with its output collected.

    Raises:
        BuildError: it fails; has its output.
    """
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **environ}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode:
        line = " ".join(map(str, command))
        raise BuildError(f"{line}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


# --------------------------------------------------------------------------------- the archives


def last_commit_s() -> str:
    """The seconds of SOURCE_DATE_EPOCH: given, or the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run(["git", "log", "-1", "--format=%ct"], ROOT).strip()


def copy_sources(to: pathlib.Path) -> None:
    """Copy the files that git does not ignore, as they are now."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in run(listed, ROOT).split("\0"):
        if name and (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
            (to / name).chmod((ROOT / name).stat().st_mode & 0o755 | 0o644)


def compiler(scratch: pathlib.Path, tag: str, target: str) -> Mapping[str, str]:
    """The variables with which setuptools compiles for another C library or processor."""
    wrapper, config = scratch / "cc", scratch / "setup.cfg"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang cc -target {target} "$@"\n')
    wrapper.chmod(0o755)
    config.write_text(f"[bdist_wheel]\nplat_name={tag}\n")
    # These replace the flags of this Python, which differ between machines.
    return {
        "CC": str(wrapper),
        "LDSHARED": f"{wrapper} -shared",
        "CFLAGS": "-g0 -fPIC -fwrapv -O3 -DNDEBUG",
        "LDFLAGS": "-s",
        "DIST_EXTRA_CONFIG": str(config),
        "ZIG_GLOBAL_CACHE_DIR": str(scratch / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig"),
    }


def make(scratch: pathlib.Path, epoch_s: str) -> dict[str, bytes]:
    """All archives by name, made in a copy of the sources in `scratch`."""
    sources, dist = scratch / "sources", scratch / "dist"
    copy_sources(sources)
    given = {"SOURCE_DATE_EPOCH": epoch_s, "PYTHONHASHSEED": "0"}
    run([sys.executable, "-m", "hatchling", "build", "-d", dist], sources, **given)
    hook = "import sys; from setuptools import build_meta as b; b.build_{}(sys.argv[1])"
    run([sys.executable, "-c", hook.format("sdist"), dist], sources / "fast", **given)
    archive = next(dist.glob("odradek_fast-*.tar.gz"))
    archive.write_bytes(without_times(archive.read_bytes(), int(epoch_s)))
    with tarfile.open(archive) as packed:
        packed.extractall(scratch, filter="data")
    kernel = scratch / archive.name.removesuffix(".tar.gz")
    command = [sys.executable, "-c", hook.format("wheel"), dist]
    if sys.platform != "linux":
        run(command, kernel, **given)
    for tag, target in TARGETS.items() if sys.platform == "linux" else ():
        run(command, kernel, **given, **compiler(scratch, tag, target))
        shutil.rmtree(kernel / "build")  # objects for another processor
    made = sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")])
    return {path.name: path.read_bytes() for path in made}


def without_times(data: bytes, epoch_s: int) -> bytes:
    """The same .tar.gz with one time and no owner: setuptools ignores SOURCE_DATE_EPOCH for it."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        gzip.GzipFile("", "wb", mtime=epoch_s, fileobj=packed) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, epoch_s
            plain.mode = 0o755 if member.isdir() else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def make_twice(epoch_s: str) -> dict[str, bytes]:
    """The archives.

    Raises:
        BuildError: the second time their bytes differ.
    """
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory(suffix="-other") as two:
        first, second = make(pathlib.Path(one), epoch_s), make(pathlib.Path(two), epoch_s)
    if differing := [name for name in first if first[name] != second.get(name)]:
        raise BuildError(f"made twice, with other bytes: {', '.join(differing)}")
    return first


# ----------------------------------------------------------------------------------- the checks


def check(dist: pathlib.Path, names: Sequence[str]) -> None:
    """Check the metadata, and that the kernel's wheel fits the systems that its name promises.

    Raises:
        BuildError: one of the tools refuses an archive.
    """
    run([sys.executable, "-m", "twine", "check", "--strict", *names], dist)
    say("twine: the metadata of all archives is right")
    if PLACEHOLDER in (ROOT / "pyproject.toml").read_text():
        say(f"not to be published: pyproject.toml has the placeholder {PLACEHOLDER}")
    for kernel in names:
        if kernel.startswith("odradek_fast") and kernel.endswith(".whl"):
            check_kernel(dist, kernel)


def check_kernel(dist: pathlib.Path, kernel: str) -> None:
    if "manylinux" in kernel:
        report = run([sys.executable, "-m", "auditwheel", "show", kernel], dist)
        found = re.search(r'"manylinux_2_(\d+)_\w+"', " ".join(report.split()))
        if found is None or int(found[1]) > int(GLIBC.partition(".")[2]):
            raise BuildError(f"{kernel} does not fit glibc {GLIBC}:\n{report}")
        say(f"auditwheel: {kernel} fits glibc {GLIBC}; the least is 2.{found[1]}")
    if "musllinux" in kernel and (needed := libraries(dist / kernel)) - {MUSL}:
        raise BuildError(f"{kernel} needs {', '.join(sorted(needed))}, not only {MUSL}")
    run([sys.executable, "-m", "abi3audit", "--strict", kernel], dist)
    say(f"abi3audit: {kernel} uses nothing but the stable ABI of Python 3.11")


def libraries(wheel: pathlib.Path) -> set[str]:
    """The shared libraries that the compiled module of a wheel needs."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - a dependency of auditwheel

    with zipfile.ZipFile(wheel) as packed:
        name = next(each for each in packed.namelist() if each.endswith(".so"))
        dynamic = ELFFile(io.BytesIO(packed.read(name))).get_section_by_name(".dynamic")
        return {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}


def is_for_this_machine(name: str) -> bool:
    """Whether a wheel can be installed here; those of musl cannot, here it is glibc."""
    return name.endswith("-any.whl") or (
        name.endswith(f"{platform.machine()}.whl") and "musllinux" not in name
    )


def try_out(wheels: Sequence[pathlib.Path]) -> None:
    """Install the wheels into a fresh environment, and write and read with its broker.

    Raises:
        BuildError: it does not work.
    """
    with tempfile.TemporaryDirectory(prefix="odradek-build-") as folder:
        home = pathlib.Path(folder)
        run([sys.executable, "-m", "venv", home / "venv"], home)
        binaries = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
        run([binaries / "python", "-m", "pip", "install", "--quiet", *wheels], home)
        say("installed the wheels into a fresh environment")
        output = run([binaries / "python", "-I", _SMOKE], home, PATH="/nonexistent")
        say(output.strip())


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run build", description=__doc__)
    parser.add_argument("--dist", type=pathlib.Path, default=ROOT / "dist")
    dist: pathlib.Path = parser.parse_args().dist
    try:
        say(", ".join(f"{name} {version(name)}" for name in TOOLS))
        made = make_twice(last_commit_s())
        say(f"made {len(made)} archives twice, with the same bytes")
        dist.mkdir(parents=True, exist_ok=True)
        for old in [*dist.glob("odradek-*"), *dist.glob("odradek_fast-*")]:
            old.unlink()
        for name, data in made.items():
            (dist / name).write_bytes(data)
        check(dist, list(made))
        try_out([dist / name for name in made if is_for_this_machine(name)])
    except BuildError as error:
        raise SystemExit(f"build: {error}") from None
    for name, data in made.items():
        print(f"{hashlib.sha256(data).hexdigest()}  {len(data):>9,}  {dist / name}")


if __name__ == "__main__":
    os.umask(0o022)
    main()
