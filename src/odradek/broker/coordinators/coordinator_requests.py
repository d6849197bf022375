"""The requests that wait for an answer of a coordinator's state machine."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

A = TypeVar("A")


class _Request(Generic[A]):
    __slots__ = ("answer", "future")

    def __init__(self) -> None:
        self.answer: A | None = None
        self.future: asyncio.Future[A] | None = None


class CoordinatorRequests(Generic[A]):
    """By number; the number of a request is in its event and in the `Answer`."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Request[A]] = {}
        self._count = 0

    def ask(self, hand_in: Callable[[int], None]) -> "A | asyncio.Future[A]":
        """Number a request and hand it in; the answer, or a future if there is none yet."""
        self._count += 1
        number = self._count
        request: _Request[A] = _Request()
        self._waiting[number] = request
        try:
            hand_in(number)
        except BaseException:
            self._waiting.pop(number, None)
            raise
        if request.answer is not None:
            return request.answer
        request.future = asyncio.get_running_loop().create_future()
        return request.future

    def answer(self, number: int, answer: A) -> None:
        """Answer a request; its client may have closed the connection meanwhile."""
        request = self._waiting.pop(number, None)
        if request is None:
            return
        if request.future is None:
            request.answer = answer
        elif not request.future.done():
            request.future.set_result(answer)
