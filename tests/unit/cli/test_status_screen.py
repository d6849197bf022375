"""The screen of `odradek up` on a terminal."""

import io
import os

from rich.console import Console

from odradek.cli import status_screen
from odradek.cli.status_screen import table, watch_live

BROKERS = [
    {"id": 0, "state": "running", "pid": os.getpid(), "listeners": ["PLAINTEXT://h:1"]},
    {"id": 1, "state": "crashed", "pid": None, "listeners": []},
]


def shown(rendered):
    console = Console(file=io.StringIO(), width=100)
    console.print(rendered)
    return console.file.getvalue().splitlines()


def test_every_broker_has_a_row():
    heading, first, second = shown(table({"brokers": BROKERS}))

    assert heading.split() == ["broker", "state", "pid", "memory", "listeners"]
    number, state, pid, size, unit, listener = first.split()
    assert (number, state, pid) == ("0", "running", str(os.getpid()))
    assert int(size) > 0
    assert (unit, listener) == ("MiB", "PLAINTEXT://h:1")
    assert second.split() == ["1", "crashed", "-", "-", "-"]


def test_the_screen_follows_the_supervisor_until_it_ends(monkeypatch):
    rows = []

    class Watched:
        def status(self):
            return {"brokers": BROKERS}

        def watch(self, show):
            for _ in range(3):
                show()

    monkeypatch.setattr(status_screen, "table", lambda report: rows.append(report) or "brokers")
    watch_live(Watched())

    assert len(rows) == 4
