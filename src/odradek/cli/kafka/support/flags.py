"""The flags of Kafka's tools, read as `joptsimple` reads them, for that is what scripts rely on.

    parser = Parser("Create, delete, describe, or change a topic.")
    parser.flag("list", help="List the topics.")
    parser.value("topic", metavar="TOPIC", help="The topic.")
    flags = parser.parse(["--topic=a", "--list"])
    flags.has("list"), flags.value("topic")

How it differs from `argparse`, and why that one will not do: `-list` is `--list`; a value may
begin with a dash (`--time -1`); what a flag without a value is given after `=` is ignored; an
option may be given many times, and it is an error only when one value is asked for; nothing is
abbreviated; what is no option is left alone. Messages and exit codes are Kafka's
(`CommandLineUtils`).
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from odradek.model.errors import OdradekError

KAFKA_VERSION: Final = "3.9.2"
NONE: Final = "none"
REQUIRED: Final = "required"
OPTIONAL: Final = "optional"

_WIDTH: Final = 80
_HELP_COLUMN: Final = 34


class FlagError(OdradekError):
    """The command line is none (joptsimple's OptionException); the text is joptsimple's."""

    def __init__(self, message: str, kind: str = "OptionException") -> None:
        super().__init__(message)
        self.exception = f"joptsimple.{kind}"


class UsageError(OdradekError):
    """The options do not go together: the message, then the help, both on stderr; exit code 1."""

    def __init__(self, message: str, parser: "Parser") -> None:
        super().__init__(message)
        self.parser = parser
        self.hint = ""  # what Kafka's tool does not say: printed after its words and the help


class Option(NamedTuple):
    """One option, under each of its names."""

    names: tuple[str, ...]
    argument: str  # NONE, REQUIRED or OPTIONAL
    metavar: str
    help: str
    separator: str | None  # one value is split there into many
    integer: bool
    only_with: tuple[str, ...] = ()  # it may be there with one of these alone

    def __str__(self) -> str:
        return f"[{', '.join(self.names)}]"


class Flags:
    """What the command line gave."""

    def __init__(self, options: Mapping[str, Option]) -> None:
        self._options = options
        self._given: dict[tuple[str, ...], list[str]] = {}
        self.order: list[Option] = []  # as they came, one for each time
        self.others: list[str] = []

    def note(self, option: Option, value: str | None) -> None:
        """An option came, with or without a value."""
        values = self._given.setdefault(option.names, [])
        self.order.append(option)
        if value is None:
            return
        if option.separator is None:
            values.append(value)
        else:
            values.extend([v for v in value.split(option.separator) if v] or [value])

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return self._options[name].names in self._given

    def has_value(self, name: str) -> bool:
        """Whether the option was given with a value."""
        return bool(self._given.get(self._options[name].names))

    def values(self, name: str) -> list[str]:
        """All values given, in order."""
        return list(self._given.get(self._options[name].names, ()))

    def value(self, name: str) -> str | None:
        """The one value, None if there is none.

        Raises:
            FlagError: there are several.
        """
        values = self.values(name)
        if len(values) > 1:
            raise FlagError(
                f"Found multiple arguments for option {name}, but you asked for only one",
                "MultipleArgumentsForOptionException",
            )
        return values[0] if values else None

    def text(self, name: str, default: str = "") -> str:
        """The one value, or a default."""
        value = self.value(name)
        return default if value is None else value

    def integer(self, name: str, *, bits: int = 32) -> int | None:
        """The one value as a number of so many bits.

        Raises:
            FlagError: it is none, or there are several.
        """
        value = self.value(name)
        return None if value is None else to_integer(value, name, bits=bits)


def to_integer(value: str, name: str, *, bits: int = 32) -> int:
    """A value of an option as a number.

    Raises:
        FlagError: it is none, or one of more bits.
    """
    digits = value[1:] if value[:1] in ("-", "+") else value
    if digits.isascii() and digits.isdecimal() and -(1 << bits - 1) <= int(value) < 1 << bits - 1:
        return int(value)
    raise FlagError(
        f"Cannot parse argument '{value}' of option {name}", "OptionArgumentConversionException"
    )


class Parser:
    """The options of one tool, and the rules that hold between them."""

    def __init__(self, description: str) -> None:
        self.description = description
        self._options: dict[str, Option] = {}
        self._order: list[Option] = []

    # ----------------------------------------------------------------------- declare

    def flag(self, *names: str, help: str, only_with: tuple[str, ...] = ()) -> None:  # noqa: A002
        """An option without a value."""
        self._add(Option(names, NONE, "", help, None, integer=False, only_with=only_with))

    def value(
        self,
        *names: str,
        metavar: str,
        help: str,  # noqa: A002
        separator: str | None = None,
        integer: bool = False,
    ) -> None:
        """An option with a value."""
        self._add(Option(names, REQUIRED, metavar, help, separator, integer))

    def optional(
        self,
        *names: str,
        metavar: str,
        help: str,  # noqa: A002
        integer: bool = False,
        only_with: tuple[str, ...] = (),
    ) -> None:
        """An option that may have a value."""
        self._add(Option(names, OPTIONAL, metavar, help, None, integer, only_with))

    def common(self) -> None:
        """What every tool has."""
        self.flag("help", help="Print this.")
        self.flag("version", help="Print the version.")

    def _add(self, option: Option) -> None:
        self._order.append(option)
        for name in option.names:
            assert name not in self._options, name
            self._options[name] = option

    @property
    def options(self) -> Sequence[Option]:
        """All options, as they were declared."""
        return self._order

    def __getitem__(self, name: str) -> Option:
        return self._options[name]

    # ------------------------------------------------------------------------- parse

    def parse(self, arguments: Sequence[str]) -> Flags:
        """Read a command line.

        Raises:
            FlagError: an option there is not, or one without its value.
        """
        flags = Flags(self._options)
        queue = list(reversed(arguments))
        while queue:
            word = queue.pop()
            if word == "--":
                flags.others.extend(reversed(queue))
                break
            if word.startswith("-") and word != "-":
                self._option(flags, word, queue)
            else:
                flags.others.append(word)
        unavailable = [
            option.names[0] if len(option.names) == 1 else str(option)
            for option in self._order
            if option.only_with
            and option in flags.order
            and not any(map(flags.has, option.only_with))
        ]
        if unavailable:
            raise FlagError(
                f"Option(s) [{', '.join(unavailable)}] are unavailable given other options on the "
                "command line",
                "UnavailableOptionException",
            )
        return flags

    def _option(self, flags: Flags, word: str, queue: list[str]) -> None:
        name, equals, value = word.lstrip("-").partition("=")
        if name not in self._options and not word.startswith("--"):
            # A cluster of letters; no tool of Kafka has one that is known.
            name = next((letter for letter in name if letter not in self._options), name)
        option = self._options.get(name)
        if option is None:
            raise FlagError(f"{name} is not a recognized option", "UnrecognizedOptionException")
        if option.argument == NONE:
            flags.note(option, None)
        elif equals:
            flags.note(option, value)
        elif option.argument == REQUIRED:
            if not queue:
                raise FlagError(
                    f"Option {_all(option)} requires an argument",
                    "OptionMissingRequiredArgumentException",
                )
            flags.note(option, queue.pop())
        else:
            flags.note(option, queue.pop() if queue and self._is_value(option, queue[-1]) else None)

    def _is_value(self, option: Option, word: str) -> bool:
        if option.integer:
            return word.lstrip("-").isdecimal()
        return not word.startswith("-") or word == "-"

    # ------------------------------------------------------------------------- rules

    def fail(self, message: str) -> NoReturn:
        """Refuse the command line, and show how it is done.

        Raises:
            UsageError: always.
        """
        raise UsageError(message, self)

    def require(self, flags: Flags, *names: str) -> None:
        """These have to be there.

        Raises:
            UsageError: one is not.
        """
        for name in names:
            if not flags.has(name):
                self.fail(f'Missing required argument "{self[name]}"')

    def refuse(self, flags: Flags, used: str, invalid: Iterable[str]) -> None:
        """With one option, these must not be there.

        Raises:
            UsageError: one is.
        """
        if not flags.has(used):
            return
        for name in invalid:
            if flags.has(name):
                self.fail(f'Option "{self[used]}" can\'t be used with option "{self[name]}"')

    def help_or_version(self, flags: Flags) -> int | None:
        """Do what --help or --version asks for; the exit code, or None if neither is there.

        Raises:
            UsageError: for help, which Kafka's tools print on stderr, with exit code 1.
        """
        if flags.has("help"):
            self.fail(self.description)
        if flags.has("version"):
            print(version_text())
            return 0
        return None

    def begin(self, arguments: Sequence[str], *, uncaught: bool = False) -> Flags | int:
        """What most tools begin with: the flags, or an exit code when all has been said.

        With `uncaught` a bad option is told as Java tells what nobody has caught.

        Raises:
            FlagError: an option there is not, or one without its value.
            UsageError: for help, and where nothing at all is given.
        """
        if not arguments:
            self.fail(self.description)
        try:
            flags = self.parse(arguments)
        except FlagError as error:
            if not uncaught:
                raise
            print(f'Exception in thread "main" {error.exception}: {error}', file=sys.stderr)
            return 1
        done = self.help_or_version(flags)
        return flags if done is None else done

    def usage(self) -> str:
        """The help."""
        from textwrap import wrap  # noqa: PLC0415 - most calls ask for no help

        lines = [
            "Option".ljust(_HELP_COLUMN) + "Description",
            "------".ljust(_HELP_COLUMN) + "-" * 11,
        ]
        for option in sorted(self._order, key=lambda o: o.names):
            names = ", ".join(f"--{name}" for name in option.names)
            value = {NONE: "", REQUIRED: f" <{option.metavar}>", OPTIONAL: f" [{option.metavar}]"}
            left = names + value[option.argument]
            text = wrap(option.help, _WIDTH - _HELP_COLUMN) or [""]
            if len(left) >= _HELP_COLUMN:
                lines.append(left)
                left = ""
            lines += [left.ljust(_HELP_COLUMN) + text[0]]
            lines += [" " * _HELP_COLUMN + more for more in text[1:]]
        return "\n".join(lines)


def version_text() -> str:
    """What --version prints: first, as scripts read it, the Kafka whose tools these are like."""
    from odradek import __version__  # noqa: PLC0415 - asked for once in a blue moon

    return f"{KAFKA_VERSION} (Odradek {__version__})"


def _all(option: Option) -> str:
    return "/".join(option.names)
