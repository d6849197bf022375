"""Parses the flags of Kafka's tools as `joptsimple` does, because scripts rely on its rules.

    parser = Parser("Create, delete, describe, or change a topic.")
    parser.flag("list", help="List the topics.")
    parser.value("topic", metavar="TOPIC", help="The topic.")
    flags = parser.parse(["--topic=a", "--list"])
    flags.has("list"), flags.value("topic")

`-list` is `--list`; a value may begin with a dash (`--time -1`); a value after `=` of a flag
without a value is ignored; an option may be given many times, which is an error only if a single
value is read; options cannot be abbreviated; other words are ignored.
Messages and exit codes are Kafka's (`CommandLineUtils`).
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from odradek.model.errors import OdradekError

KAFKA_VERSION: Final = "3.9.2"
NONE: Final = "none"
REQUIRED: Final = "required"
OPTIONAL: Final = "optional"
SEVERAL: Final = "several"

OUR_ALIAS: Final = "command-config"

_WIDTH: Final = 80
_HELP_COLUMN: Final = 34


class FlagError(OdradekError):
    """The command line is invalid (joptsimple's OptionException); the text is joptsimple's."""

    def __init__(self, message: str, kind: str = "OptionException", *, hint: str = "") -> None:
        super().__init__(message)
        self.exception = f"joptsimple.{kind}"
        self.hint = hint  # Odradek's own advice, printed after Kafka's message


class UsageError(OdradekError):
    """The options do not go together: the message, then the help, both on stderr; exit code 1."""

    def __init__(self, message: str, parser: "Parser") -> None:
        super().__init__(message)
        self.parser = parser
        self.hint = ""  # Odradek's own advice, printed after Kafka's message and the help


class Flag(NamedTuple):
    """One option, under each of its names."""

    names: tuple[str, ...]
    argument: str  # NONE, REQUIRED, OPTIONAL or SEVERAL
    metavar: str
    help: str
    separator: str | None = None  # splits one value into several
    integer: bool = False
    only_with: tuple[str, ...] = ()  # it is allowed only with one of these
    # For `odradek.cli.kafka.support.arguments`.
    read: Callable[[str], Any] = str  # raises ValueError
    default: Any = None  # of a repeated option: a tuple
    required: bool = False
    either: bool = False  # of all options with this mark one has to be given, and only one
    choices: tuple[object, ...] = ()

    @property
    def kafkas_names(self) -> tuple[str, ...]:
        """Without `--command-config` where Kafka's tool has another name: for Kafka's messages."""
        return tuple(name for name in self.names if name == self.names[0] or name != OUR_ALIAS)

    def __str__(self) -> str:
        return f"[{', '.join(self.kafkas_names)}]"


class Flags:
    """The options and values of one command line."""

    def __init__(self, options: Mapping[str, Flag]) -> None:
        self._options = options
        self._given: dict[tuple[str, ...], list[str]] = {}
        self.order: list[Flag] = []  # in the order given, with repetitions
        self.others: list[str] = []

    def note(self, option: Flag, value: str | None) -> None:
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
        """The single value, or None.

        Raises:
            FlagError: there are several values.
        """
        values = self.values(name)
        if len(values) > 1:
            raise FlagError(
                f"Found multiple arguments for option {name}, but you asked for only one",
                "MultipleArgumentsForOptionException",
            )
        return values[0] if values else None

    def text(self, name: str, default: str = "") -> str:
        value = self.value(name)
        return default if value is None else value

    def integer(self, name: str, *, bits: int = 32) -> int | None:
        """The single value as a number of so many bits, or None.

        Raises:
            FlagError: it is not such a number, or there are several values.
        """
        value = self.value(name)
        return None if value is None else to_integer(value, name, bits=bits)


def to_integer(value: str, name: str, *, bits: int = 32) -> int:
    """A value of an option as a number.

    Raises:
        FlagError: it is not a number of so many bits.
    """
    number = java_integer(value, bits)
    if number is None:
        raise FlagError(
            f"Cannot parse argument '{value}' of option {name}", "OptionArgumentConversionException"
        )
    return number


def java_integer(text: str, bits: int = 32) -> int | None:
    """A number as Java's `parseInt` and `parseLong` take it; None if it is not one."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdecimal() and -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        return int(text)
    return None


class Parser:
    """The options of one tool, and the rules that hold between them."""

    def __init__(self, description: str) -> None:
        self.description = description
        self._options: dict[str, Flag] = {}
        self._order: list[Flag] = []
        self.verbs: dict[str, Any] = {}  # the parser of each verb

    # ----------------------------------------------------------------------- declare

    def flag(self, *names: str, help: str, **more: Any) -> None:  # noqa: A002
        """An option without a value; `more` are fields of `Flag`."""
        self._add(Flag(names, NONE, "", help, **more))

    def value(self, *names: str, metavar: str, help: str = "", **more: Any) -> None:  # noqa: A002
        """An option with a value."""
        self._add(Flag(names, REQUIRED, metavar, help, **more))

    def values(self, *names: str, metavar: str, help: str) -> None:  # noqa: A002
        """An option with values, to the next option."""
        self._add(Flag(names, SEVERAL, metavar, help))

    def optional(self, *names: str, metavar: str, help: str, **more: Any) -> None:  # noqa: A002
        """An option that may have a value."""
        self._add(Flag(names, OPTIONAL, metavar, help, **more))

    def connection(self, *, controllers: bool = False) -> None:
        """Declare the addresses to connect to, and --command-config."""
        self.value("bootstrap-server", metavar="host:port,...", help="Brokers to connect to.")
        if controllers:
            self.value("bootstrap-controller", metavar="host:port,...", help="KRaft controllers.")
        text = "Client properties, one key=value a line."
        self.value("command-config", metavar="file", help=text)

    def common(self) -> None:
        """Declare --help and --version, which every tool has."""
        self.flag("help", help="Print this.")
        self.flag("version", help="Print the version.")

    def _add(self, option: Flag) -> None:
        self._order.append(option)
        for name in option.names:
            assert name not in self._options, name
            self._options[name] = option

    @property
    def options(self) -> Sequence[Flag]:
        """All options, as they were declared."""
        return self._order

    def __getitem__(self, name: str) -> Flag:
        return self._options[name]

    # ------------------------------------------------------------------------- parse

    def parse(self, arguments: Sequence[str]) -> Flags:
        """Read a command line.

        Raises:
            FlagError: an unknown option, or one without its value.
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
            option.names[0] if len(option.kafkas_names) == 1 else str(option)
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
            # joptsimple reads `-abc` as the flags a, b and c; Kafka's tools have no such flags.
            name = next((letter for letter in name if letter not in self._options), name)
        option = self._options.get(name)
        if option is None:
            raise _unknown(name, self._options)
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

    def _is_value(self, option: Flag, word: str) -> bool:
        if option.integer:
            return word.lstrip("-").isdecimal()
        return not word.startswith("-") or word == "-"

    # ------------------------------------------------------------------------- rules

    def fail(self, message: str) -> NoReturn:
        """Refuse the command line; the help is printed, too.

        Raises:
            UsageError: always.
        """
        raise UsageError(message, self)

    def require(self, flags: Flags, *names: str) -> None:
        """Check that these options are given.

        Raises:
            UsageError: one is missing.
        """
        for name in names:
            if not flags.has(name):
                self.fail(f'Missing required argument "{self[name]}"')

    def refuse(self, flags: Flags, used: str, invalid: Iterable[str]) -> None:
        """Check that these options are not given together with `used`.

        Raises:
            UsageError: one is given.
        """
        if not flags.has(used):
            return
        for name in invalid:
            if flags.has(name):
                self.fail(f'Option "{self[used]}" can\'t be used with option "{self[name]}"')

    def begin(
        self, arguments: Sequence[str], *, uncaught: bool = False, empty: str | None = None
    ) -> Flags:
        """Parse the flags, and handle --help and --version.

        With `uncaught` an invalid option is printed as an uncaught Java exception. `empty` is the
        message for an empty command line; by default the description, and "" allows it.

        Raises:
            FlagError: an unknown option, or one without its value.
            UsageError: for --help, and for an empty command line.
            SystemExit: --version, or an error with `uncaught`, has been printed.
        """
        if not arguments and empty != "":
            self.fail(empty or self.description)
        try:
            flags = self.parse(arguments)
        except FlagError as error:
            if not uncaught:
                raise
            print(f'Exception in thread "main" {error.exception}: {error}', file=sys.stderr)
            if error.hint:
                print(error.hint, file=sys.stderr)
            raise SystemExit(1) from None
        if flags.has("help"):
            self.fail(self.description)
        if flags.has("version"):
            print(version_text())
            raise SystemExit(0)
        return flags

    def usage(self) -> str:
        from textwrap import wrap  # noqa: PLC0415 - for --help only

        lines = [
            "Option".ljust(_HELP_COLUMN) + "Description",
            "------".ljust(_HELP_COLUMN) + "-" * 11,
        ]
        for option in sorted(self._order, key=lambda o: o.names):
            names = ", ".join(map(dashed, option.names))
            shown = (
                f" [{option.metavar}]" if option.argument == OPTIONAL else f" <{option.metavar}>"
            )
            left = names + ("" if option.argument == NONE else shown)
            text = wrap(option.help, _WIDTH - _HELP_COLUMN) or [""]
            if len(left) >= _HELP_COLUMN:
                lines.append(left)
                left = ""
            lines += [left.ljust(_HELP_COLUMN) + text[0]]
            lines += [" " * _HELP_COLUMN + more for more in text[1:]]
        return "\n".join(lines)


def version_text() -> str:
    """The text of --version: first the version of Kafka that the tools follow; scripts parse it."""
    from odradek import __version__  # noqa: PLC0415 - for --version only

    return f"{KAFKA_VERSION} (Odradek {__version__})"


def dashed(name: str) -> str:
    """A name as the help and the messages of argparse4j show it."""
    return f"--{name}" if len(name) > 1 else f"-{name}"


def _unknown(name: str, options: Mapping[str, Flag]) -> FlagError:
    from odradek.cli.kafka.support.former_options import successor  # noqa: PLC0415 - for mistakes

    message = f"{name} is not a recognized option"
    return FlagError(message, "UnrecognizedOptionException", hint=successor(name, options))


def _all(option: Flag) -> str:
    return "/".join(option.kafkas_names)
