"""Kafka Streams counts words exactly once, whichever broker is killed while it does."""

import json
import pathlib
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import fetch
import pytest
from harness import odradek

pytestmark = pytest.mark.jvm

WORDS = 3_000
KINDS = 5


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Iterator[Callable[..., str]]:
    """A cluster of three, by its commands."""
    place = ["--dir", str(tmp_path / "cluster")]
    odradek("up", *place, "--detach", "--brokers", "3")
    try:
        yield lambda verb, *words: odradek(verb, *words, *place)
    finally:
        odradek("down", *place)


def test_every_word_is_counted_once_although_brokers_are_killed(
    three: Callable[..., str], tmp_path: pathlib.Path
) -> None:
    bootstrap = json.loads(three("status", "--json"))["bootstrap"]
    plan = {
        "name": f"count-{time.time_ns():x}",
        "words": WORDS,
        "replicas": 3,
        "pause_ms": 50,
        "patience_ms": 240_000,
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    source = fetch.HERE / "java" / "WordCount.java"
    command = fetch.java_class("streams", source, bootstrap, str(file))
    with subprocess.Popen(
        [command[0], f"-Djava.io.tmpdir={tmp_path}", *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        output = lines_of(program)
        try:
            assert output.get(timeout=240) == "1/4"
            three("kill", "1")
            assert output.get(timeout=240) == "2/4"
            three("start", "1")
            three("kill", "2")
            assert output.get(timeout=240) == "3/4"
            three("start", "2")
            assert output.get(timeout=240) == "4/4"
            report = json.loads(output.get(timeout=120) or "{}")
        finally:
            program.kill()
    counts = report["counts"]
    assert len(counts) == KINDS
    for word, seen in counts.items():
        assert seen == list(range(1, WORDS // KINDS + 1)), word


def lines_of(program: "subprocess.Popen[str]") -> "queue.Queue[str]":
    """What it prints, line by line; an empty one is its end. What it complains of is dropped."""
    lines: queue.Queue[str] = queue.Queue()
    assert program.stdout is not None
    assert program.stderr is not None
    out, err = program.stdout, program.stderr

    def follow() -> None:
        for each in out:
            lines.put(each.rstrip("\n"))
        lines.put("")

    threading.Thread(target=follow, daemon=True).start()
    threading.Thread(target=err.read, daemon=True).start()
    return lines
