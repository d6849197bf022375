"""Whether a command has printed what a page shows: pure.

What differs from run to run is compared by its kind. The kinds are the whole of what is not
compared exactly; besides them, the width of a gap between columns is not compared.

    address    127.0.0.1:27105, localhost:27105, "port":27105: the port
    process    pid 4711
    id         a UUID, or an id of 22 characters that Kafka derives from one
    time       10:00:00, 2026-01-31 10:00:00, 2026-01-31T10:00:00.123Z, 1767225600000 (ms)
    duration   0.42 s, 17 ms, and ages: `5 s ago`, `now`
    size       3.9 MB, 12 KiB: equal to a fifth
    rate       1234.5 records/sec, 1.2 MB/sec, 3.4 MiB/s, (1,234/s)
    isr        Isr: 0,1,2 and ISR 0,1,2: the order in which the replicas joined it

Ports, processes and ids are bound: what the page calls 27105 is one port in a whole page, and what
a later command of the page names by it is replaced by what it is in this run. The host `alpha` of a
page is this machine; the hosts `alpha.example.org`, `beta.example.org` and `gamma.example.org`, and
10.0.0.1 to 10.0.0.3, are addresses of its loopback interface.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

ANY_LINES = "..."
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_TOKEN = re.compile(
    rf"""
    \b(?P<id>[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}
           | (?=[\w-]*\d)(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{{22}}(?![\w-]))
  | (?<=\bTopicId:\ )(?P<id2>[\w-]{{22}}) | (?<="topic_id":")(?P<id3>[\w-]{{22}})
  | (?P<rate>{_NUMBER}\ ?(?:records|messages|requests|[KMG]i?B|B)?/s(?:ec)?\b)
  | \b(?P<size>{_NUMBER}\ [KMG]i?B)\b
  | (?P<time>\d{{4}}-\d\d-\d\d[T\ ]\d\d:\d\d(?::\d\d(?:[.,:]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?
           | \b\d\d:\d\d:\d\d(?:[.,]\d+)?\b
           | \b1[6-9]\d{{11}}\b)
  | (?P<duration>\b{_NUMBER}\ ?(?:us|ms|s|seconds|min|h)\b(?:\ ago)?|\bnow\b)
  | (?<=\bIsr:\ )(?P<isr>\d+(?:,\d+)*) | (?<=\bISR\ )(?P<isr2>\d+(?:,\d+)*)
  | (?<=127\.0\.0\.[123]:)(?P<address>\d{{4,5}})\b | (?<=localhost:)(?P<address2>\d{{4,5}})\b
  | (?<="port":)(?P<address3>\d{{4,5}})\b
  | (?<=\bpid\ )(?P<process>\d+)\b
    """,
    re.VERBOSE,
)
# In a command, also the ports that it asks for.
_PORT = re.compile(
    r"(?:(?<=127\.0\.0\.[123]:)|(?<=127\.0\.0\.[123]:\d{4}:)|(?<=localhost:)|(?<=alpha:)"
    r"|(?<=[Pp]ort[ =])|(?<=--listen ))\d{4,5}\b"
)
_MACHINES = (("alpha", 1), ("beta", 2), ("gamma", 3))


@dataclass(slots=True)
class Bindings:
    """What the ports, processes and ids of a page are in this run, and the reverse."""

    to_actual: dict[tuple[str, str], str] = field(default_factory=dict)
    to_page: dict[tuple[str, str], str] = field(default_factory=dict)

    def copy(self) -> "Bindings":
        return Bindings(dict(self.to_actual), dict(self.to_page))

    def bind(self, kind: str, page: str, actual: str) -> bool:
        """False: one of the two is bound to something else."""
        is_same = self.to_actual.setdefault((kind, page), actual) == actual
        return is_same and self.to_page.setdefault((kind, actual), page) == page

    def in_command(self, text: str) -> str:
        """A text of the page with the ports and ids of this run."""
        text = on_this_machine(text)
        text = _PORT.sub(lambda found: self.to_actual.get(("address", found[0]), found[0]), text)
        for (kind, page), actual in self.to_actual.items():
            if kind == "id":
                text = text.replace(page, actual)
        return text.replace("alpha:", "localhost:")

    def on_page(self, text: str) -> str:
        """A text of this run with the ports, processes and ids of the page."""
        return "".join(
            self.to_page.get((kind, piece), piece) if kind else piece
            for kind, piece in _pieces(text)
        )


def on_this_machine(text: str) -> str:
    """A text of the page with addresses of the loopback interface for the three machines."""
    for name, number in _MACHINES:
        for host in (f"{name}.example.org", f"10.0.0.{number}"):
            text = re.sub(rf"(?<![\w.]){re.escape(host)}(?![\w.])", f"127.0.0.{number}", text)
    return text


def ports(text: str) -> Iterator[int]:
    """The ports that a command or a program names."""
    yield from (int(found[0]) for found in _PORT.finditer(on_this_machine(text)))


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """The line in pieces, each with its kind; the empty kind is compared exactly."""
    at = 0
    for found in _TOKEN.finditer(line):
        yield "", line[at : found.start()]
        yield (found.lastgroup or "").rstrip("23"), found[0]
        at = found.end()
    yield "", line[at:]


def _words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def is_same_line(page: str, actual: str, bindings: Bindings) -> bool:
    """Whether two lines differ only in what a mask allows; binds what is new."""
    expected = list(_pieces(on_this_machine(page.rstrip())))
    printed = list(_pieces(actual.rstrip()))
    if len(expected) != len(printed):
        return False
    return all(
        kind == other and _is_same(kind, wanted, given, bindings)
        for (kind, wanted), (other, given) in zip(expected, printed, strict=True)
    )


def _is_same(kind: str, wanted: str, given: str, bindings: Bindings) -> bool:
    """Whether two pieces of one kind are equal by its rule."""
    match kind:
        case "":
            return _words(wanted) == _words(given)
        case "size":
            return _is_about(wanted, given)
        case "isr":
            return sorted(wanted.split(",")) == sorted(given.split(","))
        case "address" | "process" | "id":
            return bindings.bind(kind, wanted, given)
        case _:
            return True


def _is_about(wanted: str, given: str) -> bool:
    """Whether two sizes have the same unit, and numbers that differ by a fifth at most."""
    (one, unit), (other, other_unit) = wanted.split(), given.split()
    numbers = float(one.replace(",", "")), float(other.replace(",", ""))
    return unit == other_unit and min(numbers) >= 0.8 * max(numbers)


def matched(page: Sequence[str], actual: Sequence[str], bindings: Bindings) -> Bindings | None:
    """The bindings after this output, None if it is not what the page shows."""
    chunks: list[list[str]] = [[]]
    for line in page:
        if line == ANY_LINES:
            chunks.append([])
        else:
            chunks[-1].append(line)
    if len(chunks) == 1:
        return _same(chunks[0], actual, bindings) if len(page) == len(actual) else None
    if len(actual) < sum(map(len, chunks)):
        return None
    first, *middle, last = chunks
    found = _same(first, actual[: len(first)], bindings)
    at, end = len(first), len(actual) - len(last)
    for chunk in middle:
        if found is None:
            return None
        at, found = _find(chunk, actual, at, end, found)
    return None if found is None else _same(last, actual[end:], found)


def _find(
    chunk: Sequence[str], actual: Sequence[str], begin: int, end: int, bindings: Bindings
) -> tuple[int, Bindings | None]:
    for at in range(begin, end - len(chunk) + 1):
        found = _same(chunk, actual[at : at + len(chunk)], bindings)
        if found is not None:
            return at + len(chunk), found
    return begin, None


def _same(page: Sequence[str], actual: Sequence[str], bindings: Bindings) -> Bindings | None:
    tried = bindings.copy()
    is_same = all(is_same_line(*pair, tried) for pair in zip(page, actual, strict=True))
    return tried if is_same else None


def as_on_page(page: Sequence[str], actual: Sequence[str], bindings: Bindings) -> list[str]:
    """The output as the page shall show it: a line that differs only in masks stays as it is."""
    left = list(page)
    shown = []
    for line in actual:
        same = next((old for old in left if is_same_line(old, line, bindings.copy())), None)
        if same is not None:
            left = left[left.index(same) + 1 :]
        shown.append(bindings.on_page(line).rstrip().expandtabs(4) if same is None else same)
    return shown
