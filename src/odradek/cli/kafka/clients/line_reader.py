"""Parses lines into records for `kafka-console-producer` (Kafka's LineMessageReader). Pure.

    [headers<delimiter>][key<separator>]value        headers: name:value,name:value

A field that equals the null marker is null. A missing field is an error that names the line; with
ignore.error the record is sent without it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.cli.failures import ToolError

_PAIRS: Final = (
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    ("null.marker", "key.separator"),
    ("null.marker", "headers.separator"),
    ("null.marker", "headers.delimiter"),
    ("null.marker", "headers.key.separator"),
)


class LineError(ToolError):
    """A line does not have the format of the properties."""

    exception = "org.apache.kafka.common.KafkaException"


class Parsed(NamedTuple):
    """Key, value and headers of one line."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LineReader:
    """Parses lines by the properties of `--property`, and counts them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._keys = _is_true(properties, "parse.key")
        self._headers = _is_true(properties, "parse.headers")
        self._lenient = _is_true(properties, "ignore.error")
        self._null = properties.get("null.marker")
        self._key_separator = properties.get("key.separator", "\t")
        self._headers_delimiter = properties.get("headers.delimiter", "\t")
        self._headers_separator = properties.get("headers.separator", ",")
        self._header_key_separator = properties.get("headers.key.separator", ":")
        self._line = 0
        separators = {
            "null.marker": self._null,
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._header_key_separator,
            "key.separator": self._key_separator,
        }
        for one, other in _PAIRS:
            if separators[one] is not None and separators[one] == separators[other]:
                raise LineError(f"{one} and {other} may not be equal")

    def parse(self, line: str) -> Parsed:
        """Parse one line, without its end.

        Raises:
            LineError: a field is missing; names the line.
        """
        self._line += 1
        start = 0
        headers = key = None
        if self._headers:
            headers = self._part(line, start, self._headers_delimiter, "headers delimiter")
            if headers is not None:
                start = len(headers) + len(self._headers_delimiter)
        if self._keys:
            key = self._part(line, start, self._key_separator, "key separator")
            if key is not None:
                start += len(key) + len(self._key_separator)
        return Parsed(
            None if key is None else self._bytes(key),
            self._bytes(line[start:]),
            self._split(headers) if headers is not None and headers != self._null else (),
        )

    def _part(self, line: str, start: int, separator: str, name: str) -> str | None:
        end = line.find(separator, start)
        if end >= 0:
            return line[start:end]
        if self._lenient:
            return None
        raise LineError(f"No {name} found on line number {self._line}: '{line}'")

    def _split(self, headers: str) -> tuple[tuple[str, bytes | None], ...]:
        pairs = headers.split(self._headers_separator)
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()  # `String.split` drops an empty end
        return tuple(self._header(pair) for pair in pairs)

    def _header(self, pair: str) -> tuple[str, bytes | None]:
        name, separator, value = pair.partition(self._header_key_separator)
        if not separator:
            if self._lenient:
                return pair, None
            raise LineError(
                f"No header key separator found in pair '{pair}' on line number {self._line}"
            )
        if name == self._null:
            raise LineError(
                f"Header keys should not be equal to the null marker '{self._null}' as they "
                "can't be null"
            )
        return name, self._bytes(value)

    def _bytes(self, text: str) -> bytes | None:
        return None if text == self._null else text.encode("utf-8", "surrogateescape")


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "false").strip().lower() == "true"
