"""Command lines that the tools for producing and consuming refuse without a broker."""

import io
import time

import pytest

from odradek.cli.kafka.clients.throttle import Throttle
from odradek.cli.kafka.support.dates import java_date
from odradek.cli.kafka.tool import run_tool

SERVER = ("--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("console-producer", (), "Missing required option(s) [bootstrap-server]"),
        ("console-producer", SERVER, 'Missing required argument "[topic]"'),
        ("console-producer", (*SERVER, "--frob"), "frob is not a recognized option"),
        (
            "console-producer",
            ("--bootstrap-server", "nonsense", "--topic", "t"),
            "Please provide valid host:port like host1:9091,host2:9092",
        ),
        (
            "console-producer",
            (*SERVER, "--topic", "t", "--max-block-ms", "abc"),
            "Cannot parse argument 'abc' of option max-block-ms",
        ),
        (
            "console-producer",
            (*SERVER, "--topic", "t", "--line-reader", "foo"),
            "java.lang.ClassNotFoundException: foo",
        ),
        (
            "console-producer",
            (*SERVER, "--topic", "t", "--request-required-acks", "7"),
            (
                "org.apache.kafka.common.config.ConfigException: Invalid value 7 for configuration "
                "acks: String must be one of: all, -1, 0, 1"
            ),
        ),
        (
            "console-producer",
            (*SERVER, "--topic", "t", "--producer.config", "/nope"),
            "java.nio.file.NoSuchFileException: /nope",
        ),
        ("console-consumer", SERVER, "Exactly one of --include/--topic is required. "),
        ("console-consumer", ("--topic", "t"), 'Missing required argument "[bootstrap-server]"'),
        (
            "console-consumer",
            (*SERVER, "--topic", "t", "--offset", "3"),
            "The partition is required when offset is specified.",
        ),
        (
            "console-consumer",
            (*SERVER, "--include", "t", "--partition", "3"),
            "The topic is required when partition is specified.",
        ),
        (
            "console-consumer",
            (*SERVER, "--topic", "t", "--partition", "0", "--offset", "-3"),
            (
                "The provided offset value '-3' is incorrect. Valid values are 'earliest', "
                "'latest', or a non-negative long."
            ),
        ),
        (
            "console-consumer",
            (*SERVER, "--topic", "t", "--group", "a", "--consumer-property", "group.id=b"),
            "do not match. Detected group ids: 'a', 'b'",
        ),
        (
            "console-consumer",
            (
                *SERVER,
                *("--topic", "t", "--from-beginning"),
                *("--consumer-property", "auto.offset.reset=latest"),
            ),
            (
                "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', "
                "please remove one option"
            ),
        ),
        (
            "console-consumer",
            (*SERVER, "--topic", "t", "--consumer-property", "isolation.level=foo"),
            (
                "Invalid value foo for configuration isolation.level: String must be one of: "
                "read_committed, read_uncommitted"
            ),
        ),
        ("console-consumer", (*SERVER, "--topic", "t", "--formatter", "foo.Bar"), "foo.Bar"),
        ("producer-perf-test", ("--topic", "t"), "argument --throughput is required"),
        (
            "producer-perf-test",
            ("--topic", "t", "--num-records", "1", "--throughput", "-1", "--record-size", "x"),
            "argument --record-size: could not convert 'x' to Integer (For input string: \"x\")",
        ),
        (
            "producer-perf-test",
            ("--topic", "t", "--num-records", "1", "--throughput", "-1", "--record-size", "1"),
            "Either --producer-props or --producer.config must be specified.",
        ),
        ("consumer-perf-test", (*SERVER, "--topic", "t"), 'Missing required argument "[messages]"'),
        ("e2e-latency", ("a", "b"), "USAGE: "),
        (
            "e2e-latency",
            ("127.0.0.1:1", "t", "10", "0", "1"),
            "Latency testing requires synchronous acknowledgement. Please use 1 or all",
        ),
        ("verifiable-producer", ("--topic", "t"), "error: one of the arguments --bootstrap-server"),
        ("verifiable-consumer", SERVER, "error: argument --group-id is required"),
        (
            "verifiable-consumer",
            (*SERVER, "--topic", "t", "--group-id", "g", "--session-timeout", "1"),
            "IllegalArgumentException: Heartbeat must be set lower than the session timeout",
        ),
        (
            "verifiable-consumer",
            (*SERVER, "--topic", "t", "--group-id", "g", "--assignment-strategy", "foo.Bar"),
            "partition.assignment.strategy=foo.Bar: this client has range",
        ),
        (
            "replica-verification",
            ("--broker-list", "127.0.0.1:1", "--topics-include", "["),
            "[ is an invalid regex",
        ),
    ],
)
def test_errors_have_kafkas_wording(tool, arguments, complaint, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))

    assert run_tool(tool, arguments) == 1

    text = capsys.readouterr()
    assert complaint in text.err
    assert text.out == ""


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-11-21 04:30:29:007"),
        ("yyyy", "2026"),
        ("yy'y'''", "26y'"),
    ],
)
def test_moments_are_written_as_java_writes_them(pattern, shown):
    moment = time.mktime((2026, 11, 21, 4, 30, 29, 0, 0, 0))

    assert java_date(int(moment) * 1000 + 7, pattern) == shown


def test_a_sender_above_the_rate_is_held_back():
    throttle = Throttle(10, 0.0)

    assert throttle.is_ahead(20, 1.0)
    assert not throttle.is_ahead(10, 1.0)
    assert not Throttle(-1, 0.0).is_ahead(10**9, 1.0)
