"""The screen of `odradek up` on a terminal."""

import io
import json
import os

import pytest
from rich.console import Console, ConsoleDimensions

from odradek.cli.odradek import status_screen
from odradek.cli.odradek.broker_numbers import Counted, Numbers, Watcher, numbers, read_metrics
from odradek.cli.odradek.status_screen import shown, table, watch_live

BROKERS = [
    {"id": 0, "state": "running", "pid": os.getpid(), "listeners": ["P://h:1"], "http": "http://h"},
    {"id": 1, "state": "crashed", "pid": None, "listeners": [], "http": None},
]
EVERYTHING = {"listeners", "pid", "memory", "replicas", "out"}
METRICS = b"""\
# HELP kafka_server_replicamanager_partitioncount Replicas here.
kafka_server_replicamanager_partitioncount 7.0
kafka_server_replicamanager_leadercount 3.0
kafka_server_replicamanager_underreplicatedpartitions 1.0
kafka_controller_kafkacontroller_activecontrollercount 1.0
kafka_server_brokertopicmetrics_bytesin_total 5000.0
kafka_server_brokertopicmetrics_bytesin_total{topic="t"} 4000.0
kafka_log_log_size{topic="t",partition="0"} 1.0
kafka_server_replicamanager_offlinereplicacount 9.0
"""


def printed(rendered, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(rendered)
    return console.file.getvalue().splitlines()


def test_every_broker_has_a_row():
    figures = {0: Numbers(7, 3, 1, 0, 2_000_000.0, 10.0, controller=True)}
    heading, first, second = printed(table({"brokers": BROKERS}, figures, 120))

    assert heading.split() == [
        "broker", "state", "pid", "memory", "leads", "replicas", "lacking", "in", "out",
        "listeners",
    ]  # fmt: skip
    number, state, role, pid, size, unit, *rest = first.split()
    assert (number, state, role, pid) == ("0", "running", "(controller)", str(os.getpid()))
    assert int(size) > 0
    assert unit == "MiB"
    assert rest == ["3", "7", "1", "1.9", "MiB/s", "10", "B/s", "P://h:1"]
    assert second.split() == ["1", "crashed", *"-" * 8]


@pytest.mark.parametrize(
    ("width", "spared"),
    [
        (120, set()),
        (100, {"listeners"}),
        (86, {"listeners", "pid", "memory"}),
        (80, {"listeners", "pid", "memory"}),
        (60, EVERYTHING),
    ],
)
def test_a_narrow_terminal_goes_without_what_it_needs_least(width, spared):
    figures = {0: Numbers(7_000, 3_000, 1, 0, 900e6, 10.0, controller=True)}
    lines = printed(table({"brokers": BROKERS}, figures, width), width)

    assert len(lines) == 3
    assert not any("…" in line for line in lines)
    assert all(len(line.rstrip()) <= width for line in lines)
    headings = set(lines[0].split())
    assert EVERYTHING - headings == spared
    assert "858.3 MiB/s" in lines[1]


def test_what_was_decided_last_stands_below():
    lines = printed(shown({"brokers": BROKERS}, {}, ["10:00:00  t-0: leader elected"], 120))

    assert lines[-1].strip() == "10:00:00  t-0: leader elected"


def test_metrics_are_read_up_to_those_of_partitions():
    assert read_metrics(METRICS.splitlines(keepends=True)) == {
        "replicas": 7, "leaders": 3, "under_replicated": 1, "controller": 1, "bytes_in": 5000,
    }  # fmt: skip


def test_rates_are_what_came_between_two_looks():
    before, now = Counted(10.0, {"bytes_in": 100.0}), Counted(12.0, {"bytes_in": 500.0})

    assert numbers(now, None).in_rate is None
    assert numbers(now, before).in_rate == 200.0
    assert numbers(before._replace(at_s=14.0), now).in_rate == 0.0  # the broker was restarted


class Web:
    """Answers HTTP requests as a broker does, and counts them."""

    def __init__(self):
        self.asked = []
        self.is_down = False

    def __call__(self, url, token_file):
        self.asked.append(url)
        if self.is_down:
            raise ConnectionRefusedError
        if url.startswith("http://h/journal"):
            entries = [{"at_ms": 5, "says": "b"}, {"at_ms": 3, "says": "a"}]
            return [json.dumps({"entries": entries}).encode()]
        return METRICS.splitlines(keepends=True)


def test_a_broker_is_asked_once_a_second():
    now_s = [0.0]
    web = Web()
    watcher = Watcher(web, lambda: now_s[0])

    assert watcher.look(BROKERS)[0].leaders == 3
    now_s[0] = 0.9
    watcher.look(BROKERS)
    assert len(web.asked) == 2
    now_s[0] = 1.1
    watcher.look(BROKERS)
    assert len(web.asked) == 4
    assert [line[10:] for line in watcher.causes()] == ["a", "b"]


def test_a_broker_that_does_not_answer_keeps_its_last_figures_until_it_is_unregistered():
    web, now_s = Web(), [0.0]
    watcher = Watcher(web, lambda: now_s[0])
    watcher.look(BROKERS)
    web.is_down, now_s[0] = True, 2.0

    assert watcher.look(BROKERS)[0].leaders == 3
    assert watcher.look([{**BROKERS[0], "state": "killed"}]) == {}


def test_the_screen_follows_the_supervisor_until_it_ends(monkeypatch):
    rows = []

    class Watched:
        def status(self):
            return {"brokers": BROKERS}

        def watch(self, show):
            for _ in range(3):
                show()

    monkeypatch.setattr(
        status_screen,
        "shown",
        lambda report, figures, causes, width: rows.append(figures) or "brokers",
    )
    watch_live(Watched(), Watcher(Web()))

    assert len(rows) == 4
    assert rows[-1][0].replicas == 7


def test_a_terminal_that_is_resized_is_redrawn(monkeypatch, capsys):
    width = 120

    class Watched:
        def status(self):
            return {"brokers": BROKERS, "bootstrap": "h:1,h:2"}

        def watch(self, show):
            nonlocal width
            show()
            assert "connect to:" not in capsys.readouterr().err
            width = 80
            show()
            show()

    size = property(lambda _: ConsoleDimensions(width, 24))
    monkeypatch.setattr(Console, "size", size)
    watch_live(Watched(), Watcher(Web()))
    text = capsys.readouterr().err

    assert text.count("connect to:\nh:1,h:2\n") == 1
    assert "listeners" not in text
