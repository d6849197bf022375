"""Command lines in the manner of `argparse4j`, which some of Kafka's tools use.

It is a port of Python's `argparse`; what differs is told as Java tells it: the usage and the error
on stderr, exit code 1, and of several arguments that are missing only the last is named.
"""

import argparse
import sys
from typing import NoReturn

from odradek.model.errors import OdradekError

_MISSING = "the following arguments are required: "


class BadArgumentsError(OdradekError):
    """The command line is none; usage and error are said already."""


class ArgumentParser(argparse.ArgumentParser):
    """The arguments of one tool."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
            BadArgumentsError: always.
        """
        if message.startswith(_MISSING):
            name = message.removeprefix(_MISSING).rpartition(", ")[2]
            message = f"argument {name} is required"
        self.print_usage(sys.stderr)
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise BadArgumentsError(message)


def integer(text: str) -> int:
    """A number of 32 bits, refused in Java's words."""
    return _number(text, 32, "Integer")


def long(text: str) -> int:
    """A number of 64 bits, refused in Java's words."""
    return _number(text, 64, "Long")


def _number(text: str, bits: int, name: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdecimal() and -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"could not convert '{text}' to {name} (For input string: \"{text}\")"
    )
