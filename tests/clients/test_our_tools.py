"""Our administrative tools and Kafka's own, side by side on clusters of Apache Kafka.

The tools are those of 3.9, the brokers those of 2.8, 3.9 (on ZooKeeper both) and 4 (KRaft).

Each call is made twice, by Java's tool and by ours; their output and exit code must be the same
except for Java's stack traces, help texts and what differs from call to call. Each of the two
creates and changes resources under names of its own.
"""

import contextlib
import difflib
import io
import json
import pathlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator

import apache
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.recorded.clusters import wait_until
from tests.recorded.recording import normal
from tool_stories import JavaTools

from odradek.cli.kafka.tool import run_tool

pytestmark = pytest.mark.jvm

BROKERS = 3
# Two names of one length and one hash (Java's), so that tables and orders are the same.
NAMES = ("Aa", "BB")
CALLS = """
topics --create --topic {who}1 --replica-assignment 1:2,2:3
topics --create --topic {who}1
topics --create --topic {who}b --partitions 0
topics --create --topic {who}b --config foo=bar
topics --describe --topic {who}1
topics --list --topic {who}.*
topics --describe --under-replicated-partitions
topics --alter --topic {who}1 --partitions 1
topics --alter --topic {who}1 --partitions 4 --replica-assignment 1:2,1:2,1:2,2:3
topics --create --delete --topic a
configs --alter --topic {who}1 --add-config retention.ms=1000000,cleanup.policy=[compact,delete]
configs --describe --topic {who}1
configs --describe --topic {who}1 --all
configs --alter --topic {who}1 --add-config retention.ms=abc
configs --alter --topic {who}1 --delete-config segment.bytes
configs --alter --user {who} --add-config producer_byte_rate=1024,consumer_byte_rate=2048
configs --describe --user {who}
configs --alter --user {who} --delete-config request_percentage
configs --alter --user {who} --add-config SCRAM-SHA-256=[iterations=4096,password=a]
configs --describe --user {who}
configs --describe --entity-type brokers
configs --describe --topic a --add-config a=b
log-dirs --describe --topic-list {who}1
log-dirs --describe --broker-list 99
reassign-partitions --list
reassign-partitions --reassignment-json-file {who}.json --execute --throttle 1000000
reassign-partitions --reassignment-json-file nowhere --verify
leader-election --election-type preferred --topic nope --partition 0
leader-election --election-type preferred
consumer-groups --reset-offsets --group {who} --topic {who}1 --to-earliest --execute --export
consumer-groups --describe --group {who}
consumer-groups --describe --group {who} --state
consumer-groups --describe --group nope
consumer-groups --list --state foo
consumer-groups --delete --group nope
get-offsets --topic {who}1
get-offsets --topic nope
get-offsets --topic {who}1 --time foo
acls --list
acls --add --allow-principal User:a --operation Read --cluster
delete-records --offset-json-file {who}-offsets.json
transactions list
transactions describe --transactional-id {who}
transactions describe-producers --topic {who}1 --partition 0
transactions abort --topic {who}1 --partition 0 --start-offset 0
transactions find-hanging --topic {who}1
features describe
cluster cluster-id
cluster list-endpoints
broker-api-versions
features upgrade --feature foo=1
reassign-partitions --reassignment-json-file {who}.json --verify
topics --delete --topic {who}1
""".strip().splitlines()


# From a directory, a tool and its arguments to exit code, stdout and stderr.
Runner = Callable[[pathlib.Path, str, list[str]], tuple[int, str, str]]


@pytest.fixture(scope="module", params=("2.8", "3.9", "4"))
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Three brokers of a line of Apache Kafka."""
    home = tmp_path_factory.mktemp("apache")
    with apache.running(request.param, home, BROKERS) as brokers:
        yield ",".join(broker.address for broker in brokers)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in NAMES:
        partition = {"topic": f"{name}1", "partition": 0}
        plan = {"version": 1, "partitions": [{**partition, "replicas": [2, 3]}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(plan))
        offsets = {"version": 1, "partitions": [{**partition, "offset": -1}]}
        (tmp_path / f"{name}-offsets.json").write_text(json.dumps(offsets))
    return tmp_path


def java(tools: JavaTools, tool: str, words: list[str]) -> tuple[int, str, str]:
    code, out, err = tools.run(tool, words)
    return int(code), out, err


def ours(home: pathlib.Path, tool: str, words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(home), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_tool(tool, words)
    return code, out.getvalue(), err.getvalue()


def story(
    home: pathlib.Path, servers: str, run: Runner, who: str
) -> dict[str, tuple[int, list[str], list[str]]]:
    """All calls in turn, with their results."""
    reported = {}
    for number, call in enumerate(CALLS):
        tool, *words = shlex.split(call.replace("{who}", who))
        where = ["--bootstrap-server", servers]
        code, out, err = run(home, tool, [*where, *words])
        texts = [text.replace(servers, "SERVERS").replace(who, "WHO") for text in (out, err)]
        if "--create" in words and not code:
            for server in servers.split(","):
                listing = ["--bootstrap-server", server, "--list"]
                wait_until(lambda listing=listing: f"{who}1" in ours(home, "topics", listing)[1])
        reported[f"{number} {call}"] = (code, *(_comparable(text) for text in texts))
    return reported


def _comparable(text: str) -> list[str]:
    return [
        re.sub(r"Epoch: \d+|\[(un)?usable: [\w ]+\]", "N", line)
        for line in normal(text)
        # Lines of Java's logger that our tool does not write.
        if "[AdminClient clientId=" not in line
        # Of Kafka 4's releases that of 3.9 does not know the names.
        and "Feature: metadata.version" not in line
    ]


def test_our_tools_print_what_kafkas_print(servers: str, home: pathlib.Path) -> None:
    # The topic of all groups' places is made at the first question, which may take a while.
    patient = ["--bootstrap-server", servers, "--timeout", "60000"]
    ours(home, "consumer-groups", [*patient, "--describe", "--group", "first"])
    tools = JavaTools(home)
    try:
        theirs = story(home, servers, lambda _, tool, words: java(tools, tool, words), NAMES[0])
    finally:
        tools.close()
    mine = story(home, servers, ours, NAMES[1])

    differing = {
        call: list(difflib.ndiff(*map(_lines, (theirs[call], mine[call]))))
        for call in theirs
        if mine[call] != theirs[call]
    }
    assert not differing, "\n".join(
        f"{call}  (-: Kafka, +: ours)\n  " + "\n  ".join(line for line in lines if line[0] in "-+")
        for call, lines in differing.items()
    )


def _lines(outcome: tuple[int, list[str], list[str]]) -> list[str]:
    code, out, err = outcome
    return [f"exit {code}", *out, *(f"stderr: {line}" for line in err)]
