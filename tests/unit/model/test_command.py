"""A command is data: whatever its words are, a shell reads back exactly these words."""

import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.model.command import Command, about, command, flag

HOSTILE = (
    "x$(touch${IFS}PWNED)", "x; odradek down --dir y", "`id`", "it's", '"', "a b", "", "~", "*",
    "#x", "&&", ">f", "$HOME", "!!", "-x", "a\\nb", "a\nb", "a\n", "\t", "x\x1b[2J", "\x9b31m",
    "\x7f", "\u202egnp", "\u200b", "\ufeff", "p\u0159\u00edklad", "\ud800", "\udcff",
)  # fmt: skip


def read_by_bash(text):
    """The words that bash makes of a command."""
    script = f"set -- {text}; printf '%s\\0' \"$@\""
    done = subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    return done.stdout.split(b"\0")[:-1]


def encoded(word):
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogatepass")


def test_bash_reads_back_hostile_words():
    assert read_by_bash(str(command(*HOSTILE))) == [encoded(word) for word in HOSTILE]


def test_a_command_is_one_line_of_printable_characters():
    assert str(command(*HOSTILE)).isprintable()
    assert str(Command(("tool", *HOSTILE), input_line="\x1b\n\u202e")).isprintable()


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
@example(["$'a'"])
def test_printable_words_are_what_shlex_reads(words):
    said = [word for word in words if word.isprintable()]

    assert shlex.split(str(command(*said))) == said


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1, max_size=20))
def test_bash_reads_back_any_words(words):
    assert read_by_bash(str(command(*words))) == [encoded(word) for word in words]


def test_a_command_with_a_zero_byte_does_nothing():
    text = str(command("kafka-consumer-groups", "--delete", "--group", "orders\0x; touch f"))

    assert text.startswith("# ")
    assert "\0" not in text
    assert text.endswith("'orders\\x00x; touch f'")
    assert subprocess.run(["bash", "-c", text], check=True, capture_output=True).stdout == b""


@pytest.mark.parametrize("line", ["v", "it's", "100 % \\n", "a\tb\tc", "-a\x1b", "%s\x01%d"])
def test_every_shell_prints_the_line_that_a_command_reads(line):
    text = str(Command(("cat",), input_line=line))

    done = subprocess.run(["sh", "-c", text], check=True, capture_output=True)
    assert done.stdout == f"{line}\n".encode()


def test_a_value_that_looks_like_an_option_stays_a_value():
    assert flag("--group", "--delete") == ("--group=--delete",)
    assert flag("--partition", 3) == ("--partition", "3")
    assert about("-h", ("--dir", "D")) == ("--dir", "D", "--", "-h")
    assert about("g", ("--dir", "D")) == ("g", "--dir", "D")
