"""The interface of kernels, which turn records into columns and columns into records.

There are two: `odradek_fast`, a compiled package that is used if it is installed, and
`odradek.client.arrow.numpy_kernel`, which needs only numpy and pyarrow. The environment variable
ODRADEK_KERNEL (`fast` or `numpy`) selects one.

A kernel has three functions:

    decode(body, batches, wanted)     decompressed records -> `Columns`
    encode(batches, timestamps, key, value, headers)     columns -> (body, ends of batches)
    murmur2(offsets, data)            Kafka's hash of each value, uint32

`batches` of `decode` are six int64 for each batch: start and end in the body, count, base offset,
base timestamp, append time (`NO_APPEND_TIME`: each record has its own timestamp). `wanted` is a
sum of `KEY` to `OFFSET`. Damaged records raise ValueError; `odradek.record.records` then finds out
which record is damaged, and how.

`batches` of `encode` are int64 row numbers: the first row of each batch, then the number of rows.
A binary column is (int32 offsets, data, one byte a value that is 0 for null, or None if there are
no nulls); headers are (int32 list offsets, key column, value column).
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

Buffer: TypeAlias = Any  # any object with the buffer protocol: bytes, memoryview, pyarrow.Buffer
# offsets, data, validity bitmap or None, count of nulls
BinaryColumn: TypeAlias = tuple[Buffer, Buffer, Buffer | None, int]
# list offsets, validity bitmap or None, count of nulls, keys, values
HeadersColumn: TypeAlias = tuple[Buffer, Buffer | None, int, BinaryColumn, BinaryColumn]
# offsets, data, validity bytes or None
BinaryInput: TypeAlias = tuple[Buffer, Buffer, Buffer | None]
HeadersInput: TypeAlias = tuple[Buffer, BinaryInput, BinaryInput]


class Columns(NamedTuple):
    """The decoded columns; None for those that were not requested."""

    rows: int
    offsets: Buffer | None
    timestamps: Buffer | None
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeadersColumn | None


class Kernel(Protocol):
    """The work on each record. The module's docstring describes the arguments."""

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
    """ODRADEK_KERNEL names a kernel that does not exist or is not installed."""


@cache
def kernel(name: str | None = None) -> Kernel:
    """The kernel of this name; None: that of ODRADEK_KERNEL, or the fastest installed one.

    Raises:
        KernelError: the name is unknown, or the kernel is not installed.
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
