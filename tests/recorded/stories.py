"""Stories: calls of Kafka 3.9.2's tools on one cluster, one after the other, with their output.

`stories/NAME.txt` is both the table of calls and their recording;
`tests/clients/support/tool_stories.py` plays it with Kafka's own tools on Kafka's own brokers and
records their output. A file is

    % brokers 3                      the number of brokers; also: racks a,b,c;
    % option KEY=VALUE               options

    > topics --create --topic a      a step: a command of ours or one of `clusters.run_step`

    % differs out: WHY               the parts of the next call that are not compared
    % without PATTERN: WHY           the lines that are not
    $ kafka-topics.sh --bootstrap-server 127.0.0.1:19391 --list
    [file NAME]                      a file beside it
    [stdin]
    [exit 0]
    [stdout]
    [stderr]
"""

import pathlib
import re
from dataclasses import dataclass, field

from tests.recorded.recording import SAME, Difference, Recording, parse

STORIES = pathlib.Path(__file__).parent / "stories"
NAMES = sorted(path.stem for path in STORIES.glob("*.txt"))


@dataclass
class Call:
    """A recorded call and its text."""

    recording: Recording
    allowed: Difference
    head: list[str]  # the lines before it: remarks, and what may differ
    text: list[str]


@dataclass
class Story:
    """The cluster and the steps of one file."""

    name: str
    brokers: int = 3
    racks: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    steps: list[str | Call] = field(default_factory=list)
    head: list[str] = field(default_factory=list)


def read_story(name: str) -> Story:  # noqa: C901 - one branch for each kind of line
    """Read the story of this name."""
    story = Story(name)
    head: list[str] = []
    calls: list[tuple[list[str], list[str]]] = []
    for line in (STORIES / f"{name}.txt").read_text().split("\n"):
        if line.startswith("$ "):
            calls.append((head, [line]))
            story.steps.append(Call(parse("", "$ x\n[exit 0]\n"), SAME, head, calls[-1][1]))
            head = []
        elif line.startswith("> "):
            story.steps.append(line.removeprefix("> "))
        elif line.startswith("% "):
            if not _is_setting(story, line):
                head.append(line)
        elif calls and not head:
            calls[-1][1].append(line)
    for number, step in enumerate(story.steps):
        if isinstance(step, Call):
            while step.text and not step.text[-1]:
                step.text.pop()
            if not any(line.startswith("[exit ") for line in step.text):
                step.text += ["[exit unknown]"]
            step.recording = parse(f"{name}.{number}", "\n".join(step.text))
            step.allowed = _allowed(step.head)
    return story


def _is_setting(story: Story, line: str) -> bool:
    _, what, *rest = line.split(maxsplit=2)
    if what == "brokers":
        story.brokers = int(rest[0])
    elif what == "racks":
        story.racks = rest[0].split(",")
    elif what == "option":
        key, _, value = rest[0].partition("=")
        story.options[key] = value
    else:
        return False
    story.head.append(line)
    return True


def _allowed(head: list[str]) -> Difference:
    allowed = SAME
    for line in head:
        found = re.fullmatch(r"% (differs|without) (.*?): (.*)", line)
        if found is None:
            continue
        kind, what, why = found.groups()
        if kind == "differs":
            allowed = allowed._replace(parts=tuple(what.split()), why=why)
        else:
            allowed = allowed._replace(without=what, why=why)
    return allowed
