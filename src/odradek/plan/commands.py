"""The commands that `odradek why` and `odradek doctor` propose to their user.

With `--dir` a broker's process is on this machine and `odradek start 1 --dir D` starts it; with
`--bootstrap-server` it is on a host of its own, and has to be started there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from odradek.model.clock import WallMs
from odradek.model.command import Command, about, command, flag
from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence, Words, joined, sentence

SHOWN: Final = 3  # names listed before "and N more"
_STATES: Final = {
    "paused": "its process is paused (SIGSTOP)",
    "stopped": "it was stopped",
    "killed": "its process was killed",
    "crashed": "its process has ended by itself",
    "starting": "its process is starting",
}


def some(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c and 7 more`."""
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def brokers(ids: Iterable[int]) -> str:
    """`broker 1`, `brokers 1, 2 and 3`: all of them, because ids are short."""
    names = [str(id_) for id_ in sorted(ids)]
    if len(names) < 2:
        return f"broker {''.join(names)}"
    return f"brokers {', '.join(names[:-1])} and {names[-1]}"


def clock(at_ms: int, wall_ms: WallMs) -> str:
    """A moment in local time, without the day if that is today."""
    at = datetime.fromtimestamp(at_ms / 1000).astimezone()
    today = datetime.fromtimestamp(wall_ms / 1000).astimezone().date()
    return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class Caller:
    """How the user named the cluster, and the state of its processes on this machine."""

    bootstrap: str = ""
    options: tuple[str, ...] = ()  # further words of `odradek start` and the like: --dir D
    local: Mapping[int, str] = field(default_factory=dict)  # broker: running, paused, killed ...
    ends: Mapping[int, str] = field(default_factory=dict)  # broker: why its process ended
    config: str = ""  # the file of client properties with which this cluster was asked

    @property
    def server(self) -> tuple[str, ...]:
        """The words that name this cluster in any command."""
        where = flag("--bootstrap-server", self.bootstrap) if self.bootstrap else ()
        return (*where, *flag("--command-config", self.config)) if self.config else where

    def kafka(self, tool: str, *words: str) -> Command:
        """One of Kafka's tools, for this cluster."""
        return command(tool, *self.server, *words)

    def set_option(self, kind: str, name: str, option: str) -> Command:
        """The call of kafka-configs that sets `name=value` of a topic, a broker, a client."""
        entity = ("--entity-type", kind, *flag("--entity-name", name))
        return self.kafka("kafka-configs", "--alter", *entity, *flag("--add-config", option))

    def abort(self, partition: TopicPartition, start_offset: int) -> Command:
        """The call of kafka-transactions that aborts a transaction which no coordinator has."""
        return self.kafka(
            "kafka-transactions",
            *("abort", *flag("--topic", partition.topic)),
            *flag("--partition", partition.partition),
            *flag("--start-offset", start_offset),
        )

    def odradek(self, verb: str, broker: int) -> Command:
        """A command of `odradek` for a broker on this machine."""
        return command("odradek", verb, str(broker), *self.options)

    def why(self, kind: str, name: str, *words: str) -> Command:
        """`odradek why`, for this cluster."""
        where = self.options or self.server
        return command("odradek", "why", kind, *about(name, (*words, *where)))

    def restart(self, broker: int) -> Words:
        """How to restart a broker that serves."""
        if broker in self.local:
            return self.odradek("restart", broker)
        return f"restart broker {broker}"

    def bring_back(self, broker: int) -> Sentence:
        """How to restart a broker that does not serve."""
        state = self.local.get(broker)
        if state is None:
            return sentence(
                f"start broker {broker} on its host (",
                command("odradek", "server-start", "server.properties"),
                ", or its service)",
            )
        if state == "paused":
            return sentence(self.odradek("resume", broker))
        if state in ("running", "starting"):
            return sentence(self.odradek("restart", broker))
        return sentence(self.odradek("start", broker))

    def bring_all_back(self, ids: Iterable[int]) -> Sentence:
        """How to restart several brokers: a command for each."""
        return joined(self.bring_back(broker) for broker in sorted(ids))

    def process(self, broker: int) -> str:
        """Why a broker's process on this machine does not serve; "" if that is not known."""
        state = _STATES.get(self.local.get(broker, ""), "")
        reason = self.ends.get(broker, "")
        return f"{state}: {reason}" if state and reason else state or reason
