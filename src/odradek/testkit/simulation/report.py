"""What a user reads of a failing seed."""

from typing import Final

from odradek.testkit.simulation.outcome import Event, RunOptions, RunOutcome
from odradek.testkit.simulation.runs.search import SeedSearch

_AROUND_S: Final = 1.5
_EVENTS_MAX: Final = 30


def words_of(options: RunOptions) -> str:
    """A run for `--kafka-seed`: 17, or 17:3,5 with the faults 3 and 5 alone.

    17:3x1 has one instance of each program besides.
    """
    words = str(options.seed)
    if options.only is not None:
        words += ":" + ",".join(map(str, sorted(options.only)))
    if options.instances_max is not None:
        words += ("" if options.only is not None else ":all") + f"x{options.instances_max}"
    return words


def options_of(words: str) -> RunOptions:
    """The inverse of `words_of`.

    Raises:
        ValueError: the words are not a seed.
    """
    seed, has_only, rest = words.partition(":")
    faults, has_most, most = rest.partition("x")
    only = None
    if has_only and faults != "all":
        only = frozenset(int(number) for number in faults.split(",") if number)
    return RunOptions(int(seed), only, int(most) if has_most else None)


def failure_text(found: SeedSearch, *, name: str, repeat: str) -> str:
    """The report of a search that has failed. `repeat`: the command, without the seed."""
    if found.unlike:
        return (
            f"{name}: two runs of one seed differ, so that nothing found could be repeated.\n"
            f"The first difference: {found.unlike}\n"
            f"The program asks something that is not simulated: docs/simulation.md, 'Repeatable'."
        )
    first, small = found.first, found.smallest
    if first is None or small is None:
        return f"{name}: no seed fails"
    if first.error:
        return first.error
    tried = f"({found.seeds} seeds tried in {found.seconds:.0f} s)"
    lines = [
        f"{name} fails with seed {first.options.seed} {tried}",
        "",
        *(f"    {failure}" for failure in small.failures),
        "",
        _faults_title(first, small),
        *(f"    [{incident.number}] {incident}" for incident in small.incidents),
        "",
        *_around(small),
        f"Again:  {repeat} --kafka-seed {words_of(small.options)}",
    ]
    if words_of(small.options) != str(first.options.seed):
        lines.append(f"With all faults:  {repeat} --kafka-seed {first.options.seed}")
    return "\n".join(lines)


def _faults_title(first: RunOutcome, small: RunOutcome) -> str:
    if not small.incidents:
        return "No fault is needed for it."
    if len(small.incidents) == len(first.incidents):
        return f"The faults ({len(small.incidents)}):"
    are = "is" if len(small.incidents) == 1 else "are"
    return f"Of {len(first.incidents)} faults, {len(small.incidents)} {are} needed:"


def _around(outcome: RunOutcome) -> list[str]:
    """What happened around the faults; the last of it if there are many."""
    near = [event for event in outcome.events if _is_near(event, outcome)]
    if not near:
        return []
    start_s = outcome.events[0].at_s
    shown = near[-_EVENTS_MAX:]
    title = f"Around them ({len(shown)} of {len(near)} events):"
    width = max(len(event.who) for event in shown)
    return [
        title,
        *(f"    {e.at_s - start_s:8.3f} s  {e.who:<{width}}  {e.what}" for e in shown),
        "",
    ]


def _is_near(event: Event, outcome: RunOutcome) -> bool:
    start_s = outcome.events[0].at_s
    return any(
        -_AROUND_S <= event.at_s - start_s - incident.at_s <= incident.lasts_s + _AROUND_S
        for incident in outcome.incidents
    )
