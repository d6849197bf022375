"""Fetches what client tests and benchmarks need: jars, packages, and tests of other projects.

Everything lands in `.cache/` of the checkout, in a folder named after a digest of what it
was made from: a changed pom or source is fetched again, an unchanged one not. The
package managers are called as usual (`mvn`, `go`, `npm`, `pip`, `cargo`), so their own
configuration of mirrors and proxies applies. Nothing is fetched when this module is imported.
"""

import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parents[2] / ".cache"
KAFKA_LINES = ("3.9", "4")


class UnavailableError(Exception):
    """A tool is missing, or could not fetch something."""


def jars(line: str) -> pathlib.Path:
    """The folder with the jars of Apache Kafka 2.8, 3.9 or 4, or of Streams ("streams")."""
    return _jars(HERE / "java" / f"kafka-{line}.xml")


def spark_connector() -> list[pathlib.Path]:
    """The jars of Spark's own connector for Kafka, for `spark.jars`."""
    return sorted(_jars(HERE / "java" / "spark-connector.xml").glob("*.jar"))


def old_jars(pom: str, **versions: str) -> pathlib.Path:
    """The folder with the jars of a client of former years, by a pom of java_old."""
    return _jars(HERE / "java_old" / f"{pom}.xml", **versions)


def _jars(pom: pathlib.Path, **versions: str) -> pathlib.Path:
    if shutil.which("java") is None:
        raise UnavailableError("java is not installed")
    asked = [f"-D{name}={version}" for name, version in versions.items()]

    def make(into: pathlib.Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *asked]
        _call([*command, f"-DoutputDirectory={into}"], cwd=into)

    return _made("jars", [pom], make, " ".join(asked).encode())


def kafka_version(line: str) -> str:
    """The full version of a release line, by the names of its jars."""
    (clients,) = jars(line).glob("kafka-clients-*.jar")
    return clients.stem.removeprefix("kafka-clients-")


def java(line: str, *main_and_arguments: str, heap: str = "256M", level: str = "WARN") -> list[str]:
    """The command that runs a class out of the jars (or a class compiled by `java_class`)."""
    log = {
        "3.9": [
            f"-Dlog4j.configuration=file:{HERE / 'java' / 'log4j.properties'}",
            f"-Dodradek.log.level={level}",
        ],
        "4": [f"-Dlog4j2.configurationFile={HERE / 'java' / 'log4j2.properties'}"],
    }
    log["mirror"] = log["streams"] = log["2.8"] = log["3.9"]
    # Kafka's start scripts use these collector options; heap sizes are the caller's.
    collector = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
    flags = ["-server", f"-Xmx{heap}", *collector, "-Djava.awt.headless=true", *log[line]]
    return ["java", *flags, "-cp", f"{jars(line)}/*", *main_and_arguments]


def java_class(line: str, source: pathlib.Path, *arguments: str, heap: str = "256M") -> list[str]:
    """The command that runs a single-file Java program, compiled once against the jars."""

    def make(into: pathlib.Path) -> None:
        _call(["javac", "-cp", f"{jars(line)}/*", "-d", str(into), str(source)], cwd=into)

    classes = _made("classes", [source, HERE / "java" / f"kafka-{line}.xml"], make)
    command = java(line, source.stem, *arguments, heap=heap)
    command[command.index("-cp") + 1] += f":{classes}"
    return command


def old_java_class(
    jars: pathlib.Path, source: pathlib.Path, *arguments: str, heap: str = "256M"
) -> list[str]:
    """The command that runs a single-file Java program, compiled once against these jars."""

    def make(into: pathlib.Path) -> None:
        _call(["javac", "-cp", f"{jars}/*", "-d", str(into), str(source)], cwd=into)

    classes = _made("classes", [source], make, jars.name.encode())
    flags = [f"-Xmx{heap}", "-Djava.awt.headless=true"]
    return ["java", *flags, "-cp", f"{jars}/*:{classes}", source.stem, *arguments]


def go_program(source: pathlib.Path) -> pathlib.Path:
    """The program built from a folder with a Go module."""

    def make(into: pathlib.Path) -> None:
        _call(["go", "build", "-o", str(into / source.name), "."], cwd=source)

    files = [source / "go.mod", source / "go.sum", *sorted(source.glob("*.go"))]
    return _made("go", files, make) / source.name


def go_tool(name: str, package: str) -> pathlib.Path:
    """The program of another project's package, with the versions of a folder's Go module."""

    def make(into: pathlib.Path) -> None:
        _call(["go", "build", "-o", str(into / name), package], cwd=HERE / name)

    return _made("go", [HERE / name / "go.mod", HERE / name / "go.sum"], make) / name


def go_tests(
    module: str, package: str, replaced: Mapping[str, Mapping[str, str]] = {}
) -> pathlib.Path:
    """The test program of a package of another project's module (`PATH@VERSION`).

    `replaced`: in these files, texts and what stands for them.
    """

    def make(into: pathlib.Path) -> None:
        made = subprocess.run(
            ["go", "mod", "download", "-json", module],
            cwd=into, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if made.returncode:
            raise UnavailableError(f"go mod download {module}: {made.stdout}{made.stderr}")
        source = into / "source"
        shutil.copytree(json.loads(made.stdout)["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        for name, texts in replaced.items():
            _replace(source / name, texts)
        _call(["go", "test", "-mod=mod", "-c", "-o", str(into / "tests"), package], cwd=source)
        shutil.rmtree(source)

    return _made("go", [], make, repr((module, package, replaced)).encode()) / "tests"


def _replace(file: pathlib.Path, texts: Mapping[str, str]) -> None:
    text = file.read_text()
    for old, new in texts.items():
        if old not in text:
            raise UnavailableError(f"{file.name} has no {old!r}")
        text = text.replace(old, new)
    file.write_text(text)


def librdkafka_tests() -> pathlib.Path:
    """The folder of librdkafka with `tests/test-runner`: its source is part of a Rust crate.

    It takes some minutes to build.
    """
    source = HERE / "librdkafka_tests"

    def make(into: pathlib.Path) -> None:
        package = into / "crate"
        shutil.copytree(source, package)
        (package / "src").mkdir()
        (package / "src" / "lib.rs").touch()
        _call(["cargo", "vendor", "--quiet", str(into / "vendored")], cwd=package)
        (found,) = (into / "vendored").glob("rdkafka-sys*")
        found = (found / "librdkafka").rename(into / "librdkafka")
        options = ("--disable-gssapi", "--disable-curl", "--disable-optimization")
        _call([str(found / "configure"), *options], cwd=found)
        build = ["make", "-s", "-j", str(os.cpu_count() or 1)]
        _call([*build, "libs"], cwd=found, timeout_s=3600)
        _call([*build, "-C", "tests", "test-runner"], cwd=found, timeout_s=3600)
        shutil.rmtree(into / "vendored")

    return _made("librdkafka", [source / "Cargo.toml"], make) / "librdkafka"


def node_modules(source: pathlib.Path) -> pathlib.Path:
    """The `node_modules` that a folder's package.json asks for."""

    def make(into: pathlib.Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, into)
        _call(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=into)

    return _made("node", [source / "package.json", source / "package-lock.json"], make) / (
        "node_modules"
    )


def python_packages(python: str, *wanted: str, pip: pathlib.Path | None = None) -> pathlib.Path:
    """A folder with packages for this interpreter, to be put on PYTHONPATH.

    `pip`: such a folder, with a pip that is newer than the interpreter's own.
    """
    asked = [python, "-c", "import sys; print(*sys.version_info[:2], sys.platform)"]
    version = subprocess.run(asked, capture_output=True, check=True).stdout

    def make(into: pathlib.Path) -> None:
        own = ["env", f"PYTHONPATH={pip}"] if pip else []
        install = [python, "-m", "pip", "install", "-q", "--target", str(into), *wanted]
        _call([*own, *install], cwd=into)

    return _made("python", [], make, version + "\n".join(wanted).encode())


def requirements(*extras: str) -> list[str]:
    """The dependencies of this package with these extras, from pyproject.toml."""
    project = tomllib.loads((HERE.parents[2] / "pyproject.toml").read_text())["project"]
    optional = [each for extra in extras for each in project["optional-dependencies"][extra]]
    return [*project["dependencies"], *(each for each in optional if "odradek" not in each)]


def _made(
    kind: str,
    sources: Iterable[pathlib.Path],
    make: Callable[[pathlib.Path], None],
    what: bytes = b"",
) -> pathlib.Path:
    digest = hashlib.sha256(what)
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    place = CACHE / kind / digest.hexdigest()[:16]
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        making = pathlib.Path(tempfile.mkdtemp(dir=place.parent, prefix="making-"))
        try:
            make(making)
            # Renamed when complete: an interrupted fetch is never taken for a finished one.
            making.rename(place)
        except OSError:
            if not place.exists():  # else another process has fetched it meanwhile
                raise
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return place


def _call(command: list[str], *, cwd: pathlib.Path, timeout_s: float = 900.0) -> None:
    if shutil.which(command[0]) is None:
        raise UnavailableError(f"{command[0]} is not installed")
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        output = (done.stdout + done.stderr).strip()[-2000:]
        raise UnavailableError(f"{' '.join(command)} failed with {done.returncode}:\n{output}")
