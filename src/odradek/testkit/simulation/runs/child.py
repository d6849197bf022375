"""Runs for a parent: `python -m ...simulation.runs.child FILE NAME BROKERS SECONDS`."""

import importlib.util
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from odradek.testkit.simulation.engine import play
from odradek.testkit.simulation.runs.pipe import call_of_child, pipe_of_child, serve


def main(file: str, name: str, brokers: str, seconds: str) -> None:
    """Load a test by its file and name, and serve runs of it."""
    if call_of_child() is None:
        raise SystemExit("this is started by odradek.testkit.simulation.simulate")
    test: Any = _module(file)
    for part in name.split("."):
        test = getattr(test, part)
    serve(
        *pipe_of_child(),
        partial(play, test, brokers=int(brokers), seconds=float(seconds), test_name=name),
    )


def _module(file: str) -> Any:
    path = Path(file)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # what runs have left is not freed one by one
