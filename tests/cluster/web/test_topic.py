"""A topic on the page while a broker is killed."""

import json
import subprocess
import sys
import time

import pytest

pytest.importorskip("starlette", reason="the extra `web`")

from tests.served import ServedPage

WAIT_S = 60


def odradek(*arguments):
    command = [sys.executable, "-m", "odradek", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "D"
    odradek("up", "--brokers", "2", "--dir", path, "--detach")
    yield path
    odradek("down", "--dir", path)


def lane_of(page, broker):
    status, view = page.ask("topics/orders")
    assert status == 200
    lanes = view["partitions"][0]["lanes"]["lanes"]
    return next(lane for lane in lanes if lane["broker"] == broker)


def test_a_killed_broker_is_never_said_to_have_an_offline_log_directory(directory):
    bootstrap = json.loads(odradek("status", "--json", "--dir", directory))["bootstrap"]
    odradek("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "orders",
            "--replica-assignment", "0:1")  # fmt: skip
    page = ServedPage("--dir", directory)
    try:
        assert lane_of(page, 1)["in_sync"]
        odradek("kill", "1", "--dir", directory)
        deadline_s = time.monotonic() + WAIT_S
        while (lane := lane_of(page, 1))["role"] != "offline" and time.monotonic() < deadline_s:
            pass  # each request collects what is known
        assert (lane["role"], lane["reason"]) == ("offline", "broker 1 is not registered")
    finally:
        page.end()
