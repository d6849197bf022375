"""Offsets in CSV, times as text, and partitions by pattern."""

import pytest

from odradek.cli.failures import ToolError
from odradek.cli.kafka import get_offsets
from odradek.cli.kafka.support import group_reset
from odradek.cli.kafka.support.flags import FlagError
from odradek.cli.kafka.support.group_reset import read_csv, to_csv
from odradek.model.partition import TopicPartition

G0, G1 = TopicPartition("g", 0), TopicPartition("g", 1)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "offsets.csv"
        path.write_text(text)
        return str(path)

    return write


def test_what_is_exported_can_be_read_again(file):
    plan = {"a": {G0: 3, G1: 4}}

    assert read_csv(file(to_csv(plan, with_group=True)), group=None) == plan
    assert read_csv(file(to_csv(plan, with_group=False)), group="a") == plan


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("g,0\n", "line 1: 2 fields, must be 3"),
        ("g,0,1\n\na,g,0,1\n", "line 3: 4 fields, must be 3"),
        ("g,x,1\n", "Cannot parse argument 'x' of option .* line 1"),
    ],
)
def test_an_invalid_line_is_named(file, text, complaint):
    with pytest.raises((ToolError, FlagError), match=complaint):
        read_csv(file(text), group="a")


def test_times_are_read_as_kafka_reads_them():
    assert group_reset._datetime_ms("1970-01-02T00:00:00.500") == 86_400_500
    assert group_reset._datetime_ms("1970-01-01T01:00:00.000+01:00") == 0
    now_ms, ago_ms = group_reset._ago_ms("PT0S"), group_reset._ago_ms("P1DT1H")
    assert now_ms - ago_ms == pytest.approx(25 * 3_600_000, abs=10_000)
    for garbage in ("yesterday", "2020-13-01T00:00:00"):
        with pytest.raises(ToolError, match="Error parsing timestamp|Unparseable date"):
            group_reset._datetime_ms(garbage)
    for garbage in ("1H", "P", "PT"):
        with pytest.raises(ToolError, match="cannot be parsed to a Duration"):
            group_reset._ago_ms(garbage)


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        ("g", [0, 1, 2, 3]),
        ("g:1", [1]),
        ("g:1-3", [1, 2]),
        ("g:-2", [0, 1]),
        ("g:2-", [2, 3]),
        (":0", [0]),
        ("h", []),
    ],
)
def test_a_rule_takes_partitions_without_the_end_of_its_range(rule, taken):
    accept = get_offsets._rule(rule)

    assert [n for n in range(4) if accept(TopicPartition("g", n))] == taken


def test_an_invalid_rule_is_refused():
    with pytest.raises(ToolError, match="Invalid rule specification: g:x"):
        get_offsets._rule("g:x")
