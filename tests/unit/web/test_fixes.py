"""A command of a finding is copied without the words about it."""

import pytest

from odradek.web.fixes import fix_steps


@pytest.mark.parametrize(
    ("fix", "steps"),
    [
        ("odradek start 1", [("", "odradek start 1")]),
        (
            "odradek start 1 --dir D; or, if it stays away: odradek plan drain 1 --dir D",
            [
                ("", "odradek start 1 --dir D"),
                ("or, if it stays away: ", "odradek plan drain 1 --dir D"),
            ],
        ),
        ("raise the throttle; or cancel it: kafka-x --cancel a:1",
         [("raise the throttle", ""), ("or cancel it: ", "kafka-x --cancel a:1")]),
        ("or add replicas with kafka-reassign-partitions",
         [("or add replicas with kafka-reassign-partitions", "")]),
        ("kafka-topics --bootstrap-server h:1", [("", "kafka-topics --bootstrap-server h:1")]),
        ("", []),
    ],
)  # fmt: skip
def test_a_fix_has_steps_of_words_and_commands(fix, steps):
    assert list(fix_steps(fix)) == steps
