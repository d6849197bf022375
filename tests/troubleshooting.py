"""docs/troubleshooting.md: the outputs of `odradek doctor` and `odradek why` about problems.

With WRITE_TROUBLESHOOTING=1 in the environment the blocks of the page are written from the output.
"""

import os
import pathlib
import re
from collections.abc import Iterable, Sequence

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "troubleshooting.md"
BLOCK = re.compile(r"(## (?P<title>[^\n]+)\n.*?```text\n)(?P<said>.*?)(```\n)", re.DOTALL)
CUT_OFF = "A broker is cut off from ZooKeeper"
SILENT = "ZooKeeper does not answer"
ON_ZOOKEEPER = {CUT_OFF, SILENT}
_CHANGES: Sequence[tuple[str, str]] = (
    (r"\b\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d\b", "10:00:00"),
    (r"\b\d\d:\d\d:\d\d\b", "10:00:00"),
    (r"127\.0\.0\.1:1\b", "localhost:9999"),
    (r"0\.0\.0\.0:\d+", "0.0.0.0:9092"),
    (r"127\.0\.0\.1:\d+(?:,127\.0\.0\.1:\d+)*", "localhost:9092"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"in \d+ s\b", "in 200 s"),
    (r"(?<=127\.0\.0\.1  )(?:now|\d+ s ago)\s+none", "now           none"),
    # Which file met the failure first is not the same each time.
    (r"/var/lib/odradek/a/[^:\s]+: No such", "/var/lib/odradek/a: No such"),
    (r"filling-0/[^:\s]+: File", "filling-0/00000000000000000000.log: File"),
    (r"replicas there: \d+", "replicas there: 40"),
    (r"coordinator broker \d", "coordinator broker 1"),
    (r"is registered since 10:00:00", "is registered"),
    (r"its disk is \d+ % full, above 0 %", "its disk is 95 % full, above 90 %"),
    (r"[\d.]+ of [\d.]+ GiB are left", "5.0 of 100.0 GiB are left"),
    (r"transaction of producer \d+ is", "transaction of producer 1000 is"),
    (r"[\d.]+ of 2\.9 MiB", "1.0 of 2.9 MiB"),
    (r"refused \d+ connections?", "refused 10 connections"),
    (r"now \d+ of the \d+ connections", "now 2 of the 50 connections"),
    (r"most are of 127\.0\.0\.1 \(\d+\)", "most are of 127.0.0.1 (2)"),
    (r"refused it (?:once|\d+ times)", "refused it 10 times"),
    (r"broker \d found at", "broker 0 found at"),
    (r"counter at \d+ already, and has it at \d+", "counter at 9 already, and has it at 7"),
    (
        r"(?:once at|(?:once|\d+ times) since 10:00:00, the last time at) 10:00:00",
        "10 times since 10:00:00, the last time at 10:00:00",
    ),
    (r"in all (for )?[\d.]+ (?:s|min \d+ s|min)", r"in all \g<1>30 s"),
    (r"broker \d answered", "broker 1 answered"),
    (r"(?<=producer id )\d+, epoch \d+", "1000, epoch 2"),
    # Whether the high watermark was stored before the broker was killed is not the same each time.
    (r"^warning: cut", "note: cut"),
    (
        r"those below the high watermark \d+ were committed",
        "no record that is known to be committed is among them",
    ),
    (r"changed \d+ times since", "changed 4 times since"),
    (r"^(warning: controller: )\d+", r"\g<1>5"),
    (r"\((?:broker \d (?:once|\d+ times)(?:, )?)+\)", "(broker 0 2 times, broker 2 3 times)"),
)


def check(title: str, said: Iterable[object], home: pathlib.Path) -> None:
    """The page shows what was said about a problem."""
    printed = "\n".join(as_printed(each, home) for each in said) + "\n"
    if os.environ.get("WRITE_TROUBLESHOOTING"):
        write(title, printed)
    assert shown()[title] == printed


def as_printed(text: object, home: pathlib.Path) -> str:
    """A text in which everything that differs from run to run is replaced by an example."""
    printed = str(text).replace(f"{home}/D", "data").replace(str(home), "/var/lib/odradek")
    for pattern, example in _CHANGES:
        printed = re.sub(pattern, example, printed, flags=re.MULTILINE)
    return printed


def shown() -> dict[str, str]:
    """The blocks of the page for each problem."""
    return {block["title"]: block["said"] for block in BLOCK.finditer(PAGE.read_text())}


def write(title: str, printed: str) -> None:
    text = PAGE.read_text()
    PAGE.write_text(
        BLOCK.sub(lambda b: b[1] + printed + b[4] if b["title"] == title else b[0], text)
    )
