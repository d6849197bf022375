"""`kafka-streams-application-reset` on a broker: what Kafka 3.9.2's tool prints and does."""

import contextlib
import io
import json

import pytest

from odradek.cli.kafka.tool import run_tool
from odradek.cli.main import run

RESET = """\
Reset-offsets for input topics [in]
Following input topics offsets will be reset to (for consumer group app)
Topic: in Partition: 1 Offset: 0
Topic: in Partition: 0 Offset: 0
Done.
Deleting inferred internal topics [app-x-repartition, app-store-changelog]
Done.
"""
DRY = (
    "----Dry run displays the actions which will be performed when running Streams Reset Tool----\n"
)
NOT_FOUND = """\
Reset-offsets for input topics [none]
Following input topics are not found, skipping them
Topic: none
Deleting inferred internal topics []
Done.
"""
NOTHING = """\
No input or intermediate topics specified. Skipping seek.
Deleting inferred internal topics []
Done.
"""


def printed(program, *arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program(*arguments)
    return code, out.getvalue(), err.getvalue()


class Broker:
    def __init__(self, home):
        self.home = home
        assert printed(run, ["up", "--detach", "--dir", str(home)])[0] == 0
        status = printed(run, ["status", "--json", "--dir", str(home)])[1]
        self.bootstrap = json.loads(status)["bootstrap"]

    def tool(self, name, *arguments):
        return printed(run_tool, name, ["--bootstrap-server", self.bootstrap, *arguments])

    def reset(self, *arguments):
        """Exit code and output."""
        return self.tool("streams-application-reset", "--application-id", "app", *arguments)[:2]

    def topics(self):
        return {name for name in self.tool("topics", "--list")[1].split() if name[:2] != "__"}


@pytest.fixture
def broker(tmp_path):
    started = Broker(tmp_path / "home")
    try:
        for topic in ("in", "app-store-changelog", "app-x-repartition", "app-other"):
            partitions = "2" if topic == "in" else "1"
            made = started.tool("topics", "--create", "--topic", topic, "--partitions", partitions)
            assert made[0] == 0, made
        yield started
    finally:
        printed(run, ["down", "--dir", str(started.home)])


def test_offsets_are_reset_and_internal_topics_are_deleted(broker):
    everything = broker.topics()

    assert broker.reset("--input-topics", "in", "--dry-run") == (0, DRY + RESET)
    assert broker.topics() == everything
    refused = broker.tool(
        "streams-application-reset", "--application-id", "app", "--internal-topics", "app-other"
    )
    assert refused[0] == 1
    assert "Invalid topic specified in the --internal-topics option." in refused[2]
    assert broker.reset("--input-topics", "in") == (0, RESET)
    assert broker.topics() == {"in", "app-other"}
    assert broker.reset("--input-topics", "none") == (1, NOT_FOUND)
    assert broker.reset() == (0, NOTHING)
    described = broker.tool("consumer-groups", "--describe", "--group", "app")[1]
    assert sorted(line.split()[:4] for line in described.strip().splitlines()[1:]) == [
        ["app", "in", "0", "0"],
        ["app", "in", "1", "0"],
    ]
