"""What `async with` means for everything that is opened here: it is closed when the block ends."""

from types import TracebackType
from typing import Self


class Closing:
    """Whoever has a `close`. Leaving its `async with` is calling that."""

    async def close(self) -> None:
        """Give back what it holds."""
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
