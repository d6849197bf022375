"""The results of seeds, as text and as JSON.

A seed of several brokers counts if enough has happened in it (`Outcome.shortfalls`): seeds without
elections or truncations prove nothing.
"""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.sim.checks.coverage import all_pairs
from odradek.sim.run.simulation import Options, Outcome


@dataclass(slots=True)
class Totals:
    """All seeds of a search."""

    options: Options
    first: int | None = None
    last: int | None = None
    seeds: int = 0
    counted: int = 0
    failed: list[int] = field(default_factory=list)
    sums: Counter[str] = field(default_factory=Counter)
    shortfalls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)  # by kind
    happened: Counter[str] = field(default_factory=Counter)  # what a kind of run is for
    pairs: Counter[str] = field(default_factory=Counter)  # of event and state
    simulated_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.first = outcome.seed if self.first is None else self.first
        self.last = outcome.seed
        self.seeds += 1
        self.counted += outcome.counts
        if outcome.violations:
            self.failed.append(outcome.seed)
        self.shortfalls.update(outcome.shortfalls)
        self.faults.update(outcome.kinds_played)
        self.happened.update(outcome.happened)
        self.pairs.update(outcome.pairs)
        self.simulated_s += outcome.simulated_s
        self.cpu_s += outcome.cpu_s
        tally = outcome.tally
        self.sums.update(
            faults=outcome.faults,
            starts=outcome.starts,
            acknowledged=outcome.acknowledged,
            read=outcome.read,
            committed=outcome.committed,
            commits=outcome.commits,
            elections=tally.elections,
            truncations=tally.truncations,
            isr_changes=tally.isr_changes,
            controllers=tally.controllers,
            reassignments=tally.reassignments,
        )

    def __str__(self) -> str:
        sums = self.sums
        parts = [f"{self.seeds} seeds, {len(self.failed)} failed"]
        if self.options.brokers > 1:
            parts[0] += f", {self.counted} count"
            if self.shortfalls:
                parts.append(_list(self.shortfalls))
            parts.append(
                f"{sums['elections']} elections, {sums['truncations']} truncations, "
                f"{sums['isr_changes']} ISR changes, {sums['controllers']} controllers, "
                f"{sums['reassignments']} reassignments"
            )
        if self.happened:
            parts.append(_list(self.happened))
        parts.append(f"{len(self.pairs)} of {len(all_pairs())} pairs of event and state")
        parts.append(
            f"{sums['acknowledged']} records acknowledged, {sums['committed']} transactions "
            f"committed, {sums['commits']} commits of members, {sums['faults']} faults in "
            f"{self.simulated_s / 60:.0f} simulated minutes, {self.cpu_s:.0f} s of CPU"
        )
        return "; ".join(parts)

    def as_json(self, *, time: str) -> str:
        """The same as a line for a file of results; `time` is when it was done."""
        words: dict[str, Any] = {
            "time": time,
            "commit": commit(),
            "options": self.options.words,
            "first": self.first,
            "last": self.last,
            "seeds": self.seeds,
            "counted": self.counted,
            "failed": self.failed,
            "did_not_count": dict(self.shortfalls),
            **self.sums,
            **({"happened": dict(sorted(self.happened.items()))} if self.happened else {}),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "pairs": len(self.pairs),
            "pairs_never_met": sorted(all_pairs() - self.pairs.keys()),
            "simulated_s": round(self.simulated_s),
            "cpu_s": round(self.cpu_s),
        }
        return json.dumps(words)


def report(outcome: Outcome) -> str:
    """What a seed found, and how to see it again."""
    head = (
        f"seed {outcome.seed}: {'FAILED' if outcome.violations else 'ok'}, "
        f"digest {outcome.digest}: {outcome.simulated_s:.0f} s, {outcome.starts} broker starts, "
        f"{outcome.acknowledged} of {outcome.sent} records acknowledged, {outcome.read} read"
    )
    lines = [head]
    if outcome.options.brokers > 1:
        tally = outcome.tally
        counts = ", ".join(outcome.shortfalls)
        lines.append(
            f"  {tally.elections} elections, {tally.truncations} truncations, "
            f"{tally.isr_changes} ISR changes, {tally.controllers} controllers, "
            f"{tally.reassignments} reassignments: "
            f"{f'does not count, {counts}' if counts else 'counts'}"
        )
    if outcome.happened:
        lines.append(f"  {_list(outcome.happened)}")
    lines += [f"  fault {fault}" for fault in outcome.schedule]
    lines += [f"  VIOLATED {violation}" for violation in outcome.violations]
    if outcome.violations:
        lines.append(f"  again: {outcome.replay}")
    return "\n".join(lines)


def commit() -> str:
    """Which state of the code this is."""
    here = str(Path(__file__).parent)
    try:
        done = subprocess.run(
            ["git", "-C", here, "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # installed, not checked out
    return done.stdout.strip()


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common())
