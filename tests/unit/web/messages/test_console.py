"""The command of a message, parsed by the shell's rules and by the tool that it names."""

import shlex
import subprocess

import pytest

from odradek.cli.kafka.clients.line_reader import LineReader
from odradek.plan.commands import Caller
from odradek.record.compression import Codec
from odradek.web.messages.console import console_command
from odradek.web.messages.produce import NewMessage

HERE = Caller(bootstrap="localhost:9092")


def produced(command: str) -> NewMessage:
    printing, _, tool = str(command).rpartition(" | ")
    line = subprocess.run(["sh", "-c", printing], check=True, capture_output=True).stdout.decode()
    assert line.endswith("\n")
    line = line[:-1]
    name, *flags = shlex.split(tool)
    assert name == "kafka-console-producer"
    named = list(zip(flags[::2], flags[1::2], strict=True))
    properties = dict(value.split("=", 1) for flag, value in named if flag == "--property")
    others = dict(named)
    parsed = LineReader(properties).parse(line)
    return NewMessage(
        topic=others["--topic"],
        key=parsed.key,
        value=parsed.value,
        headers=parsed.headers,
        codec=Codec[others.get("--compression-codec", "none").upper()],
    )


@pytest.mark.parametrize(
    "message",
    [
        NewMessage(topic="t", value=b"v"),
        NewMessage(topic="t", value=b""),
        NewMessage(topic="t", value="it's\ta 'p\u0159\u00edklad' $HOME %s".encode()),
        NewMessage(topic="t", key=b"k", value=None, codec=Codec.ZSTD),
        NewMessage(topic="t", key=b"null", value=None),
        NewMessage(topic="t", value=b"v", headers=(("trace", b"a"), ("empty", b""), ("no", None))),
        NewMessage(topic="t", key=b"", value=b"v\tw", headers=(("one", b"1"),)),
    ],
)
def test_the_command_produces_the_message(message):
    assert produced(console_command(message, HERE)) == message


@pytest.mark.parametrize(
    "message",
    [
        NewMessage(topic="t", partition=0, value=b"v"),
        NewMessage(topic="t", value=b"\xff"),
        NewMessage(topic="t", value=b"two\nlines"),
        NewMessage(topic="t", key=b"a\tb", value=b"v"),
        NewMessage(topic="t", value=b"v", headers=(("a:b", b"c"),)),
        NewMessage(topic="t", value=b"v", headers=(("a", b"b,c"),)),
    ],
)
def test_a_message_that_the_tool_cannot_produce_has_no_command(message):
    assert console_command(message, HERE) is None


def test_a_secure_cluster_is_named_with_its_file():
    command = console_command(NewMessage(topic="t", value=b"v"), Caller("h:1", config="a b.conf"))
    assert "--bootstrap-server h:1 --producer.config 'a b.conf' --topic t" in str(command)
