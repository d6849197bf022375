"""The flags of Kafka's tools are read as joptsimple reads them."""

import pytest

from odradek import __version__
from odradek.cli.kafka.support.flags import FlagError, Parser, UsageError


@pytest.fixture
def parser():
    parser = Parser("Does something.")
    parser.flag("list", help="List.")
    parser.flag("create", help="Create.")
    parser.value("topic", metavar="name", help="The topic.")
    parser.value("time", metavar="ms", help="The time.")
    parser.value("delete-config", metavar="k1,k2", help="Options.", separator=",")
    parser.optional("state", metavar="state", help="With a state, or without.")
    parser.value("operation", "op", metavar="operation", help="Under two names.")
    parser.common()
    return parser


@pytest.mark.parametrize(
    "words",
    [
        ["--list", "--topic", "a"],
        ["--topic=a", "--list"],
        ["-list", "-topic", "a"],
        ["--topic", "a", "--list=ignored"],
        ["--list", "--list", "--topic", "a"],
    ],
)
def test_an_option_can_be_written_in_many_ways(parser, words):
    flags = parser.parse(words)

    assert flags.has("list")
    assert not flags.has("create")
    assert flags.value("topic") == "a"


def test_a_value_may_begin_with_a_dash_or_look_like_a_flag(parser):
    assert parser.parse(["--time", "-1"]).integer("time", bits=64) == -1
    assert parser.parse(["--topic", "--list"]).value("topic") == "--list"


def test_an_optional_value_does_not(parser):
    assert parser.parse(["--state", "--list"]).has("list")
    assert parser.parse(["--state", "--list"]).value("state") is None
    assert parser.parse(["--state", "Stable"]).value("state") == "Stable"
    assert parser.parse(["--state"]).has("state")


def test_values_are_split_and_gathered(parser):
    flags = parser.parse(["--delete-config", "a,b", "--delete-config=c"])

    assert flags.values("delete-config") == ["a", "b", "c"]
    assert parser.parse(["--op", "x"]).value("operation") == "x"


def test_what_is_no_option_is_left_alone(parser):
    assert parser.parse(["a", "-", "--list", "--", "--create"]).others == ["a", "-", "--create"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--frobnicate"], "frobnicate is not a recognized option"),
        (["--lis"], "lis is not a recognized option"),
        (["-lis"], "l is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
    ],
)
def test_errors_have_joptsimples_wording(parser, words, complaint):
    with pytest.raises(FlagError, match=f"^{complaint}$"):
        parser.parse(words)


def test_one_value_is_not_several(parser):
    flags = parser.parse(["--topic", "a", "--topic", "b"])

    assert flags.values("topic") == ["a", "b"]
    with pytest.raises(FlagError, match="Found multiple arguments for option topic"):
        flags.value("topic")


@pytest.mark.parametrize("text", ["x", "", "1.5", "2147483648", "--1"])
def test_a_value_that_is_not_a_number_is_refused(parser, text):
    with pytest.raises(FlagError, match=f"Cannot parse argument '{text}' of option time"):
        parser.parse(["--time", text]).integer("time")


def test_rules_between_options_end_in_the_help(parser):
    flags = parser.parse(["--list", "--topic", "a"])

    with pytest.raises(UsageError, match=r'Missing required argument "\[time\]"'):
        parser.require(flags, "topic", "time")
    with pytest.raises(
        UsageError, match=r'Option "\[list\]" can\'t be used with option "\[topic\]"'
    ):
        parser.refuse(flags, "list", ["topic"])
    parser.refuse(flags, "create", ["topic"])


def test_help_names_every_option_and_ends_with_code_1(parser):
    with pytest.raises(UsageError, match="Does something"):
        parser.begin(["--help"])
    usage = parser.usage()

    assert all(f"--{name}" in usage for name in ("list", "topic <name>", "state [state]", "help"))
    assert max(map(len, usage.splitlines())) <= 80


def test_the_version_is_printed_with_code_0(parser, capsys):
    with pytest.raises(SystemExit) as end:
        parser.begin(["--version"])
    assert end.value.code == 0
    # Scripts parse the first word: the Kafka version whose flags and outputs these are.
    assert capsys.readouterr().out == f"3.9.2 (Odradek {__version__})\n"
