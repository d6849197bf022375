"""Writes `configuration.md` from the option tables: `python docs/generate_configuration.py`.

A test fails if the page differs from the tables.
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

(Generated from the option tables by `docs/generate_configuration.py`; do not edit.)

## How do I set an option?

A broker reads `server.properties` in the format of Java's properties. Names and defaults are Apache
Kafka's, with one exception: **without `listeners` a broker listens on the loopback interface
only**. Unknown options are kept and logged at the start; the broker starts all the same.

The column *changes* shows how `kafka-configs` may change an option on a running broker:

- *for one*: for one broker (`--entity-type brokers --entity-name 1`);
- *for all*: for one broker, or for all as their default (`--entity-default`);
- empty: only in the file, which takes effect at the next start.

If an option is set in several places, the first of these counts: for this broker, for all, the
file, the default. If a time is set in several units, the finest unit counts.
`listener.name.<listener>.<option>` sets an option for one listener only.

An option marked † is read, checked and shown, but has no effect on an Odradek broker. If its value
differs from its default, the broker logs that at its start.

## How do I keep a password out of the file?

Config providers (KIP-421) put values into the options of brokers, tools and clients:

```properties
config.providers=file,dir,env
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.file.param.allowed.paths=/etc/kafka/secrets
config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.env.param.allowlist.pattern=KAFKA_.*
ssl.keystore.password=${file:/etc/kafka/secrets/tls.properties:password}
ssl.truststore.certificates=${dir:/etc/kafka/certificates:ca.pem}
broker.rack=${env:KAFKA_RACK}
```

`${file:FILE:KEY}` is a property of a properties file, `${dir:DIRECTORY:NAME}` the text of a file,
`${env:NAME}` an environment variable. They are read once, at the start. If one does not exist or is
not allowed, Apache Kafka leaves the variable as it is, and the password is `${file:...}`; ours says
what is wrong, and does not start. A variable of a provider that `config.providers` does not name
stays as it is; a broker reports that. Options that `kafka-configs` stores are not searched for
variables.
"""

CHAPTERS = (
    ("The broker and its listeners", table_cluster.OPTIONS),
    ("Logs and replication", table_storage.OPTIONS),
    ("Controller, groups, transactions", table_coordination.OPTIONS),
    ("Security and quotas", table_security.OPTIONS),
    ("Other options", table_extra.OPTIONS),
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
        yield "| option | type | default | values | changes | meaning |"
        yield "|---|---|---|---|---|---|"
        for option in options:
            yield _row(option, CHANGES[option.scope])
        yield ""
    yield "## Which options does a topic have?\n"
    yield "A topic that does not set an option inherits it from the broker's option; if several are"
    yield "named, from the first one that is set."
    yield "\n| option | type | default | values | broker's option | meaning |"
    yield "|---|---|---|---|---|---|"
    for name, option in TOPIC_OPTIONS.items():
        behind = ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS.get(name, ()))
        yield _row(option, behind)
    yield "\n## Which options of Apache Kafka 3.9 have no effect?\n"
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
