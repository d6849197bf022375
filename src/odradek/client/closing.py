"""The base class of everything in the client that is closed by `async with`."""

from types import TracebackType
from typing import Self


class Closing:
    """An asynchronous context manager that calls `close` at the end of the block."""

    async def close(self) -> None:
        """Release connections, tasks and memory. Idempotent."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
