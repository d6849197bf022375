"""`python -m odradek.sim`: run seeds, and say what they found and how to see it again.

    --seed 7                 one seed; --trace prints everything that happened
    --seeds 1..500           a search; failing seeds are named with the command that repeats them
    --seed 7 --shrink        leave out faults as long as the seed still fails

The exit code is 1 if anything was violated.
"""

import sys
import time
from collections import Counter

import click

from odradek.sim.faults import Kind
from odradek.sim.shrink import shrink
from odradek.sim.simulation import Options, Outcome, simulate
from odradek.sim.transactions import TransactionOptions


def _seeds(context: click.Context, option: click.Parameter, text: str | None) -> range | None:
    del context, option
    if text is None:
        return None
    first, _, last = text.partition("..")
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last):
        return range(int(first), int(last) + 1)
    raise click.BadParameter(f"{text!r}: must be A..B with numbers A <= B")


def _numbers(
    context: click.Context, option: click.Parameter, text: str | None
) -> frozenset[int] | None:
    del context, option
    if text is None:
        return None
    words = [] if text == "none" else text.split(",")
    if all(word.isdecimal() for word in words):
        return frozenset(map(int, words))
    raise click.BadParameter(f"{text!r}: must be `none` or numbers with commas")


def _kinds(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[Kind, ...] | None:
    del context, option
    if text is None:
        return None
    try:
        return tuple(Kind[word] for word in text.upper().split(","))
    except KeyError as error:
        names = ", ".join(kind.name for kind in Kind)
        raise click.BadParameter(f"{error.args[0]}: must be one of {names}") from None


@click.command(help=__doc__)
@click.option("--seed", type=click.IntRange(min=0), help="One seed.")
@click.option("--seeds", callback=_seeds, metavar="A..B", help="All seeds from A to B.")
@click.option("--minutes", type=float, default=1.0, show_default=True, help="Time with faults.")
@click.option("--brokers", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--only", callback=_numbers, metavar="N,N,...", help="Play these faults of the schedule only."
)
@click.option(
    "--transactions",
    type=click.IntRange(1, 2),
    help="Play transactions of this version instead of the usual clients.",
)
@click.option("--groups", is_flag=True, help="Play members of a group instead of them.")
@click.option("--durable", is_flag=True, help="Acknowledge what is on disk, and lose power.")
@click.option("--kinds", callback=_kinds, metavar="KIND,...", help="Draw faults of these kinds.")
@click.option("--shrink", "smaller", is_flag=True, help="Find fewer faults that still fail.")
@click.option("--trace", is_flag=True, help="Print everything that happened.")
def main(  # noqa: PLR0913, PLR0917 - one for each option
    seed: int | None,
    seeds: range | None,
    minutes: float,
    brokers: int,
    only: frozenset[int] | None,
    transactions: int | None,
    groups: bool,
    durable: bool,
    kinds: tuple[Kind, ...] | None,
    smaller: bool,
    trace: bool,
) -> None:
    """Run."""
    if (seed is None) == (seeds is None):
        raise click.UsageError("say --seed N or --seeds A..B")
    options = Options(
        seconds=minutes * 60,
        brokers=brokers,
        only=only,
        kinds=kinds,
        transactions=None if transactions is None else TransactionOptions(version=transactions),
        groups=groups,
        durable=durable,
    )
    wanted = seeds if seeds is not None else range(seed or 0, (seed or 0) + 1)
    began_s = time.process_time()
    totals: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    for number in wanted:
        outcome = simulate(number, options, keep_trace=trace)
        for line in outcome.trace:
            click.echo(line)
        if outcome.violations and smaller:
            outcome = shrink(outcome, said=click.echo)
        if outcome.violations or len(wanted) == 1:
            click.echo(report(outcome))
        _count(totals, outcome)
        happened += outcome.happened
    if happened and len(wanted) > 1:
        click.echo(_told(happened))
    click.echo(summary(totals, time.process_time() - began_s))
    sys.exit(1 if totals["failed"] else 0)


def report(outcome: Outcome) -> str:
    """What a seed found, and how to see it again."""
    head = (
        f"seed {outcome.seed}: {'FAILED' if outcome.violations else 'ok'}, "
        f"digest {outcome.digest}: {outcome.simulated_s:.0f} s, {outcome.lives} lives, "
        f"{outcome.acknowledged} of {outcome.sent} records acknowledged, {outcome.read} read"
    )
    lines = [head]
    if outcome.options.brokers > 1:
        tally = outcome.tally
        counts = "counts" if outcome.counts else "does not count: too little has happened"
        lines.append(
            f"  {tally.elections} elections, {tally.truncations} truncations, "
            f"{tally.isr_changes} ISR changes, {tally.controllers} controllers: {counts}"
        )
    if outcome.happened:
        lines.append(f"  {_told(outcome.happened)}")
    lines += [f"  fault {fault}" for fault in outcome.schedule]
    lines += [f"  VIOLATED {violation}" for violation in outcome.violations]
    if outcome.violations:
        lines.append(f"  again: {outcome.replay}")
    return "\n".join(lines)


def _told(happened: Counter[str]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in sorted(happened.items()))


def summary(totals: Counter[str], cpu_s: float) -> str:
    """All seeds in a line."""
    events = ""
    if totals["elections"]:
        events = (
            f"{totals['counts']} count; {totals['elections']} elections, "
            f"{totals['truncations']} truncations, {totals['isr_changes']} ISR changes, "
            f"{totals['controllers']} controllers; "
        )
    return (
        f"{totals['seeds']} seeds, {totals['failed']} failed; {events}{totals['faults']} faults in "
        f"{totals['simulated_s'] / 60:.0f} simulated minutes, "
        f"{totals['simulated_s'] / max(cpu_s, 0.01):.0f} simulated seconds for each of CPU"
    )


def _count(totals: Counter[str], outcome: Outcome) -> None:
    totals["seeds"] += 1
    totals["failed"] += bool(outcome.violations)
    totals["faults"] += outcome.faults
    totals["simulated_s"] += int(outcome.simulated_s)
    if outcome.options.brokers > 1:
        totals["counts"] += outcome.counts
        totals["elections"] += outcome.tally.elections
        totals["truncations"] += outcome.tally.truncations
        totals["isr_changes"] += outcome.tally.isr_changes
        totals["controllers"] += outcome.tally.controllers


if __name__ == "__main__":
    main()
