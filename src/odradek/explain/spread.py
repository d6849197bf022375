"""Says when the records of a topic are on few of its partitions, from the brokers' reports.

A partition is served by one broker, and a broker uses one core for its requests. So the other
brokers, and the other cores of a machine, wait when one partition receives most of the records.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from odradek.explain.replicas import leaders_of
from odradek.model.command import command, flag
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import Caller

RECORDS_MIN: Final = 1_000  # the spread of fewer records says little


def explain_spread(reports: Mapping[int, Mapping[str, Any]], caller: Caller) -> list[Sentence]:
    """A sentence if one partition of the topic has far more records than an even share."""
    led = leaders_of(reports)
    records = {
        index: replica["leo"] - replica["log_start_offset"] for index, (_, replica) in led.items()
    }
    total = sum(records.values())
    if len(led) < 2 or total < RECORDS_MIN:
        return []
    largest = max(records, key=records.__getitem__)
    share = records[largest] / total
    if share <= uneven_from(len(led)):
        return []
    broker, replica = led[largest]
    of_brokers = Counter[int]()
    for index, (leader, _) in led.items():
        of_brokers[leader] += records[index]
    broker_share = of_brokers[broker] / total
    others = f", and of all on broker {broker} {broker_share:.0%}" if len(of_brokers) > 1 else ""
    keys = flag("--keys-topic", replica["topic"])
    uneven = sentence(
        f"{replica['topic']}-{largest} has {share:.0%} of the topic's {total:,} records, an even "
        f"share of {len(led)} partitions is {1 / len(led):.0%}{others}: broker {broker} does that "
        "part of the work alone, with one core; producers name this partition, or few keys have "
        "most records; to see the keys: ",
        command("odradek", "plan", "partitions", *caller.server, *keys),
    )
    return [uneven]


def uneven_from(partitions: int) -> float:
    """The share of one partition above which the records are uneven: twice the even share.

    With two or three partitions it is the middle between the even share and everything.
    """
    return min(2 / partitions, (1 + 1 / partitions) / 2)
