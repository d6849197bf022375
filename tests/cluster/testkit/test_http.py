"""The verbs over HTTP: `odradek testkit` as a program of another language uses it."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from control import wait_for


class Kit:
    """The program, and requests to it."""

    def __init__(self, *arguments, tmp_path):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "testkit", "--until-eof", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        started = json.loads(self.process.stdout.readline())
        self.url, self.bootstrap = started["url"], started["bootstrap"]

    def ask(self, verb, /, **arguments):
        """The status and the answer."""
        return self.post(f"/{verb}", json.dumps(arguments).encode())

    def post(self, path, body, **headers):
        wanted = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        request = urllib.request.Request(self.url + path, data=body, headers=wanted)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(60)


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    made = Kit("--brokers", "3", tmp_path=tmp_path_factory.mktemp("kit"))
    yield made
    assert made.end() == 0


def test_the_cluster_is_described(kit):
    with urllib.request.urlopen(kit.url, timeout=60) as answer:
        described = json.load(answer)
    assert described["bootstrap"] == kit.bootstrap
    assert [each["state"] for each in described["brokers"]] == ["running"] * 3
    assert described["verbs"]["slow"] == ["broker", "ms"]


def test_verbs_have_results(kit):
    assert kit.ask("topic", name="t", partitions=2, configs={"retention_ms": 1000_000}) == (
        200,
        {"result": "t"},
    )
    assert kit.ask("produce", topic="t", records=["a", ["k", "b"]], partition=0) == (
        200,
        {"result": [0, 1]},
    )
    assert kit.ask("records", topic="t")[1]["result"] == [
        {"partition": 0, "offset": 0, "key": None, "value": "a"},
        {"partition": 0, "offset": 1, "key": "k", "value": "b"},
    ]
    assert kit.ask("assert_records", topic="t", expected=["b", "a"]) == (200, {"result": None})
    assert kit.ask("committed", group="g", topic="t") == (200, {"result": {"0": -1, "1": -1}})


def test_a_broker_is_killed_and_started_again(kit):
    kit.ask("topic", name="led")
    leader = kit.ask("leader", topic="led")[1]["result"]
    assert kit.ask("kill", broker=leader)[0] == 200
    waited = kit.ask("wait_for", verb="leader", arguments={"topic": "led"}, differs=leader)
    assert waited[0] == 200
    assert kit.ask("start", broker=leader)[0] == 200
    isr = kit.ask(
        "wait_for", verb="isr", arguments={"topic": "led"}, equals=[0, 1, 2], timeout_s=30
    )
    assert isr == (200, {"result": [0, 1, 2]})


def test_faults(kit):
    assert kit.ask("partition", groups=[[0], [1, 2]])[0] == 200
    assert kit.ask("heal")[0] == 200
    assert kit.ask("fail_next", api="Produce", error="NOT_LEADER_OR_FOLLOWER")[0] == 200
    assert kit.ask("advance", hours=25)[0] == 200
    assert kit.ask("heal")[0] == 200


def test_a_failed_assertion_is_no_error_of_the_request(kit):
    kit.ask("topic", name="empty")
    status, answer = kit.ask("assert_records", topic="empty", expected=["a"], timeout_s=0.1)
    assert status == 422
    assert "missing: 'a'" in answer["failed"]
    status, answer = kit.ask(
        "assert_committed", group="g", topic="empty", expected={"0": 3}, timeout_s=0.1
    )
    assert (status, "empty-0: none, expected 3" in answer["failed"]) == (422, True)
    status, answer = kit.ask("wait_for", verb="isr", arguments={"topic": "empty"}, equals=[9],
                             timeout_s=0.1)  # fmt: skip
    assert status == 422
    assert "isr equals [9]" in answer["failed"]


@pytest.mark.parametrize(
    ("verb", "arguments", "status", "why"),
    [
        ("explode", {}, 404, "there is no verb 'explode'"),
        ("kill", {"broker": 9}, 409, "there is no broker 9"),
        ("kill", {"borker": 1}, 400, "borker"),
        ("pid", {"broker": 0}, 409, "processes=True"),
        ("wait_for", {"verb": "isr"}, 400, "equals"),
        ("fail_next", {"api": "Prodoce", "error": "X"}, 409, "Prodoce"),
        ("topic", {"name": "t", "configs": {"cleanup_polici": "x"}}, 409, "mean cleanup.policy?"),
    ],
)
def test_what_cannot_be_done_is_explained(kit, verb, arguments, status, why):
    answered, answer = kit.ask(verb, **arguments)
    assert answered == status
    assert why in answer["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ],
)
def test_web_pages_are_refused(kit, headers, status):
    assert kit.post("/heal", b"{}", **headers)[0] == status


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff"])
def test_bodies_that_are_no_object_are_refused(kit, body):
    assert kit.post("/heal", body)[0] == 400


def test_a_body_is_limited(kit):
    connection = http.client.HTTPConnection(kit.url.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/heal")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_it_ends_by_a_signal_and_leaves_nothing(tmp_path):
    kit = Kit("--processes", tmp_path=tmp_path)
    pid = kit.ask("pid", broker=0)[1]["result"]
    assert pathlib.Path(f"/proc/{pid}").exists()
    kit.process.send_signal(signal.SIGTERM)
    assert kit.end() == 0
    assert list(tmp_path.iterdir()) == []
    wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists())
