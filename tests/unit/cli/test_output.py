"""Text for a terminal is printable; bytes and a program's own colours are not touched."""

import io
import json
import sys

import click
import pytest

from odradek.cli import main
from odradek.cli.output import bare, printable_output


def test_text_is_printable_and_lines_and_tabs_stay(capsys):
    with printable_output():
        sys.stdout.write("a\tb\nc\x1b[2J\x9b\u202e \udc80\n")
        sys.stderr.write("\x07\n")
        sys.stdout.writelines(["größe 5 €\n", "\r\n"])
        click.echo("\x1b]0;t\x07")
    sys.stdout.write("\x1b[0m\n")

    printed = capsys.readouterr()
    lines = ["a\tb", "c\\x1b[2J\\u009b\\u202e \\udc80", "größe 5 €", "\\r", "\\x1b]0;t\\x07"]
    assert printed.out == "\n".join([*lines, "\x1b[0m\n"])
    assert printed.err == "\\x07\n"


def test_records_are_bytes_and_colours_are_the_programs_own(monkeypatch):
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
    monkeypatch.setattr("sys.stdout", stream)
    with printable_output(), printable_output():
        sys.stdout.buffer.write(b"\x1b[2J\0\n")
        bare(sys.stdout).write("\x1b[1m")
    assert sys.stdout is stream

    assert written.getvalue() == b"\x1b[2J\0\n\x1b[1m"


def test_json_stays_json(capsys):
    name = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x202E]))
    with printable_output():
        click.echo(json.dumps([name]))
        click.echo(json.dumps(["\x7f\x9b\u202e"], ensure_ascii=False))

    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == [name]
    assert json.loads(second) == ["\x7f\x9b\u202e"]


def test_each_command_prints_so(capsys):
    main.run(["no\x1b[2Jcommand"])
    main.run(["topics", "--no\x1b[2Jflag"])

    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert printed.err.count("\\x1b[2J") >= 2


FORGED = "ok: no problem was found"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "--bootstrap-server", "127.0.0.1:1", "--to\n{}"],
        ["topics", "--bootstrap-server", "127.0.0.1:\n{}", "--list"],
        ["topics", "--bootstrap-server=127.0.0.1:\n{}", "--list"],
        ["up", "--brokers", "a\n{}"],
        ["doctor", "--dir", "/nowhere\n{}"],
        ["no\n{}\ncommand"],
        ["dump-log", "--files", "/nowhere\n{}"],
    ],
    ids=" ".join,
)
def test_a_newline_in_an_argument_begins_no_line(arguments, capsys):
    main.run([each.format(FORGED) for each in arguments])

    printed = "".join(capsys.readouterr())
    assert [line for line in printed.splitlines() if line.startswith(FORGED)] == []


def test_a_separator_is_no_name(capsys):
    with printable_output(["--property", "key.separator=\n", "\n", "a\nb"]):
        click.echo("x\ny a\nb")

    assert capsys.readouterr().out == "x\ny a\\nb\n"
