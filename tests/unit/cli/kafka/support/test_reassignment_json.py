"""Plans in JSON are read and written; errors name the line and the column."""

import pytest

from odradek.cli.failures import ToolError
from odradek.cli.kafka.support.reassignment_json import (
    Replica,
    check_to_execute,
    format_assignment,
    parse_broker_list,
    read_plan,
    read_topics,
)
from odradek.cli.kafka.support.reassignment_throttles import Move, proposed_moves
from odradek.client.admin.partitions import PartitionReassignment
from odradek.model.partition import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "plan.json"
        path.write_text(text)
        return str(path)

    return write


def test_what_is_written_can_be_read(file):
    text = format_assignment({A1: (2, 3), A0: (1, 2)})

    assert text == (
        '{"version":1,"partitions":['
        '{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"a","partition":1,"replicas":[2,3],"log_dirs":["any","any"]}]}'
    )
    assert read_plan(file(text)).targets == [(A0, (1, 2)), (A1, (2, 3))]


def test_a_byte_order_mark_is_no_part_of_the_json(file):
    plan = '{"partitions":[{"topic":"a","partition":0,"replicas":[1]}]}'
    assert read_plan(file("\ufeff" + plan)).targets == [(A0, (1,))]


def test_directories_are_those_of_replicas(file):
    plan = read_plan(
        file(
            '{"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}'
        )
    )

    assert plan.directories == {Replica(A0, 2): "/d"}
    assert str(Replica(A0, 2)) == "a-0-2"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"version": 1, "partitions": [}', "line 1, column 31: Expecting value"),
        ('{\n  "partitions": [],\n}', "line 3, column 1|line 2, column 19"),
        ("[]", r"Expected JSON object, received \[\]"),
        ("[" * 100_000, "nested too deeply|Expecting value"),
        ('{"version": 9, "partitions": []}', "Not supported version field value 9"),
        ("", "The input string shouldn't be empty"),
        ('{"version": "1"}', 'Expected `Integer` value, received "1"'),
        ('{"partitions": 3}', "Expected JSON array, received 3"),
        ('{"partitions": [3]}', "Expected JSON object, received 3"),
        ('{"partitions": [{"topic": "a"}]}', "No such field exists: `partition`"),
        ('{"partitions": [{"topic": "a", "partition": "0"}]}', "Expected `Integer` value"),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": ["1"]}]}',
            'Expected `Integer` value, received "1"',
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": []}]}',
            r"Size of replicas list \[1\] is different from size of log dirs list \[\] .* a-0",
        ),
    ],
)
def test_a_file_that_is_no_plan_is_refused(file, text, complaint):
    with pytest.raises(ToolError, match=complaint):
        read_plan(file(text))


@pytest.mark.parametrize(
    ("partitions", "complaint"),
    [
        ("", "Partition reassignment list cannot be empty"),
        ('{"topic":"a","partition":0,"replicas":[]}', "Partition replica list cannot be empty"),
        (
            '{"topic":"a","partition":0,"replicas":[1]},{"topic":"a","partition":0,"replicas":[2]}',
            "Partition reassignment contains duplicate topic partitions: a-0",
        ),
        ('{"topic":"a","partition":0,"replicas":[1,1]}', "a-0 contains multiple entries for 1"),
    ],
)
def test_a_plan_that_makes_no_sense_is_not_executed(file, partitions, complaint):
    with pytest.raises(ToolError, match=complaint):
        check_to_execute(read_plan(file(f'{{"partitions":[{partitions}]}}')))


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ToolError, match="Unable to read file nowhere"):
        read_plan("nowhere")


def test_topics_and_brokers_are_named_once(file):
    assert read_topics(file('{"topics": [{"topic": "b"}, {"topic": "a"}]}')) == ["b", "a"]
    with pytest.raises(ToolError, match=r"duplicate entries: \[a\]"):
        read_topics(file('{"topics": [{"topic": "a"}, {"topic": "a"}]}'))
    assert parse_broker_list("3,1") == [3, 1]
    with pytest.raises(ToolError, match=r"Broker list contains duplicate entries: \[1\]"):
        parse_broker_list("1,1,2")
    with pytest.raises(ToolError, match='For input string: "x"'):
        parse_broker_list("1,x")


def test_a_move_that_replaces_another_keeps_its_sources():
    under_way = {A0: PartitionReassignment((4, 2, 1), adding=(4,), removing=(1,))}

    moves = proposed_moves(under_way, {A0: (3, 2), A1: (1, 4)}, {A0: (4, 2, 1), A1: (1, 2)})

    assert moves == {
        A0: Move(frozenset({1, 2}), frozenset({3})),
        A1: Move(frozenset({1, 2}), frozenset({4})),
    }
