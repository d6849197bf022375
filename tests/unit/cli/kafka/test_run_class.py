"""`kafka-run-class`: every class that it names has a tool that exists."""

import pytest

from odradek.cli.kafka.elsewhere.run_class import SUCCESSORS
from odradek.cli.kafka.tool import TOOLS, run_tool, script_name

SCRIPTS = set(map(script_name, TOOLS))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("kafka.tools.ConsumerOffsetChecker", "kafka-consumer-groups --describe --group"),
        ("kafka.tools.DumpLogSegments", "kafka-dump-log"),
        ("org.apache.kafka.tools.ProducerPerformance", "kafka-producer-perf-test"),
        ("kafka.admin.TopicCommand", "kafka-topics"),
    ],
)
def test_a_class_of_kafka_has_a_tool_here(name, instead, capsys):
    assert run_tool("run-class", ["-daemon", name, "--zookeeper", "localhost:2181"]) == 1
    assert capsys.readouterr().err == f"{name.rpartition('.')[2]} is here: {instead}\n"


def test_every_tool_that_is_named_exists_and_has_these_options():
    for instead in SUCCESSORS.values():
        tool = instead.split()[0]
        assert tool in SCRIPTS or tool in {"GET", "odradek"}, instead
