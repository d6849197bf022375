"""The commands that `odradek why` and `odradek doctor` propose to their user.

With `--dir` a broker's process is on this machine and `odradek start 1 --dir D` starts it; with
`--bootstrap-server` it is on a host of its own, and has to be started there.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from odradek.model.clock import WallMs

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
    options: str = ""  # further arguments of `odradek start` and the like: " --dir D"
    local: Mapping[int, str] = field(default_factory=dict)  # broker: running, paused, killed ...
    ends: Mapping[int, str] = field(default_factory=dict)  # broker: why its process ended
    config: str = ""  # the file of client properties with which this cluster was asked

    @property
    def server(self) -> str:
        """The flags that name this cluster in any command, after a blank."""
        where = f" --bootstrap-server {self.bootstrap}" if self.bootstrap else ""
        return f"{where} --command-config {shlex.quote(self.config)}" if self.config else where

    def kafka(self, tool: str, arguments: str) -> str:
        """One of Kafka's tools, for this cluster."""
        return f"{tool}{self.server} {arguments}"

    def odradek(self, verb: str, broker: int) -> str:
        """A command of `odradek` for a broker on this machine."""
        return f"odradek {verb} {broker}{self.options}"

    def bring_back(self, broker: int) -> str:
        """How to restart a broker that does not serve."""
        state = self.local.get(broker)
        if state is None:
            return (
                f"start broker {broker} on its host (odradek server-start server.properties, or "
                "its service)"
            )
        if state == "paused":
            return self.odradek("resume", broker)
        if state in ("running", "starting"):
            return self.odradek("restart", broker)
        return self.odradek("start", broker)

    def bring_all_back(self, ids: Iterable[int]) -> str:
        """How to restart several brokers: a command for each."""
        return "; ".join(self.bring_back(broker) for broker in sorted(ids))

    def process(self, broker: int) -> str:
        """Why a broker's process on this machine does not serve; "" if that is not known."""
        state = _STATES.get(self.local.get(broker, ""), "")
        reason = self.ends.get(broker, "")
        return f"{state}: {reason}" if state and reason else state or reason
