"""Kafka's MessageFormatters for `kafka-console-consumer`: they turn a record into bytes.

    default        a line with the fields that the print.* properties select
    no-op          nothing

The formatters of internal topics are in `odradek.cli.kafka.clients.formatters_internal`.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Final, Protocol

from odradek.cli.failures import ToolError
from odradek.client.consumer.fetched import ConsumerRecord

_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_PACKAGE: Final = "org.apache.kafka.common.serialization."


class SerializationError(ToolError):
    """The bytes are invalid for the deserializer."""

    exception = "org.apache.kafka.common.errors.SerializationException"


class Formatter(Protocol):
    """Turns a record into the bytes to print."""

    def show(self, record: ConsumerRecord) -> bytes:
        """The bytes to print for a record.

        Raises:
            SerializationError: a field is invalid for its deserializer.
        """


class NoOp:
    """Kafka's `NoOpMessageFormatter`, which prints nothing."""

    def show(self, record: ConsumerRecord) -> bytes:  # noqa: ARG002  the protocol's signature
        return b""


# -------------------------------------------------------------------------------- the default


class Default:
    """Kafka's `DefaultMessageFormatter`: the fields that the print.* properties select."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._timestamp = _is_true(properties, "print.timestamp")
        self._partition = _is_true(properties, "print.partition")
        self._offset = _is_true(properties, "print.offset")
        self._headers = _is_true(properties, "print.headers")
        self._key = _is_true(properties, "print.key")
        self._value = "print.value" not in properties or _is_true(properties, "print.value")
        self._separator = _bytes(properties.get("key.separator", "\t"))
        self._line = _bytes(properties.get("line.separator", "\n"))
        self._headers_separator = _bytes(properties.get("headers.separator", ","))
        self._null = _bytes(properties.get("null.literal", "null"))
        self._show_key = _deserializer(properties.get("key.deserializer"))
        self._show_value = _deserializer(properties.get("value.deserializer"))
        self._show_header = _deserializer(properties.get("headers.deserializer"))

    def show(self, record: ConsumerRecord) -> bytes:
        parts = []
        if self._timestamp:
            kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
            parts.append(f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP")
        if self._partition:
            parts.append(b"Partition:%d" % record.partition)
        if self._offset:
            parts.append(b"Offset:%d" % record.offset)
        if self._headers:
            parts.append(self._all_headers(record.headers))
        if self._key:
            parts.append(self._shown(record.key, self._show_key))
        if self._value:
            parts.append(self._shown(record.value, self._show_value))
        return self._separator.join(parts) + self._line if parts else b""

    def _all_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> bytes:
        shown = [
            _bytes(name) + b":" + self._shown(value, self._show_header) for name, value in headers
        ]
        return self._headers_separator.join(shown) if shown else b"NO_HEADERS"

    def _shown(self, data: bytes | None, show: Callable[[bytes], bytes] | None) -> bytes:
        # As in Java the null literal passes through the deserializer, too.
        data = self._null if data is None else data
        return data if show is None else show(data)


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _number(name: str, layout: Struct) -> Callable[[bytes], bytes]:
    def show(data: bytes) -> bytes:
        if len(data) != layout.size:
            raise SerializationError(
                f"Size of data received by {name}Deserializer is not {layout.size}"
            )
        (value,) = layout.unpack(data)
        if isinstance(value, float):
            from odradek.cli.kafka.support.java import double  # noqa: PLC0415  for floats only

            return double(value).encode()
        return str(value).encode()

    return show


def _uuid(data: bytes) -> bytes:
    import uuid  # noqa: PLC0415  for uuids only

    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError:
        raise SerializationError("Error parsing data into UUID") from None


def _boolean(data: bytes) -> bytes:
    if len(data) != 1 or data[0] > 1:
        raise SerializationError("Unexpected byte received by BooleanDeserializer")
    return b"true" if data[0] else b"false"


_DESERIALIZERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "String": lambda data: data.decode("utf-8", "replace").encode(),
    "ByteArray": lambda data: data,
    "Bytes": lambda data: _escaped(data).encode(),
    "Long": _number("Long", Struct(">q")),
    "Integer": _number("Integer", Struct(">i")),
    "Short": _number("Short", Struct(">h")),
    "Double": _number("Double", Struct(">d")),
    "Float": _number("Float", Struct(">f")),
    "UUID": _uuid,
    "Boolean": _boolean,
}


def _escaped(data: bytes) -> str:
    """`Bytes.toString`: printable ASCII unchanged, other bytes as backslash, x and two digits."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in data
    )


def is_deserializer(name: str) -> bool:
    """Whether the deserializer is supported."""
    return name.removeprefix(_PACKAGE).removesuffix("Deserializer") in _DESERIALIZERS


def _deserializer(name: str | None) -> Callable[[bytes], bytes] | None:
    if name is None or not is_deserializer(name):
        return None
    return _DESERIALIZERS[name.removeprefix(_PACKAGE).removesuffix("Deserializer")]
