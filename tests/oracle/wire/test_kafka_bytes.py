"""Messages as Apache Kafka 3.9.2 encodes them, in every version: recorded from its own classes.

The files hold blocks of three lines: class and version, the fields that differ from their
defaults (bytes in hex), the encoded message in hex (- for none). They were made once with
`tests/clients/support/KafkaBytes.java`; `tests/clients/test_messages_match_kafka.py` repeats that
for every class there is, where the jars are at hand.
"""

import json
import pathlib
from importlib import import_module

import pytest

from odradek.wire.codec import decoder, encoder
from odradek.wire.schema import Field, Message

FILES = sorted(pathlib.Path(__file__).parent.glob("*.txt"))


def made(message: type[Message], text: dict) -> Message:
    fields = {field.name: field for field in message.SCHEMA.fields}
    return message(**{name: value(fields[name], text[name]) for name in text})


def value(field: Field, text: object) -> object:
    if isinstance(text, list):
        return [value(field, item) for item in text]
    if isinstance(text, dict):
        return made(field.part, text)
    is_bytes = field.kind in ("bytes", "uuid") or field.part == "uuid"
    return bytes.fromhex(text) if is_bytes and isinstance(text, str) else text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bytes_are_the_same_as_kafkas(path):
    module = import_module(f"odradek.wire.messages.{path.stem}")
    for block in path.read_text().strip("\n").split("\n\n"):
        head, text, hexadecimal = block.split("\n")
        name, version = head.split()
        message = made(getattr(module, name), json.loads(text))
        expected = bytes.fromhex(hexadecimal.strip("-"))

        assert encoder(type(message), int(version))(message) == expected, head
        decoded, end = decoder(type(message), int(version))(memoryview(expected), 0)
        assert (decoded, end) == (message, len(expected)), head
