"""Options that Kafka has removed: its message, and a second line with the successor."""

import pytest

from odradek.cli.kafka.tool import run_tool

UNKNOWN = "{} is not a recognized option"
JAVA = 'Exception in thread "main" joptsimple.UnrecognizedOptionException: ' + UNKNOWN


@pytest.mark.parametrize(
    ("tool", "option", "first", "server"),
    [
        ("topics", "zookeeper", UNKNOWN, "--bootstrap-server"),
        ("leader-election", "zookeeper", UNKNOWN, "--bootstrap-server"),
        ("console-consumer", "zookeeper", UNKNOWN, "--bootstrap-server"),
        ("console-consumer", "new-consumer", UNKNOWN, "--bootstrap-server"),
        ("consumer-groups", "zookeeper", JAVA, "--bootstrap-server"),
        ("consumer-groups", "new-consumer", JAVA, "--bootstrap-server"),
        ("reassign-partitions", "zookeeper", JAVA, "--bootstrap-server"),
        ("get-offsets", "zookeeper", "Error occurred: " + UNKNOWN, "--bootstrap-server"),
    ],
)
def test_kafkas_line_is_followed_by_the_option_to_use(tool, option, first, server, capsys):
    assert run_tool(tool, [f"--{option}", "localhost:2181"]) == 1
    out, err = capsys.readouterr()
    kafkas, ours = err.splitlines()
    assert (out, kafkas) == ("", first.format(option))
    assert ours.startswith(f"--{option} was removed: ")
    assert f"{server} HOST:PORT" in ours


@pytest.mark.parametrize("tool", ["console-producer", "consumer-perf-test"])
def test_where_the_help_follows_the_advice_is_its_last_line(tool, capsys):
    assert run_tool(tool, ["--zookeeper", "localhost:2181"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == UNKNOWN.format("zookeeper")
    assert "--bootstrap-server HOST:PORT" in lines[-1]


def test_what_no_version_had_gets_no_advice(capsys):
    assert run_tool("topics", ["--zookeepers", "localhost:2181"]) == 1
    assert capsys.readouterr().err == "zookeepers is not a recognized option\n"
