"""What the tools that produce and consume share: properties on the command line, and failures."""

import contextlib
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from odradek.cli.connect import properties_of
from odradek.cli.failures import NoSuchFileError, ToolError, java_text
from odradek.cli.kafka.support.flags import FlagError, Flags, Parser
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
    # Last, for the two above are of this kind: nobody has answered in the time that there was.
    BootstrapError: f"{_ERRORS}.TimeoutException",
}


_HOST_AND_PORT: Final = re.compile(r"(?:[^:\[\]]+|\[[0-9a-fA-F:.%]+\]|[0-9a-fA-F:]+):[0-9]+")


def in_java_words(error: BaseException) -> str:
    """An error as Java would print it: the exception's name, and what it says."""
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
    """With these tools, whatever is wrong with the flags brings the help.

    Raises:
        UsageError: a flag is none, or lacks its value.
    """
    try:
        yield
    except FlagError as error:
        parser.fail(str(error))


def check_addresses(parser: Parser, servers: str) -> None:
    """Refuse what is no list of host:port, as Kafka's tools do before they make a client.

    Raises:
        UsageError: one is none.
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
    """A flag wins over a property, and a property over the flag's default."""
    if flags.has_value(flag):
        properties[into] = flags.text(flag)
    elif default is not None:
        properties.setdefault(into, default)


def write_bytes(data: bytes) -> None:
    """Write to standard output as it is, or as text where a program stands in for it."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode("utf-8", "replace"))
    else:
        buffer.write(data)


def unmade(error: BaseException, what: str) -> str:
    """The same of an error that may be why there is no client (`what` it would have been)."""
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


def fail(error: BaseException) -> int:
    """Say what went wrong, as Java's stack trace begins; the exit code."""
    sys.stdout.flush()
    print(in_java_words(error), file=sys.stderr)
    return 1
