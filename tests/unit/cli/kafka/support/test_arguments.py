"""The command lines of some of Kafka's tools are read as argparse4j reads them."""

import pytest

from odradek.cli.kafka.support.arguments import CommandLine, double, integer, long


@pytest.fixture
def line():
    line = CommandLine("kafka-tool.sh", "Does something.")
    line.value("bootstrap-server", "b", metavar="host:port", required=True)
    line.flag("version", "v", help="Print the version.")
    add = line.verb("add", "Add a number.")
    add.value("number", metavar="N", read=integer, default=7)
    add.value("level", metavar="N", read=integer, choices=(0, 1, -1), default=0)
    add.value("feature", metavar="name", default=())
    add.values("property", metavar="name=value", help="Properties.")
    add.flag("dry-run", help="Only judge.")
    either = line.verb("find", "Find it.")
    either.value("broker.id", metavar="N", read=long, either=True)
    either.value("rate", metavar="N", read=double, either=True)
    either.flag("all", help="Everything.", either=True)
    return line


def exit_code(line, words):
    with pytest.raises(SystemExit) as end:
        line.read(words)
    return end.value.code


def test_options_are_attributes_with_their_types_and_defaults(line):
    options = line.read(["-b", "x:1", "add", "--level=-1", "--property", "a=1", "b=2"])

    assert vars(options) == {
        "bootstrap_server": "x:1",
        "help": False,
        "version": False,
        "verb": "add",
        "number": 7,
        "level": -1,
        "feature": (),
        "property": ["a=1", "b=2"],
        "dry_run": False,
    }


def test_an_option_may_be_abbreviated_and_a_repeated_one_collects_its_values(line):
    words = ["--boot", "x:1", "add", "--feature", "a", "--feature=b", "--dry", "--num", "-3"]
    options = line.read(words)

    assert (options.feature, options.dry_run, options.number) == (("a", "b"), True, -3)


def test_either_of_the_options_is_enough(line):
    assert line.read(["-b", "x", "find", "--broker.id", "4"]).broker_id == 4
    assert line.read(["-b", "x", "find", "--rate", "0.5"]).rate == 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "too few arguments"),
        ("-b x", "too few arguments"),
        ("add", "argument --bootstrap-server/-b is required"),
        ("-b x bogus", "invalid choice: 'bogus' (choose from 'add', 'find')"),
        ("-b -q add", "argument --bootstrap-server/-b: expected one argument"),
        ("-b x add --wat --help", "unrecognized arguments: '--wat'"),
        ("-b x add 1 2", "unrecognized arguments: '1'"),
        ("-b x add --property", "argument --property: expected at least one argument"),
        ("-b x add --level 5", "argument --level: invalid choice: 5 (choose from 0, 1, -1)"),
        (
            "-b x add --number 1.5",
            "argument --number: could not convert '1.5' to Integer (For input string: \"1.5\")",
        ),
        (
            "-b x find --rate y",
            "argument --rate: could not convert 'y' to Double (For input string: \"y\")",
        ),
        ("-b x find", "one of the arguments --broker.id --rate --all is required"),
        (
            "-b x find --all --rate 1",
            "argument --rate: not allowed with argument --all",
        ),
    ],
)
def test_what_is_wrong_is_reported_after_the_usage(line, capsys, words, message):
    assert exit_code(line, words.split()) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("usage: kafka-tool.sh ")
    assert printed.err.endswith(f"\nkafka-tool.sh: error: {message}\n")


def test_an_ambiguous_abbreviation_is_refused(line, capsys):
    line.value("broker", metavar="N")

    assert exit_code(line, ["--b", "x", "add"]) == 1
    assert "ambiguous option: --b could match --bootstrap-server, --broker" in (
        capsys.readouterr().err
    )


def test_help_and_version_take_effect_before_what_follows(line, capsys):
    assert exit_code(line, ["--help", "--wat"]) == 1
    printed = capsys.readouterr()
    assert "--bootstrap-server, -b <host:port>" in printed.out
    assert "find  Find it." in printed.out
    assert printed.err == ""
    assert exit_code(line, ["-v", "--wat"]) == 0
    assert exit_code(line, ["-b", "x", "add", "-h"]) == 1
    assert "Only judge." in capsys.readouterr().out
