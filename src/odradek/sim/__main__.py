"""`python -m odradek.sim`: run seeds, and report failures with the command that repeats them.

\b
    --seed 7                 run one seed; --trace prints every event
    --seeds 1..500           search many seeds
    --jobs 4                 ... with four processes
    --keep FILE              ... and append a line with the result to FILE
    --seed 7 --shrink        leave out faults as long as the seed still fails

An interrupted search prints what it has done, and the option that continues it.
The exit code is 1 if a check failed.
"""  # noqa: D301 - click keeps the lines after a backspace

import signal
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click

from odradek.sim.clients.transactions import TransactionOptions
from odradek.sim.run.faults import Kind
from odradek.sim.run.report import Totals, report
from odradek.sim.run.search import search
from odradek.sim.run.shrink import shrink
from odradek.sim.run.simulation import Options, Outcome, simulate
from odradek.sim.traits import Trait


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


def _traits(
    context: click.Context, option: click.Parameter, text: str | None
) -> frozenset[Trait] | None:
    del context, option
    if text is None:
        return None
    try:
        return frozenset(Trait[word] for word in text.upper().split(",") if word != "NONE")
    except KeyError as error:
        names = ", ".join(trait.name for trait in Trait)
        raise click.BadParameter(f"{error.args[0]}: must be `none` or of {names}") from None


@click.command(help=__doc__)
@click.option("--seed", type=click.IntRange(min=0), help="Run one seed.")
@click.option("--seeds", callback=_seeds, metavar="A..B", help="Run all seeds from A to B.")
@click.option(
    "--minutes", type=float, default=1.0, show_default=True, help="Simulated time with faults."
)
@click.option("--brokers", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--only", callback=_numbers, metavar="N,N,...", help="Run only these faults of the schedule."
)
@click.option(
    "--transactions",
    type=click.IntRange(1, 2),
    help="Run transactions of this version instead of the default clients.",
)
@click.option(
    "--groups", is_flag=True, help="Run members of a group instead of the default clients."
)
@click.option(
    "--quotas", is_flag=True, help="Run clients with quotas instead of the default clients."
)
@click.option(
    "--reassign/--no-reassign",
    "reassigns",
    default=True,
    show_default=True,
    help="With several brokers, reassign partitions all the time.",
)
@click.option(
    "--scarce",
    is_flag=True,
    help="Brokers have few descriptors, and single operations of their disks fail.",
)
@click.option(
    "--durable", is_flag=True, help="Brokers flush before they acknowledge, and lose power."
)
@click.option(
    "--hold-metadata",
    "holds_metadata",
    is_flag=True,
    help="Metadata responses wait for a new leader that is expected.",
)
@click.option(
    "--kinds", callback=_kinds, metavar="KIND,...", help="Use only faults of these kinds."
)
@click.option(
    "--traits",
    callback=_traits,
    metavar="TRAIT,...",
    help="The traits of each seed, instead of random ones; `none` for no traits.",
)
@click.option("--shrink", "smaller", is_flag=True, help="Find fewer faults that still fail.")
@click.option("--trace", is_flag=True, help="Print everything that happened.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="The number of processes.")
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append a line of JSON with the result to this file.",
)
def main(  # noqa: PLR0913, PLR0917 - one for each option
    seed: int | None,
    seeds: range | None,
    minutes: float,
    brokers: int,
    only: frozenset[int] | None,
    transactions: int | None,
    groups: bool,
    quotas: bool,
    reassigns: bool,
    scarce: bool,
    durable: bool,
    holds_metadata: bool,
    kinds: tuple[Kind, ...] | None,
    traits: frozenset[Trait] | None,
    smaller: bool,
    trace: bool,
    jobs: int,
    keep: Path | None,
) -> None:
    if (seed is None) == (seeds is None):
        raise click.UsageError("set --seed N or --seeds A..B")
    if quotas and (groups or transactions is not None):
        raise click.UsageError("--quotas cannot be combined with --groups or --transactions")
    options = Options(
        seconds=minutes * 60,
        brokers=brokers,
        only=only,
        kinds=kinds,
        transactions=None if transactions is None else TransactionOptions(version=transactions),
        groups=groups,
        quotas=quotas,
        reassigns=reassigns and brokers > 1 and transactions is None and not (groups or quotas),
        scarce=scarce,
        durable=durable,
        holds_metadata=holds_metadata,
        traits=traits,
    )
    numbers = seeds if seeds is not None else range(seed or 0, (seed or 0) + 1)
    totals = Totals(options)
    outcomes: Iterable[Outcome] = search(numbers, options, jobs=jobs)
    if trace:
        outcomes = (simulate(number, options, keep_trace=True) for number in numbers)
    try:
        for outcome in outcomes:
            totals.add(outcome)
            _show(outcome, is_alone=len(numbers) == 1, smaller=smaller)
    except KeyboardInterrupt:
        done = numbers[: totals.seeds]
        click.echo(f"interrupted; --seeds {done.stop}..{numbers[-1]} continues")
    click.echo(str(totals))
    if keep is not None and totals.seeds:
        with keep.open("a", encoding="utf-8") as file:
            file.write(totals.as_json(time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}") + "\n")
    sys.exit(1 if totals.failed else 0)


def _show(outcome: Outcome, *, is_alone: bool, smaller: bool) -> None:
    for line in outcome.trace:
        click.echo(line)
    if outcome.violations and smaller:
        outcome = shrink(outcome, log=click.echo)
    if outcome.violations or is_alone:
        click.echo(report(outcome))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
