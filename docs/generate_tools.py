"""Writes `tools.md` from the options of all commands: `python docs/generate_tools.py`.

A test fails if the page differs from them.
"""

import importlib
import pathlib
from collections.abc import Iterator, Sequence

import click

from odradek.cli.kafka.support.flags import NONE, OPTIONAL, Flag, Parser, dashed
from odradek.cli.kafka.tool import TOOLS, script_name
from odradek.cli.main import COMMANDS, odradek

PAGE = pathlib.Path(__file__).with_name("tools.md")
INTRODUCTION = """\
# Command-line tools

(Generated from the commands' own options by `docs/generate_tools.py`; do not edit.)

`odradek COMMAND` runs a cluster, explains it and plans it. Kafka's tools have the names and flags
of Apache Kafka 3.9, and what they print is the same ([what differs](comparison.md)).
`kafka-topics`, `kafka-topics.sh` and `odradek topics` are one. Every command has `--help`, and
prints results on stdout and everything else on stderr.

`odradek completion bash` (zsh, fish) prints the code that completes names and flags in a shell.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "| command | |"
    yield "|---|---|"
    for name, entry in COMMANDS.items():
        yield f"| [`odradek {name}`](#odradek-{name}) | {entry.summary} |"
    for name, tool in TOOLS.items():
        yield f"| [`{script_name(name)}`](#{script_name(name)}) | {tool.summary} |"
    yield "\n## The commands of odradek\n"
    with click.Context(odradek) as context:
        for name in COMMANDS:
            command = odradek.get_command(context, name)
            assert command is not None
            yield from _command(f"odradek {name}", command, context)
    yield "## Kafka's tools\n"
    for name, tool in TOOLS.items():
        yield f"### {script_name(name)}\n"
        module = importlib.import_module(tool.module)
        parser: Parser = module.command_line() if hasattr(module, "command_line") else Parser("")
        yield f"{parser.description or tool.summary}\n"
        yield from _flags(parser.options)
        if hasattr(module, "USAGE"):
            yield f"```text\n{module.USAGE}\n```\n"
        for _, _, _, usage in getattr(module, "SYNTAX", {}).values():
            yield f"- `{usage}`"
        if hasattr(module, "SYNTAX"):
            yield ""
        for verb, line in parser.verbs.items():
            yield f"**{script_name(name)} {verb}** {line.description}\n"
            yield from _flags(line.options)


def _command(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=name.rpartition(" ")[2])
    yield f"### {name}\n"
    described = (command.help or "").replace("\b", "").split("\f")[0]
    yield "\n\n".join(" ".join(each.split()) for each in described.split("\n\n")) + "\n"
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            inner = command.get_command(context, verb)
            assert inner is not None
            yield from _command(f"{name} {verb}", inner, context)
        return
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"`{name} {pieces}`\n"
    options = [each for each in command.params if isinstance(each, click.Option)]
    rows = [each.get_help_record(context) for each in options if not each.hidden]
    if rows:
        yield "| option | |"
        yield "|---|---|"
        for row in rows:
            assert row is not None
            yield f"| `{_cell(row[0])}` | {_cell(row[1])} |"
        yield ""


def _flags(options: Sequence[Flag]) -> Iterator[str]:
    if not options:
        return
    yield "| option | |"
    yield "|---|---|"
    for option in options:
        names = ", ".join(map(dashed, option.names))
        value = f" [{option.metavar}]" if option.argument == OPTIONAL else f" <{option.metavar}>"
        shown = names + ("" if option.argument == NONE else value)
        yield f"| `{_cell(shown)}` | {_cell(option.help)} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
