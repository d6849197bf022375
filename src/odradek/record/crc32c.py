"""CRC-32C, the checksum of every batch and of every producer snapshot.

A batch's checksum covers everything from its attributes to its end. A broker may set the fields
before them (base offset, length, leader epoch, magic) without computing the checksum again.

It takes 1 us for 25-30 KB; above 32 KiB the library releases the GIL.
"""

from crc32c import crc32c

__all__ = ["crc32c"]
