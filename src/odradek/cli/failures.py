"""The failures of tools, with the messages of Kafka's tools.

Scripts look for the names of Java's exceptions in what the tools print, so these stand where
Kafka's tools print them; Java's stack traces do not.
"""

import logging
import sys
import time
from typing import Final

from odradek.cli.kafka.support.flags import FlagError, java_integer
from odradek.client.kafka_errors import exception_of
from odradek.model.errors import ApiError, OdradekError
from odradek.model.printable import printable

_SERVER: Final = "org.apache.kafka.server.common"
# This topic option is accepted and has no effect.
FORMAT: Final = "message.format.version"
FORMAT_WARNING: Final = (
    "WARNING: The configuration message.format.version={} is specified. This configuration will be "
    "ignored if the version is newer than the inter.broker.protocol.version specified in the "
    "broker or if the inter.broker.protocol.version is 3.0 or newer. This configuration is "
    "deprecated and it will be removed in Apache Kafka 4.0."
)


class ToolError(OdradekError):
    """A tool cannot do what was requested; `exception` is the class that Kafka's tool throws."""

    exception = "java.lang.RuntimeException"
    is_named = False  # whether tools without an own rule print the exception, too


class IllegalArgumentError(ToolError):
    """The request is invalid."""

    exception = "java.lang.IllegalArgumentException"


class NumberFormatError(ToolError):
    """The text is not a number."""

    exception = "java.lang.NumberFormatException"

    def __init__(self, text: str) -> None:
        super().__init__(f'For input string: "{text}"')


class InvalidConfigurationError(ToolError):
    """The option cannot be altered this way."""

    exception = "org.apache.kafka.common.errors.InvalidConfigurationException"


class CommandFailedError(ToolError):
    """The command has failed (Kafka's `AdminCommandFailedException`)."""

    exception = f"{_SERVER}.AdminCommandFailedException"


class OperationError(ToolError):
    """The input cannot be parsed (Kafka's `AdminOperationException`)."""

    exception = f"{_SERVER}.AdminOperationException"


class FileError(ToolError):
    """A file cannot be read."""

    exception = "java.io.IOException"


class NoSuchFileError(FileError):
    """The file does not exist; the message is its name, as in Java."""

    exception = "java.nio.file.NoSuchFileException"


class ParseError(ToolError):
    """The text is not a date and time."""

    exception = "java.text.ParseException"


class DurationError(ToolError):
    """The text is not an ISO 8601 duration."""

    exception = "java.time.format.DateTimeParseException"


class ConfigError(ToolError):
    """The value is invalid for its option."""

    exception = "org.apache.kafka.common.config.ConfigException"


def message_of(error: Exception) -> str:
    """The message as Kafka prints it, without the name of the exception."""
    if isinstance(error, ApiError):
        return printable(exception_of(error)[1])
    return str(error)


def java_text(error: Exception) -> str:
    """Java's exception and its message: `org...InvalidTopicException: Topic name ...`."""
    if isinstance(error, ApiError):
        name, message = exception_of(error)
        return f"{name}: {printable(message)}"
    if isinstance(error, ToolError | FlagError):
        return f"{error.exception}: {error}"
    return str(error)


def printed(error: Exception) -> str:
    """What a tool without an own rule prints about a failure."""
    is_named = isinstance(error, ApiError) or (isinstance(error, ToolError) and error.is_named)
    return java_text(error) if is_named else str(error)


def log_line(level: str, text: str, logger: str) -> str:
    """A line as Kafka's tools log it to stderr."""
    now = time.time()
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"[{moment},{int(now * 1000) % 1000:03}] {level} {text} ({logger})"


def to_int(text: str) -> int:
    """A number as Java's `Integer.parseInt` takes it.

    Raises:
        NumberFormatError: it is not a number of 32 bits.
    """
    number = java_integer(text)
    if number is None:
        raise NumberFormatError(text)
    return number


class _Log(logging.Handler):
    """Prints the client's log lines in the format of Kafka's tools."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "WARN" if record.levelno == logging.WARNING else record.levelname
        print(log_line(level, printable(record.getMessage()), record.name), file=sys.stderr)


_CLIENT_LOG: Final = logging.getLogger("odradek.client")
_SHOWN: Final = _Log()


def show_log() -> None:
    """Show warnings of the client on stderr, until `hide_log`."""
    _CLIENT_LOG.addHandler(_SHOWN)  # adding it twice has no effect
    _CLIENT_LOG.propagate = False


def hide_log() -> None:
    _CLIENT_LOG.removeHandler(_SHOWN)
    _CLIENT_LOG.propagate = True
