"""Options of former Kafkas: each names its successor, which exists."""

import re

import pytest

from odradek.cli.near_names import check_broker_options
from odradek.config.broker import find
from odradek.config.former import FORMER_OPTIONS, former_option
from odradek.config.option import InvalidConfigError
from odradek.config.topic import TOPIC_OPTIONS


def test_former_options_are_no_options_and_their_successors_are():
    assert [name for name in FORMER_OPTIONS if find(name) is not None] == []
    for successor in FORMER_OPTIONS.values():
        of_topic = re.fullmatch(r"(\S+) of the topic", successor)
        known = of_topic[1] in TOPIC_OPTIONS if of_topic else find(successor) is not None
        assert known or successor == "" or successor.startswith("kafka-configs --"), successor


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("port", "use listeners"),
        ("advertised.host.name", "use advertised.listeners"),
        ("replica.lag.max.messages", "use replica.lag.time.max.ms"),
        (
            "quota.producer.default",
            (
                "use kafka-configs --entity-type clients --entity-default --add-config "
                "producer_byte_rate=..."
            ),
        ),
        ("controller.message.queue.size", "nothing has taken its place"),
        ("num.partitions", None),
        ("num.partitons", None),
    ],
)
def test_a_former_option_says_what_to_use(name, advice):
    assert former_option(name) == advice


def test_a_former_option_of_a_command_is_refused_with_its_successor():
    with pytest.raises(InvalidConfigError, match=r"host\.name: .*; use listeners"):
        check_broker_options({"host.name": "h"})
