"""From a declared message to functions: `decoder(cls, version)`, `encoder(cls, version)`.

    decode = decoder(FetchRequest, 12)
    request, end = decode(view, position)
    encode = encoder(FetchResponse, 12)
    body = encode(response)

    made = yield from sliced_decoder(FetchRequest, 12)(view, position)     # may be interrupted

The functions are written and compiled at their first use and kept on the class. The modules
`odradek.wire.decoder_source` and `odradek.wire.encoder_source` describe what they do.

A decoder raises `MalformedRequestError` and nothing else, whatever the bytes are. Besides
the bounds of the frame it checks a budget of array elements, because a byte of an array can
become hundreds of bytes of objects, and cost tens of microseconds to handle. A struct or a string
counts as one element, a number as an eighth of one.

    ELEMENTS_MAX           between brokers: the metadata of a cluster of 500,000 partitions
    CLIENT_ELEMENTS_MAX    one request of a client
    DATA_ELEMENTS_MAX      the partitions of a Produce or Fetch
"""

from collections.abc import Generator
from typing import Final, Protocol, TypeVar

from odradek.wire.decoder_source import DecoderSource
from odradek.wire.encoder_source import EncoderSource
from odradek.wire.schema import Message

ELEMENTS_MAX: Final = 1 << 20
CLIENT_ELEMENTS_MAX: Final = 1 << 17
DATA_ELEMENTS_MAX: Final = 1 << 15

M = TypeVar("M", bound=Message)
M_co = TypeVar("M_co", bound=Message, covariant=True)
M_contra = TypeVar("M_contra", bound=Message, contravariant=True)


class Decoder(Protocol[M_co]):
    """Reads a message at a position; returns it and the position after it."""

    def __call__(
        self, view: memoryview, position: int, elements_max: int = ELEMENTS_MAX, /
    ) -> tuple[M_co, int]:
        """Decode.

        Raises:
            MalformedRequestError: the bytes are not such a message, or one with more than
                `elements_max` array elements.
        """


class Encoder(Protocol[M_contra]):
    """Encodes a message in one version."""

    def __call__(self, message: M_contra, /) -> bytes:
        """Encode.

        Raises:
            UnsupportedFieldError: a field that this version lacks differs from its default.
            UnencodableError: a value has the wrong type or is out of the field's range.
        """


class SlicedDecoder(Protocol[M_co]):
    """Decodes like `Decoder`, and yields every few hundred elements so that other work can run."""

    def __call__(
        self, view: memoryview, position: int, elements_max: int = ELEMENTS_MAX, /
    ) -> Generator[None, None, tuple[M_co, int]]:
        """Decode; raises as `Decoder` does."""


class SlicedEncoder(Protocol[M_contra]):
    """Encodes like `Encoder`, and yields every few hundred elements."""

    def __call__(self, message: M_contra, /) -> Generator[None, None, bytes]:
        """Encode; raises as `Encoder` does."""


def decoder(message: type[M], version: int) -> Decoder[M]:
    """The decoder of a message class in one version, compiled at its first use."""
    schema = message.SCHEMA
    made = schema.decoders.get(version)
    if made is None:
        assert version in schema.versions, f"{schema.name} v{version}: not in {schema.versions}"
        made = DecoderSource(message, version).compile(ELEMENTS_MAX)
        schema.decoders[version] = made
    return made


def encoder(message: type[M], version: int) -> Encoder[M]:
    """The encoder of a message class in one version, compiled at its first use."""
    schema = message.SCHEMA
    made = schema.encoders.get(version)
    if made is None:
        assert version in schema.versions, f"{schema.name} v{version}: not in {schema.versions}"
        made = EncoderSource(message, version).compile()
        schema.encoders[version] = made
    return made


def sliced_decoder(message: type[M], version: int) -> SlicedDecoder[M]:
    """The decoder of a message that may be large, as a generator."""
    schema = message.SCHEMA
    made = schema.sliced_decoders.get(version)
    if made is None:
        assert version in schema.versions, f"{schema.name} v{version}: not in {schema.versions}"
        made = DecoderSource(message, version, yields=True).compile(ELEMENTS_MAX)
        schema.sliced_decoders[version] = made
    return made


def sliced_encoder(message: type[M], version: int) -> SlicedEncoder[M]:
    """The encoder of a message that may be large, as a generator."""
    schema = message.SCHEMA
    made = schema.sliced_encoders.get(version)
    if made is None:
        assert version in schema.versions, f"{schema.name} v{version}: not in {schema.versions}"
        made = EncoderSource(message, version, yields=True).compile()
        schema.sliced_encoders[version] = made
    return made
