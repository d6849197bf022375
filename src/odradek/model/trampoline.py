"""Runs a state machine: hands in an event, then all that follows from it, in one order.

Effects are carried out one after the other. The outcomes of one are handled, with all that follows
from them, before the next: a list of effects reads as a program. Shells, tests and the simulator
run all state machines by this class, so what is tested is what a broker does.
"""

from collections.abc import Callable, Iterator, Sequence
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
    """What is left to do of the event that one machine handles, and of all that follows from it."""

    def __init__(self, handle: Callable[[E], Sequence[F]]) -> None:
        """`handle` hands an event to the machine; it is not called while it runs."""
        self._handle = handle
        self._outcomes: list[E] = []  # of the effect that is carried out
        self._is_running = False

    def settle(self, event: E) -> Iterator[F | None]:
        """Handle an event; the effects, for a caller that carries them out with pauses.

        The caller carries out each effect, and reports its outcomes before it takes the next. At a
        None, which comes before each event that follows, other tasks may run.
        """
        # Those of an event, and above them those of an outcome of one of these, and so on.
        left: list[Iterator[F | None]] = [iter(self._handle(event))]
        while left:
            for effect in left[-1]:
                yield effect
                if self._outcomes:
                    left += map(self._follow, reversed(self._outcomes))
                    self._outcomes.clear()
                    break
            else:
                left.pop()

    def _follow(self, outcome: E) -> Iterator[F | None]:
        yield None
        yield from self._handle(outcome)

    def report(self, *outcomes: E) -> None:
        """What became of the effect that was carried out last."""
        self._outcomes += outcomes

    def run(self, event: E, perform: Callable[[F], object]) -> None:
        """Handle an event and carry out all effects, without a pause.

        An event that comes while an effect is carried out is an outcome of that effect. An error
        does not keep the rest from being handled and carried out.

        Raises:
            ExceptionGroup: there were several errors; the error itself if it was one.
        """
        if self._is_running:
            self._outcomes.append(event)
            return
        errors: list[Exception] = []
        self._is_running = True
        try:
            self._run(event, perform, errors)
        finally:
            self._is_running = False
        if len(errors) > 1:
            raise ExceptionGroup(f"{len(errors)} events were not handled", errors)
        if errors:
            raise errors[0]

    def _run(self, event: E, perform: Callable[[F], object], errors: list[Exception]) -> None:
        try:
            for effect in self._handle(event):
                perform(effect)
                if self._outcomes:
                    self._run_outcomes(perform, errors)
        except Exception as error:
            errors.append(error)
            self._run_outcomes(perform, errors)

    def _run_outcomes(self, perform: Callable[[F], object], errors: list[Exception]) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for outcome in outcomes:
            self._run(outcome, perform, errors)
