"""Followers whose fetches fail, from the brokers' reports: the reason why a replica stays behind.

Pure functions, for `odradek doctor` and `odradek why`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import Caller

NOTHING: Final = ()


class FetchProblem(NamedTuple):
    """Fetches of one follower from one leader that fail."""

    follower: int
    leader: int
    of_all: bool  # of all partitions of the leader: it cannot be reached
    problem: str
    since_ms: int
    is_lasting: bool = True  # False: it has just begun, and may be over when it is read

    def said(self, since: str) -> str:
        """`since` is ` since 10:01:00`."""
        if self.of_all:
            head = f"broker {self.follower} cannot fetch from broker {self.leader}"
        else:
            head = f"fetches of broker {self.follower} from broker {self.leader} fail"
        return f"{head}{since}: {self.problem}"

    def fix(self, caller: Caller) -> Sentence:
        """What to do: neither ends by itself."""
        if self.of_all:
            return sentence(
                f"let broker {self.follower} reach broker {self.leader} (network, firewall, "
                "listener): then it catches up by itself"
            )
        return sentence(
            caller.restart(self.follower),
            ": it compares its logs with the coordination store then; if this does not help, see "
            f"the log of broker {self.follower}",
        )


def fetch_problem(
    entries: Iterable[Mapping[str, Any]], partition: TopicPartition, *, follower: int, leader: int
) -> FetchProblem | None:
    """The problem of one replica, from its broker's entries (`fetch_problems` of the report)."""
    for entry in entries:
        of_all = entry["topic"] is None
        if entry["leader"] == leader and (
            of_all or (entry["topic"], entry["partition"]) == partition
        ):
            return FetchProblem(
                follower,
                leader,
                of_all,
                entry["problem"],
                entry["since_ms"],
                entry.get("is_lasting", True),  # older brokers report only what lasts
            )
    return None


Problems = tuple[FetchProblem, ...]


def by_problem(
    reports: Mapping[int, Mapping[str, Any]],
    leaders: Mapping[TopicPartition, int],
    followers: Sequence[int],
) -> dict[Problems, list[TopicPartition]]:
    """Partitions by what keeps these followers from fetching them; without anything, too."""
    found: dict[Problems, list[TopicPartition]] = defaultdict(list)
    begun: dict[FetchProblem, FetchProblem] = {}
    for partition, leader in leaders.items():
        problems = []
        for follower in followers:
            entries = reports.get(follower, {}).get("fetch_problems", ())
            problem = fetch_problem(entries, partition, follower=follower, leader=leader)
            if problem is not None:
                # Partitions with the same problem are one finding, since the first of them.
                problems.append(begun.setdefault(problem._replace(since_ms=0), problem))
        found[tuple(problems)].append(partition)
    return found
