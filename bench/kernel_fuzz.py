"""Compares the compiled reader of produce requests with the plain one, a million times.

    ./run bench kernel_fuzz [--frames 1000000] [--seed 1]

The C files of fast/ are compiled with the address and undefined behaviour sanitizers, which end the
process at the first read outside of a buffer. The requests come from tests/one_batch_frames.py: the
usual ones and nearly usual ones, with other fields, lengths, counts, records and ends. The exit
code is 1, with the seed of the request, if both readers do not give the same. One JSON line is
appended to bench/results/fuzz.jsonl. It needs gcc with its sanitizers.
"""

import os
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
import time

import click
from kit import ROOT, machine
from kit.results import keep_result

sys.path.append(str(ROOT))

from tests import one_batch_frames

from odradek.record.one_batch import fastest_read, plain_read_one_batch

_SANITIZED = "ODRADEK_SANITIZED"


def build(folder: pathlib.Path) -> dict[str, str]:
    """Compile the kernel into a folder. Returns the environment in which Python loads it."""
    flags = ["-shared", "-fPIC", "-O1", "-g", "-fsanitize=address,undefined"]
    flags += ["-fno-sanitize-recover=all", f"-I{sysconfig.get_paths()['include']}"]
    sources = [str(path) for path in sorted((ROOT / "fast").glob("*.c"))]
    target = str(folder / "odradek_fast.abi3.so")
    subprocess.run(["gcc", *flags, *sources, "-o", target], check=True)
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return {
        **os.environ,
        _SANITIZED: "1",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # so that each object is an allocation that is watched
        "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
    }


def compare(first: int, frames: int) -> int:
    """Read frames of the seeds from `first` on with both readers. Returns how many are usual.

    Raises:
        ClickException: they differ; the message has the seed.
    """
    compiled = fastest_read()
    usual = 0
    for seed in range(first, first + frames):
        frame = memoryview(one_batch_frames.frame(random.Random(seed)))
        found = compiled(frame)
        if found != plain_read_one_batch(frame):
            raise click.ClickException(f"seed {seed}: {found} != {plain_read_one_batch(frame)}")
        usual += found is not None
    return usual


@click.command()
@click.option("--frames", default=1_000_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(frames: int, seed: int) -> None:
    """Compare both readers, under the sanitizers."""
    if not os.environ.get(_SANITIZED):
        with tempfile.TemporaryDirectory(prefix="odradek-fuzz-") as folder:
            environment = build(pathlib.Path(folder))
            command = [sys.executable, *sys.argv]
            raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)
    if fastest_read() is plain_read_one_batch:
        raise click.ClickException("the compiled kernel could not be loaded")
    began = time.monotonic()
    usual = compare(seed * frames, frames)
    result = {
        "what": "read_one_batch under the address and undefined behaviour sanitizers",
        "seed": seed,
        "frames": frames,
        "usual": usual,
        "seconds": round(time.monotonic() - began),
        **machine.describe(),
    }
    keep_result("fuzz", result)
    click.echo(f"{frames:,} requests, {usual:,} usual: both readers agree, nothing was reported")


if __name__ == "__main__":
    main()
