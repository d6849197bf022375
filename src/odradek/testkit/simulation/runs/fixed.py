"""Python with the same addresses each time: `python -m ...simulation.runs.fixed ARGUMENTS`.

Sets of objects are ordered by the objects' addresses, and before Python 3.12 so is everything that
contains None. Linux places memory at random, unless a process asks it not to. Where that is not
allowed (some containers), Python starts as usual.
"""

import ctypes
import os
import sys
from contextlib import suppress
from typing import Final

_ADDR_NO_RANDOMIZE: Final = 0x0040000
_ASK: Final = 0xFFFFFFFF


def main() -> None:
    """Replace this process by Python with the arguments."""
    with suppress(OSError, AttributeError):  # no Linux
        personality = ctypes.CDLL(None).personality
        known = personality(ctypes.c_ulong(_ASK))
        if known >= 0:
            personality(ctypes.c_ulong(known | _ADDR_NO_RANDOMIZE))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
