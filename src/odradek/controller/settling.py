"""How one event is settled: the order in which effects are carried out and outcomes handled.

The controller's shell, the golden texts and the property tests all use this class, so what is
tested is what a broker does.
"""

from collections.abc import Iterable, Iterator

from odradek.controller.controller import Controller
from odradek.controller.effects import Effect, Proceed
from odradek.controller.events import Event


class Settling(Iterator[Effect]):
    """The effects of an event, and of all that follows from it, in order.

    The caller carries out each effect, and reports its outcomes before the next: these are
    handled first, with all their effects. At a `Proceed` other tasks may run.
    """

    def __init__(self, controller: Controller, event: Event) -> None:
        self._controller = controller
        self._stack = controller.handle(event)[::-1]
        self._step: Event | None = None

    def __next__(self) -> Effect:
        if self._step is not None:
            self._stack += self._controller.handle(self._step)[::-1]
            self._step = None
        if not self._stack:
            raise StopIteration
        effect = self._stack.pop()
        if isinstance(effect, Proceed):
            self._step = effect.step
        return effect

    def report(self, outcomes: Iterable[Event]) -> None:
        """What became of the effect that was carried out last."""
        self._stack += [Proceed(outcome) for outcome in outcomes][::-1]
