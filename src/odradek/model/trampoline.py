"""Runs a state machine: one event at a time, and the effects of each before the next event."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from odradek.model.clock import Now

E = TypeVar("E")
F = TypeVar("F")
E_contra = TypeVar("E_contra", contravariant=True)
F_co = TypeVar("F_co", covariant=True)


class Machine(Protocol[E_contra, F_co]):
    """A pure state machine; `handle` is the only way in."""

    def handle(self, event: E_contra, now: Now) -> Sequence[F_co]:
        """Take one event; return what is to be done about it, in this order."""


class Trampoline(Generic[E, F]):
    """Gives events to one machine and carries its effects out.

    An event that comes while effects are carried out (the outcome of one of them, say) is handled
    after all of these.
    """

    def __init__(
        self,
        machine: Machine[E, F],
        perform: Callable[[F], object],
        now: Callable[[], Now],
    ) -> None:
        self._machine = machine
        self._perform = perform
        self._now = now
        self._events: deque[E] = deque()
        self._is_running = False

    def handle(self, event: E) -> None:
        """Handle an event, and all that follow from it.

        An error in one event does not keep those behind it from being handled.

        Raises:
            ExceptionGroup: several events failed; the error itself where it was one.
        """
        if self._is_running:
            self._events.append(event)
            return
        errors: list[Exception] = []
        self._is_running = True
        try:
            self._handle_one(event, errors)
            while self._events:
                self._handle_one(self._events.popleft(), errors)
        finally:
            self._is_running = False
        if len(errors) > 1:
            raise ExceptionGroup(f"{len(errors)} events were not handled", errors)
        if errors:
            raise errors[0]

    def _handle_one(self, event: E, errors: list[Exception]) -> None:
        try:
            for effect in self._machine.handle(event, self._now()):
                self._perform(effect)
        except Exception as error:
            errors.append(error)
