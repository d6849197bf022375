"""Command lines in the manner of `argparse4j`, which some of Kafka's tools use.

    line = CommandLine("kafka-cluster", "The Kafka cluster tool.")
    sub = line.verb("unregister", "Unregister a broker.")
    sub.value("id", "i", metavar="N", help="The broker.", read=integer, required=True)
    options = line.read(["unregister", "-i", "3"])
    options.verb, options.id

The words are read from left to right, so an unknown option is refused before one that is missing,
and an earlier --help or --version takes effect first. Usage and error go to stderr, and the exit
code is 1. Of several missing options only the last is named, of several unknown ones the first.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace as Namespace
from typing import Any, Final, NamedTuple, NoReturn

from odradek.cli.kafka.support.flags import (
    NONE,
    SEVERAL,
    Flag,
    Parser,
    dashed,
    java_integer,
    version_text,
)

__all__ = ["CommandLine", "Namespace", "connection", "double", "integer", "long"]

_NEGATIVE: Final = re.compile(r"-\d+|-\d*\.\d+")


class _Word(NamedTuple):
    """An option with its values; or (None) another word."""

    option: Flag | None
    values: list[str]


class CommandLine(Parser):
    """The options of one tool, or of one verb of it."""

    def __init__(self, program: str, description: str) -> None:
        super().__init__(description)
        self._program = program
        self.flag("help", "h", help="Print this.")

    def verb(self, name: str, description: str) -> "CommandLine":
        """A verb; its options follow it."""
        self.verbs[name] = line = CommandLine(f"{self._program} {name}", description)
        return line

    def read(self, words: Sequence[str]) -> Namespace:
        """The options.

        Raises:
            SystemExit: help, version or an error has been printed.
        """
        options = Namespace()
        others = self._read(list(self._split(list(reversed(words)))), options)
        if others:
            self.error(f"unrecognized arguments: '{others[0]}'")
        return options

    def error(self, message: str) -> NoReturn:
        """Print usage and error.

        Raises:
            SystemExit: always.
        """
        print(self._usage_line(), file=sys.stderr)
        print(f"{self._program.partition(' ')[0]}: error: {message}", file=sys.stderr)
        raise SystemExit(1)

    def _refuse(self, option: Flag, why: str) -> NoReturn:
        self.error(f"argument {_names(option)}: {why}")

    # ------------------------------------------------------------------------------ split

    def _split(self, queue: list[str]) -> Iterator[_Word]:
        """Options and other words, to the end or to the first --help or --version."""
        while queue:
            word = queue.pop()
            if not word.startswith("-"):
                yield _Word(None, [word])
                if self.verbs:
                    verb = self.verbs.get(word)
                    yield from () if verb is None else verb._split(queue)  # noqa: SLF001
                    return
                continue
            name, equals, value = word.partition("=")
            option = self._named(name)
            if option is None:
                self.error(f"unrecognized arguments: '{word}'")
            yield _Word(option, [value] if equals else self._values(option, queue))
            if option.names[0] in ("help", "version"):
                return
        if self.verbs:
            self.error("too few arguments")

    def _named(self, name: str) -> Flag | None:
        """The option of this name, or of the only name that begins so."""
        text = name.lstrip("-")
        if text in self._options and name == dashed(text):
            return self[text]
        near = [each for each in self._options if dashed(each).startswith(name)]
        if not name.startswith("--") or not near:
            return None
        if len(near) > 1:
            self.error(f"ambiguous option: {name} could match {', '.join(map(dashed, near))}")
        return self[near[0]]

    def _values(self, option: Flag, queue: list[str]) -> list[str]:
        if option.argument == NONE:
            return []
        values: list[str] = []
        while queue and (not values or option.argument == SEVERAL):
            if queue[-1].startswith("-") and not _NEGATIVE.fullmatch(queue[-1]):
                break
            values.append(queue.pop())
        if not values:
            several = option.argument == SEVERAL
            self._refuse(option, f"expected {'at least one' if several else 'one'} argument")
        return values

    # ------------------------------------------------------------------------------- read

    def _read(self, words: list[_Word], options: Namespace) -> list[str]:
        """Set the options. Returns the words that are left over."""
        for option in self.options:
            setattr(
                options, _attribute(option), False if option.argument == NONE else option.default
            )
        seen: list[Flag] = []
        others: list[str] = []
        for number, (given, values) in enumerate(words):
            if given is None and self.verbs:
                options.verb = values[0]
                others = self._verb(values[0])._read(words[number + 1 :], options)  # noqa: SLF001
                break
            if given is None:
                others += values
            elif given.names[0] == "help":
                self.print_help()
                raise SystemExit(1)  # as argparse4j 0.7
            elif given.names[0] == "version":
                print(version_text())
                raise SystemExit(0)
            else:
                self._set(given, values, seen, options)
        self._check_required(seen)
        return others

    def _verb(self, name: str) -> "CommandLine":
        if name not in self.verbs:
            known = ", ".join(map(repr, self.verbs))
            self.error(f"invalid choice: {name!r} (choose from {known})")
        verb: CommandLine = self.verbs[name]
        return verb

    def _set(
        self, option: Flag, values: Sequence[str], seen: list[Flag], options: Namespace
    ) -> None:
        for other in seen:
            if option.either and other.either and other is not option:
                self._refuse(option, f"not allowed with argument {_names(other)}")
        seen.append(option)
        value: Any = [self._value(option, text) for text in values]
        if isinstance(option.default, tuple):
            value = (*getattr(options, _attribute(option)), *value)
        elif option.argument != SEVERAL:
            value = value[0] if option.argument != NONE else True
        setattr(options, _attribute(option), value)

    def _value(self, option: Flag, text: str) -> object:
        try:
            value = option.read(text)
        except ValueError as error:
            self._refuse(option, str(error))
        if option.choices and value not in option.choices:
            known = ", ".join(map(repr, option.choices))
            self._refuse(option, f"invalid choice: {value!r} (choose from {known})")
        return value

    def _check_required(self, seen: list[Flag]) -> None:
        missing = [o for o in self.options if o.required and o not in seen]
        if missing:
            self.error(f"argument {_names(missing[-1])} is required")
        either = [option for option in self.options if option.either]
        if either and not any(option in seen for option in either):
            self.error(f"one of the arguments {' '.join(map(_names, either))} is required")

    # ------------------------------------------------------------------------------- help

    def print_help(self) -> None:
        print(f"{self._usage_line()}\n\n{self.description}\n\n{self.usage()}")
        for name, line in self.verbs.items():
            print(f"{name:<{max(map(len, self.verbs))}}  {line.description}")

    def _usage_line(self) -> str:
        from textwrap import wrap  # noqa: PLC0415 - for mistakes and --help only

        parts = [
            text if option.required else f"[{text}]"
            for option in self.options
            for text in [f"{dashed(option.names[0])} {option.metavar}".rstrip()]
        ]
        text = f"usage: {' '.join([self._program, *parts])}{' verb ...' if self.verbs else ''}"
        return "\n".join(wrap(text, 80, subsequent_indent=" " * 7, break_on_hyphens=False))


def connection(line: CommandLine, *letters: str) -> None:
    """Add `--bootstrap-server` and `--bootstrap-controller`, of which one is required."""
    servers, controllers = letters[:1], letters[1:]
    line.value("bootstrap-server", *servers, metavar="host:port,...", help="Brokers.", either=True)
    line.value(
        "bootstrap-controller", *controllers,
        metavar="host:port,...", help="KRaft controllers.", either=True,
    )  # fmt: skip


def _attribute(option: Flag) -> str:
    return re.sub(r"\W", "_", option.names[0])


def _names(option: Flag) -> str:
    return "/".join(map(dashed, option.kafkas_names))


def integer(text: str) -> int:
    """A number of 32 bits, refused with Java's message."""
    return _number(text, 32, "Integer")


def long(text: str) -> int:
    """A number of 64 bits, refused with Java's message."""
    return _number(text, 64, "Long")


def double(text: str) -> float:
    """A number with a fraction, refused with Java's message."""
    try:
        return float(text)
    except ValueError:
        raise _not_a(text, "Double") from None


def _number(text: str, bits: int, name: str) -> int:
    number = java_integer(text, bits)
    if number is None:
        raise _not_a(text, name)
    return number


def _not_a(text: str, name: str) -> ValueError:
    return ValueError(f"could not convert '{text}' to {name} (For input string: \"{text}\")")
