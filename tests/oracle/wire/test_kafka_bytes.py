"""Messages as Apache Kafka 3.9.2 encodes them, in every version: recorded from its own classes.

The files hold blocks of three lines: class and version, the fields that differ from their
defaults (bytes in hex), the encoded message in hex (- for none). They were made once with
`tests/clients/KafkaBytes.java`; `tests/clients/test_messages_match_kafka.py` repeats that for
every class there is, where the jars are at hand.
"""

import json
import pathlib
from importlib import import_module

import pytest

from odradek.wire.codec import decoder, encoder
from odradek.wire.schema import Field, Message

FILES = sorted(pathlib.Path(__file__).parent.glob("*.txt"))


def made(message: type[Message], said: dict) -> Message:
    fields = {field.name: field for field in message.SCHEMA.fields}
    return message(**{name: value(fields[name], said[name]) for name in said})


def value(field: Field, said: object) -> object:
    if isinstance(said, list):
        return [value(field, item) for item in said]
    if isinstance(said, dict):
        return made(field.part, said)
    is_bytes = field.kind in ("bytes", "uuid") or field.part == "uuid"
    return bytes.fromhex(said) if is_bytes and isinstance(said, str) else said


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bytes_are_the_same_as_kafkas(path):
    module = import_module(f"odradek.wire.messages.{path.stem}")
    for block in path.read_text().strip("\n").split("\n\n"):
        head, said, hexadecimal = block.split("\n")
        name, version = head.split()
        message = made(getattr(module, name), json.loads(said))
        expected = bytes.fromhex(hexadecimal.strip("-"))

        assert encoder(type(message), int(version))(message) == expected, head
        decoded, end = decoder(type(message), int(version))(memoryview(expected), 0)
        assert (decoded, end) == (message, len(expected)), head
