"""Ids that travel as text: the 22 letters Kafka prints for the 128 bits of a UUID."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from uuid import UUID


def uuid_text(value: UUID) -> str:
    """As in topic nodes, `meta.properties` and the tools: base64url without padding."""
    return urlsafe_b64encode(value.bytes)[:22].decode()


def parse_uuid(text: str) -> UUID:
    """The inverse of `uuid_text`.

    Raises:
        ValueError: these are not the 22 letters of a UUID.
    """
    try:
        raw = urlsafe_b64decode(text + "==")
    except (Base64Error, ValueError):
        raw = b""
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"{text!r} is no UUID: must be 22 letters of base64url")
    return UUID(bytes=raw)
