"""The help of our own commands, and what is suggested for a misspelt option."""

import click
import pytest

from odradek.cli.main import COMMANDS, odradek, run


def commands(group, prefix=()):
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            yield (*prefix, name), command
            if isinstance(command, click.Group):
                yield from commands(command, (*prefix, name))


EVERY = {
    " ".join(path): command
    for path, command in commands(odradek)
    if path[0] != "demo"  # it needs packages of its own
}


@pytest.mark.parametrize("name", EVERY)
def test_every_option_says_what_it_does(name):
    options = [each for each in EVERY[name].params if isinstance(each, click.Option)]
    assert [each.opts for each in options if not each.help] == []


@pytest.mark.parametrize("name", EVERY)
def test_no_option_shows_the_name_of_a_function(name):
    context = click.Context(EVERY[name])
    shown = [each.make_metavar(context) for each in EVERY[name].params]
    assert [text for text in shown if text.startswith("TO_")] == []


@pytest.mark.parametrize("name", [name for name in EVERY if isinstance(EVERY[name], click.Group)])
def test_the_list_of_subcommands_is_not_cut(name, capsys):
    assert run([*name.split(), "--help"]) == 0
    _, listed = capsys.readouterr().out.split("Commands:\n")
    assert "..." not in listed


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("up --broker 3", "Did you mean '--brokers'?"),
        ("up --racs a,b", "Did you mean '--racks'?"),
        ("up --bro 3", "Did you mean '--brokers'?"),
        ("up --quux", None),
    ],
)
def test_only_options_that_are_written_alike_are_suggested(words, meant, capsys):
    assert run(words.split()) == 1
    err = capsys.readouterr().err
    assert "zookeeper" not in err
    assert (meant in err) if meant else "Did you mean" not in err


def test_every_command_is_tried():
    assert {name.split()[0] for name in EVERY} == {*COMMANDS} - {"demo"}
