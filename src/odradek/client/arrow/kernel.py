"""Which kernel turns records into columns and columns into records, and what it is given.

Two compute the same: `odradek_fast`, compiled, a package of its own that is used where it is
installed; and `odradek.client.arrow.numpy_kernel`, which needs numpy and pyarrow alone. The
environment variable ODRADEK_KERNEL (`fast` or `numpy`) chooses one by name.

A kernel has three functions:

    decode(body, batches, wanted)     decompressed records -> `Columns`
    encode(batches, timestamps, key, value, headers)     columns -> (body, ends of batches)
    murmur2(offsets, data)            Kafka's hash of each value, uint32

`batches` of `decode` are six int64 for each batch: start and end in the body, count, base offset,
base timestamp, append time (`NO_APPEND_TIME`: each record has its own timestamp). `wanted` is a
sum of `KEY` to `OFFSET`. Damage is a ValueError: which record it was, and how, is then found out
by `odradek.record.records`.

`batches` of `encode` are int64 row numbers: the first row of each batch, then the count of rows.
A binary column is (int32 offsets, data, a byte for each value that is 0 where it is null, or None
if none is); headers are (int32 list offsets, key column, value column).
"""

import importlib
import os
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from odradek.model.errors import OdradekError

KEY: Final = 1
VALUE: Final = 2
HEADERS: Final = 4
TIMESTAMP: Final = 8
OFFSET: Final = 16

NO_APPEND_TIME: Final = -(1 << 63)

Buffer: TypeAlias = Any  # whatever has the buffer protocol: bytes, memoryview, pyarrow.Buffer
# offsets, data, validity bitmap or None, count of nulls
BinaryColumn: TypeAlias = tuple[Buffer, Buffer, Buffer | None, int]
# list offsets, validity bitmap or None, count of nulls, keys, values
HeadersColumn: TypeAlias = tuple[Buffer, Buffer | None, int, BinaryColumn, BinaryColumn]
# offsets, data, validity bytes or None
BinaryInput: TypeAlias = tuple[Buffer, Buffer, Buffer | None]
HeadersInput: TypeAlias = tuple[Buffer, BinaryInput, BinaryInput]


class Columns(NamedTuple):
    """What was asked for of some records; None where it was not."""

    rows: int
    offsets: Buffer | None
    timestamps: Buffer | None
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeadersColumn | None


class Kernel(Protocol):
    """The work for each record. See this file's head for the arguments."""

    def decode(self, body: Buffer, batches: Buffer, wanted: int, /) -> tuple[Any, ...]:
        """The fields of `Columns`.

        Raises:
            ValueError: a batch is not exactly its count of well-formed records.
        """

    def encode(
        self,
        batches: Buffer,
        timestamps: Buffer,
        key: BinaryInput | None,
        value: BinaryInput | None,
        headers: HeadersInput | None,
        /,
    ) -> tuple[Buffer, Buffer]:
        """The records of all batches, and where (int64) each batch ends among them."""

    def murmur2(self, offsets: Buffer, data: Buffer, /) -> Buffer:
        """Kafka's hash of each value, uint32."""


class KernelError(OdradekError):
    """ODRADEK_KERNEL names a kernel that is not there."""


@cache
def kernel(name: str | None = None) -> Kernel:
    """The kernel of this name; None: what ODRADEK_KERNEL says, else the best that is installed.

    Raises:
        KernelError: there is none of this name, or it is not installed.
    """
    wanted = name or os.environ.get("ODRADEK_KERNEL", "")
    if wanted not in {"", "fast", "numpy"}:
        raise KernelError(f"ODRADEK_KERNEL={wanted}: must be fast or numpy")
    if wanted != "numpy":
        try:
            return cast("Kernel", importlib.import_module("odradek_fast"))
        except ImportError:
            if wanted:
                raise KernelError("the kernel 'fast' needs the package odradek-fast") from None
    return cast("Kernel", importlib.import_module("odradek.client.arrow.numpy_kernel"))
