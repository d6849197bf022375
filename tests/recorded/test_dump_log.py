"""`kafka-dump-log` against what Apache Kafka 3.9.2's said of the same files.

`dump_log/files.zip` has the files: segments that Kafka wrote, and such as were made to be odd. Each
`dump_log/*.txt` is one call of Kafka's tool. Left out of the comparison: Java's stack traces and
the names of its exceptions, and the help, whose texts are our own. What else differs is listed
here with its reason; of these calls only what is said to be equal is compared.
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

# What differs, of stdout, stderr and exit code; and why.
EXCEPTIONS = {
    "cluster_metadata": ("out err code", "KRaft's records are not read here, and that is said"),
    "remote": ("out err code", "tiered storage's records are not read here, and that is said"),
    "decoder_default": ("out", "Java shows an object's address; ours shows the bytes"),
    "decoder_unknown": ("err", "ours says which decoders there are"),
    "index": ("err", "Java's exception says nothing; ours says where no batch is"),
    "index_verify": ("err", "the same"),
    "max_message_size": ("err", "the same"),
    "index_without_log": ("err", "ours says what is missing, and for what"),
    "missing": ("err", "ours says that the file is missing, not its name alone"),
    "missing_index": ("err", "the same"),
    "missing_then": ("err", "the same"),
    "no_suffix": ("err code", "Kafka's fails with an index out of a string's bounds"),
    "offsets": ("out", "keys of KIP-848, which no ZooKeeper-mode broker writes, are unknown here"),
    "offsets_wrong": ("out", "ours says what is wrong where Java says null"),
    "snapshot_bad": ("err", "ours says how many bytes there are and should be"),
    "transactions_wrong": ("err", "ours says at which offset what is wrong"),
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
    """What was said, but for what only Java says, and for the help."""
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
    said = err.getvalue().replace(f"{directory}/", "<dir>/")
    return code, out.getvalue(), without_java(said)


@pytest.mark.parametrize("name", CALLS)
def test_ours_says_what_kafkas_says(name, files, monkeypatch):
    call = Call(name)
    code, out, err = ours(call.arguments, files, monkeypatch)
    differs, _ = EXCEPTIONS.get(name, ("", ""))

    assert "code" in differs or code == call.code
    assert "out" in differs or out == call.out
    assert "err" in differs or err == call.err


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_is_one(name, files, monkeypatch):
    call = Call(name)
    code, out, err = ours(call.arguments, files, monkeypatch)
    reported = EXCEPTIONS[name][0].split()

    same = {"code": code == call.code, "out": out == call.out, "err": err == call.err}
    assert [kind for kind in reported if same[kind]] == []


def test_every_file_is_left_as_it_was(files, monkeypatch):
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    for name in CALLS:
        ours(Call(name).arguments, files, monkeypatch)

    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_of_an_index_that_is_still_in_memory_it_is_said_so(suffix, tmp_path, monkeypatch):
    (tmp_path / "00000000000000000000.log").touch()
    index = f"00000000000000000000.{suffix}"
    code, _, err = ours(["--files", index], tmp_path, monkeypatch)

    assert code == 1
    assert (
        f"{index}: there is no such file. A broker keeps the indexes of its active segment" in err
    )
    assert "00000000000000000000.log can be dumped now" in err
