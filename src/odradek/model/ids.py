"""UUIDs as text: the 22 characters that Kafka prints for 128 bits."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from uuid import UUID


def uuid_text(value: UUID) -> str:
    """Base64url without padding, as in topic znodes, `meta.properties` and Kafka's tools."""
    return urlsafe_b64encode(value.bytes)[:22].decode()


def parse_uuid(text: str) -> UUID:
    """The inverse of `uuid_text`.

    Raises:
        ValueError: the text is not 22 characters of base64url.
    """
    try:
        raw = urlsafe_b64decode(text + "==")
    except (Base64Error, ValueError):
        raw = b""
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"{text!r} is not a UUID: must be 22 characters of base64url")
    return UUID(bytes=raw)
