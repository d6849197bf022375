"""Salts in the form of Java's: 130 random bits as a number in base 36, in ASCII.

Kafka's tools and its Java client make those salts, so salts of decoys and of delegation tokens have
to have the same form: otherwise their length shows that no user has them.
"""

from typing import Final

SEED_BYTES: Final = 17
_UNUSED_BITS: Final = SEED_BYTES * 8 - 130
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def salt_of(seed: bytes) -> bytes:
    """The salt of at least 17 random bytes: mostly 25 or 26 digits."""
    assert len(seed) >= SEED_BYTES, len(seed)
    number = int.from_bytes(seed[:SEED_BYTES]) >> _UNUSED_BITS
    digits = bytearray()
    while number or not digits:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))
