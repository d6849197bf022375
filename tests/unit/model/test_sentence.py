"""A sentence holds its commands as data, and is one printable line."""

from odradek.model.command import command
from odradek.model.sentence import joined, sentence

START = command("odradek", "start", "1")


def test_the_text_has_the_words_and_the_commands_in_their_order():
    said = sentence("broker ", "1: ", sentence(START, ", or"), " ask")

    assert str(said) == "broker 1: odradek start 1, or ask"
    assert said.commands == (START,)


def test_foreign_text_cannot_begin_a_line_or_a_command():
    said = sentence("group x\n$(id)\x1b[2J; ", command("kafka", "x\n$(id)"))

    assert str(said) == "group x\\n$(id)\\x1b[2J; kafka $'x\\012$(id)'"
    assert [each.words for each in said.commands] == [("kafka", "x\n$(id)")]


def test_what_is_empty_is_left_out():
    assert str(joined(("", START, sentence(), "wait"))) == "odradek start 1; wait"
    assert not joined(("", sentence()))
    assert sentence("") == sentence()
