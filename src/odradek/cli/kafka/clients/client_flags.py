"""Shared by the tools that produce and consume: properties on the command line, and failures."""

import contextlib
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from odradek.cli.connect import properties_of
from odradek.cli.failures import NoSuchFileError, ToolError, java_text
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser, UsageError
from odradek.cli.kafka.support.java import split
from odradek.client import errors
from odradek.client.cluster import BootstrapError, InvalidAddressError, UnresolvableError
from odradek.client.settings import ConstructionError, SettingsError
from odradek.config.option import InvalidConfigError
from odradek.model.errors import ApiError

_ERRORS: Final = "org.apache.kafka.common.errors"
_EXCEPTIONS: Final[Mapping[type[Exception], str]] = {
    errors.ClientTimeoutError: f"{_ERRORS}.TimeoutException",
    errors.RecordTooLargeError: f"{_ERRORS}.RecordTooLargeException",
    errors.NoOffsetError: "org.apache.kafka.clients.consumer.NoOffsetForPartitionException",
    errors.IllegalStateError: "java.lang.IllegalStateException",
    errors.ClosedError: "java.lang.IllegalStateException",
    InvalidConfigError: "org.apache.kafka.common.config.ConfigException",
    SettingsError: "org.apache.kafka.common.config.ConfigException",
    InvalidAddressError: "org.apache.kafka.common.config.ConfigException",
    UnresolvableError: "org.apache.kafka.common.config.ConfigException",
    # Last, because it is the base class of InvalidAddressError and UnresolvableError: of itself it
    # means that no broker answered in time.
    BootstrapError: f"{_ERRORS}.TimeoutException",
}


_HOST_AND_PORT: Final = re.compile(r"(?:[^:\[\]]+|\[[0-9a-fA-F:.%]+\]|[0-9a-fA-F:]+):[0-9]+")


def in_java_words(error: BaseException) -> str:
    """An error as Java prints it: the exception's class name and its message."""
    if isinstance(error, FlagError):
        return str(error)
    if isinstance(error, ApiError | ToolError):
        return java_text(error)
    for kind, name in _EXCEPTIONS.items():
        if isinstance(error, kind):
            return f"{name}: {error}"
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def usage_for_bad_flags(parser: Parser) -> Iterator[None]:
    """Turn every `FlagError` of the block into a `UsageError`, which prints the help.

    Raises:
        UsageError: a flag is unknown, or lacks its value.
    """
    try:
        yield
    except FlagError as error:
        refused = UsageError(str(error), parser)
        refused.hint = error.hint
        raise refused from None


def check_addresses(parser: Parser, servers: str) -> None:
    """Check a list of host:port, as Kafka's tools do before they create a client.

    Raises:
        UsageError: an entry is not host:port.
    """
    if not all(_HOST_AND_PORT.fullmatch(server) for server in split(servers, ",")):
        parser.fail("Please provide valid host:port like host1:9091,host2:9092\n ")


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """`key=value` words, each split at its first `=`; without one the value is empty."""
    found = {}
    for text in texts:
        key, _, value = text.partition("=")
        found[key] = value
    return found


def properties_from(flags: Flags, file: str, words: str) -> dict[str, str]:
    """The properties of a file, overridden by those on the command line."""
    path = flags.value(file)
    if path is not None and not pathlib.Path(path).exists():
        raise NoSuchFileError(path)
    return {**properties_of(path), **pairs(flags.values(words))}


def merge(
    properties: dict[str, str], flags: Flags, *, flag: str, into: str, default: str | None
) -> None:
    """A flag overrides a property, and a property overrides the flag's default."""
    if flags.has_value(flag):
        properties[into] = flags.text(flag)
    elif default is not None:
        properties.setdefault(into, default)


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout, or UTF-8 text if stdout has been replaced by a text stream."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode("utf-8", "replace"))
    else:
        buffer.write(data)


def unmade(error: BaseException, what: str) -> str:
    """As `in_java_words`, for an error that may come from the creation of the client `what`."""
    if isinstance(error, InvalidAddressError | UnresolvableError):
        return (
            f"org.apache.kafka.common.KafkaException: Failed to construct kafka {what}\n"
            f"Caused by: {in_java_words(error)}"
        )
    if isinstance(error, ConstructionError):
        return (
            f"org.apache.kafka.common.KafkaException: Failed to construct kafka {what}\n"
            f"Caused by: java.lang.IllegalArgumentException: {error}"
        )
    return java_text(error) if isinstance(error, FlagError) else in_java_words(error)


def uncaught(error: Exception, what: str) -> int:
    """Print an error as Java prints one that no code catches. Returns the exit code."""
    sys.stdout.flush()
    print(f'Exception in thread "main" {unmade(error, what)}', file=sys.stderr)
    return 1


def logged(error: Exception, message: str) -> int:
    """Print the message and the exception. Returns the exit code."""
    sys.stdout.flush()
    why = unmade(error, "consumer")
    first = why.partition("\n")[0].partition(": ")[2] if "\n" in why else message
    print(f"{first}\n{why}\n", file=sys.stderr)
    return 1


def fail(error: BaseException) -> int:
    """Print the error as the first line of Java's stack trace. Returns the exit code."""
    sys.stdout.flush()
    print(in_java_words(error), file=sys.stderr)
    return 1
