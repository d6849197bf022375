"""`kafka-dump-log` compared with the output of Apache Kafka 3.9.2's for the same files.

`dump_log/files.zip` has the files: segments that Kafka wrote, also with damage. Each
`dump_log/*.txt` is one call of Kafka's tool. Left out of the comparison: Java's stack traces and
the names of its exceptions, and the help, whose texts are our own. What else differs is listed
here with its reason; of these calls the other parts are compared.
"""

import io
import pathlib
import re
import zipfile
from contextlib import redirect_stderr, redirect_stdout

import pytest

from odradek.cli.kafka.tool import run_tool

RECORDED = pathlib.Path(__file__).parent / "dump_log"
CALLS = sorted(path.stem for path in RECORDED.glob("*.txt"))

# The parts that differ (stdout, stderr, exit code), and the reason.
EXCEPTIONS = {
    "cluster_metadata": (
        "out err code",
        "KRaft's records are not read here, and the output says so",
    ),
    "remote": (
        "out err code",
        "tiered storage's records are not read here, and the output says so",
    ),
    "decoder_default": ("out", "Java shows an object's address; ours shows the bytes"),
    "decoder_unknown": ("err", "ours lists the decoders"),
    "index": ("err", "Java's exception has no message; ours names the position without a batch"),
    "index_verify": ("err", "the same"),
    "max_message_size": ("err", "the same"),
    "index_without_log": ("err", "ours names the missing file, and for which one it is needed"),
    "missing": ("err", "ours reports that the file is missing, not only its name"),
    "missing_index": ("err", "the same"),
    "missing_then": ("err", "the same"),
    "no_suffix": ("err code", "Kafka's fails with an index out of a string's bounds"),
    "offsets": ("out", "keys of KIP-848, which no ZooKeeper-mode broker writes, are unknown here"),
    "offsets_wrong": ("out", "ours names the fault where Java prints null"),
    "snapshot_bad": ("err", "ours names the actual and the expected number of bytes"),
    "transactions_wrong": ("err", "ours names the fault and its offset"),
    "version": ("out", "the version is ours"),
}
_JAVA = re.compile(r'^Exception in thread "main" [\w.$]+(: )?')


class Call:
    def __init__(self, name: str) -> None:
        lines, _, rest = (RECORDED / f"{name}.txt").read_text().partition("[stdout]\n")
        command, code = lines.splitlines()
        self.out, _, err = rest.partition("[stderr]\n")
        self.arguments = command.removeprefix("$ kafka-dump-log").split()
        if name == "spaces":
            self.arguments = ["--files", " ".join(self.arguments[1:])]
        self.code = int(code.removeprefix("[exit ").removesuffix("]"))
        self.err = without_java(err)


def without_java(text: str) -> str:
    """The output without what only Java prints, and without the help."""
    lines = [
        _JAVA.sub("", line) for line in text.splitlines() if not line.startswith("Caused by: ")
    ]
    if "Option" in [line[:6] for line in lines]:  # the help, and what it begins with
        lines = [line for line in lines if line.startswith("Missing required")]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    with zipfile.ZipFile(RECORDED / "files.zip") as archive:
        archive.extractall(directory)
    return directory


def ours(arguments, directory, monkeypatch):
    monkeypatch.chdir(directory)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_tool("dump-log", arguments)
    errors = err.getvalue().replace(f"{directory}/", "<dir>/")
    return code, out.getvalue(), without_java(errors)


@pytest.mark.parametrize("name", CALLS)
def test_our_output_is_kafkas(name, files, monkeypatch):
    call = Call(name)
    code, out, err = ours(call.arguments, files, monkeypatch)
    differs, _ = EXCEPTIONS.get(name, ("", ""))

    assert "code" in differs or code == call.code
    assert "out" in differs or out == call.out
    assert "err" in differs or err == call.err


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_a_listed_difference_exists(name, files, monkeypatch):
    call = Call(name)
    code, out, err = ours(call.arguments, files, monkeypatch)
    reported = EXCEPTIONS[name][0].split()

    same = {"code": code == call.code, "out": out == call.out, "err": err == call.err}
    assert [kind for kind in reported if same[kind]] == []


def test_no_file_is_changed(files, monkeypatch):
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    for name in CALLS:
        ours(Call(name).arguments, files, monkeypatch)

    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_the_output_explains_that_an_active_segments_index_is_in_memory(
    suffix, tmp_path, monkeypatch
):
    (tmp_path / "00000000000000000000.log").touch()
    index = f"00000000000000000000.{suffix}"
    code, _, err = ours(["--files", index], tmp_path, monkeypatch)

    assert code == 1
    assert (
        f"{index}: there is no such file. A broker keeps the indexes of its active segment" in err
    )
    assert "00000000000000000000.log can be dumped now" in err
