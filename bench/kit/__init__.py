"""What the benchmarks share: targets, loads, and measurements of processes."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The client tests' helpers, which fetch the jars and run Apache Kafka, are used here too.
sys.path.append(str(ROOT / "tests" / "clients" / "support"))

import apache  # noqa: E402
import ensemble  # noqa: E402
import fetch  # noqa: E402
import mixed  # noqa: E402
import raw  # noqa: E402

__all__ = ["ROOT", "apache", "ensemble", "fetch", "mixed", "raw"]
