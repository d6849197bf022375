"""Command lines in the manner of `argparse4j`, which some of Kafka's tools use.

`argparse4j` is a port of Python's `argparse`; the differences follow Java: usage and error on
stderr, exit code 1, of several missing arguments only the last is named, of several unknown ones
only the first.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from odradek.cli.kafka.support.flags import version_text
from odradek.model.errors import OdradekError

_MISSING: Final = "the following arguments are required: "
_UNKNOWN: Final = "unrecognized arguments: "
_CHOICE: Final = re.compile(r"argument verb: (invalid choice: .*)")
_TOO_FEW: Final = "too few arguments"


class BadArgumentsError(OdradekError):
    """The command line is invalid; usage and error have been printed."""


class PrintVersion(argparse.Action):
    """Prints the version, and ends with exit code 0."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        del parser, namespace, values, option_string
        print(version_text())
        raise SystemExit(0)


class ArgumentParser(argparse.ArgumentParser):
    """The arguments of one tool, or of one verb of it. The verb's argument is named `verb`."""

    def error(self, message: str) -> NoReturn:
        """Print usage and error.

        Raises:
            BadArgumentsError: always.
        """
        if message.startswith(_MISSING):
            name = message.removeprefix(_MISSING).rpartition(", ")[2]
            message = _TOO_FEW if name == "verb" else f"argument {name} is required"
        elif message.startswith(_UNKNOWN):
            message = f"{_UNKNOWN}'{message.removeprefix(_UNKNOWN).split()[0]}'"
        elif (choice := _CHOICE.fullmatch(message)) is not None:
            message = choice[1]
        self.print_usage(sys.stderr)
        print(f"{self.prog.partition(' ')[0]}: error: {message}", file=sys.stderr)
        raise BadArgumentsError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End after --help, for which argparse4j 0.7 has exit code 1."""
        del status, message
        raise SystemExit(1)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace | int:
        """The options; or the exit code, if help, version or an error has been printed."""
        try:
            self.check_options(arguments)
            return self.parse_args(list(arguments))
        except BadArgumentsError:
            return 1
        except SystemExit as end:
            return int(end.code or 0)

    def check_options(self, arguments: Sequence[str]) -> None:
        """Refuse the first unknown option, or option without its value.

        argparse4j reads from left to right, so this precedes the check of required options, and
        an earlier --help or --version takes effect first.

        Raises:
            BadArgumentsError: there is such an option.
        """
        words = list(arguments)
        while words:
            word = words.pop(0)
            if not word.startswith("-"):
                if not self._verbs():
                    continue
                verb = self._verbs().get(word)
                return None if verb is None else verb.check_options(words)
            name, equals, _ = word.partition("=")
            action = self._action(name)
            if action is None:
                self.error(f"{_UNKNOWN}{word}")
            if isinstance(action, argparse._HelpAction | PrintVersion):  # noqa: SLF001
                return None
            if action.nargs is None and not equals:
                if not words:
                    self.error(f"argument {name}: expected one argument")
                words.pop(0)
        if self._verbs():
            self.error(_TOO_FEW)
        return None

    def _action(self, name: str) -> argparse.Action | None:
        named = {each: action for action in self._actions for each in action.option_strings}
        matching = [each for each in named if name.startswith("--") and each.startswith(name)]
        return named.get(name) or (named[matching[0]] if matching else None)

    def _verbs(self) -> "dict[str, ArgumentParser]":
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                return dict(action.choices)
        return {}


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
        raise argparse.ArgumentTypeError(
            f"could not convert '{text}' to Double (For input string: \"{text}\")"
        ) from None


def _number(text: str, bits: int, name: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdecimal() and -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"could not convert '{text}' to {name} (For input string: \"{text}\")"
    )
