"""Writes `configuration.md` from the option tables: `python docs/generate_configuration.py`.

A test compares the page with the tables, so that it cannot grow old.
"""

import pathlib
from collections.abc import Iterable, Iterator

from odradek.config import (
    table_cluster,
    table_coordination,
    table_extra,
    table_inert,
    table_security,
    table_storage,
)
from odradek.config.option import INT_MAX, LONG_MAX, Option, Scope
from odradek.config.topic import SYNONYMS, TOPIC_OPTIONS

PAGE = pathlib.Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

(Made from the option tables by `docs/generate_configuration.py`; do not edit.)

A broker reads `server.properties` in the format of Java's properties. The names are Apache
Kafka's, and so are the defaults, but for one: **without `listeners` a broker here listens on the
loopback interface alone**. Names that are not known are kept and reported at start, never fatal.

*Changes* says how an option may be changed on a running broker with `kafka-configs`:

- *for one*: for one broker (`--entity-type brokers --entity-name 1`);
- *for all*: for one broker, or for all as their default (`--entity-default`);
- nothing: only in the file, at the next start.

The first of these that is set counts: for this broker, for all, the file, the default. Of times
that have several units the finest counts. `listener.name.<listener>.<option>` is an option for
one listener alone.

An option marked † is read, checked and shown, and has no effect on this broker. One that is set
to something else than its default is named at start.
"""

CHAPTERS = (
    ("The broker and its listeners", table_cluster.OPTIONS),
    ("Logs and replication", table_storage.OPTIONS),
    ("Controller, groups, transactions", table_coordination.OPTIONS),
    ("Security and quotas", table_security.OPTIONS),
    ("Options that are not in Kafka's table of a broker's", table_extra.OPTIONS),
)
CHANGES = {Scope.READ_ONLY: "", Scope.PER_BROKER: "for one", Scope.CLUSTER_WIDE: "for all"}
NUMBERS = {str(INT_MAX): "2³¹ - 1", str(LONG_MAX): "2⁶³ - 1", "1.7976931348623157E308": "no limit"}


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    for title, options in CHAPTERS:
        yield f"## {title}\n"
        yield "| option | type | default | values | changes | |"
        yield "|---|---|---|---|---|---|"
        for option in options:
            yield _row(option, CHANGES[option.scope])
        yield ""
    yield "## Topics\n"
    yield "What a topic does not set itself it has from its broker's option, the first that is set."
    yield "\n| option | type | default | values | the broker's | |"
    yield "|---|---|---|---|---|---|"
    for name, option in TOPIC_OPTIONS.items():
        behind = ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS.get(name, ()))
        yield _row(option, behind)
    yield "\n## Options of Apache Kafka 3.9 that mean nothing here\n"
    yield from _names(table_inert.OPTIONS)


def _row(option: Option, where: str) -> str:
    default = option.render(option.default)
    shown = "" if default is None else NUMBERS.get(default, f"`{default}`" if default else "empty")
    mark = "" if option.effect else " †"
    cells = (
        f"`{option.name}`{mark}",
        option.type.name.lower(),
        shown,
        option.rule.sentence,
        where,
        option.doc,
    )
    return f"| {' | '.join(cells)} |"


def _names(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        yield f"- `{option.name}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
