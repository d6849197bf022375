"""Records what is handed to the controller's state machine, one file for each term.

Off unless `odradek.controller.events.max.bytes` is set. A file has at most so many bytes; the files
of the last two terms are kept. `odradek.controller.recording` has the format, and replays a file.
Lines are written at once and not flushed: after a crash of the host the last ones may be missing.
"""

from collections.abc import Callable
from typing import Final

from odradek import __version__
from odradek.controller.controller import Controller
from odradek.controller.effects import Effect
from odradek.controller.events import Event
from odradek.controller.recording import Ended, Entry, Handled, Term, kinds, to_line
from odradek.log.disk import Disk, File, StorageError
from odradek.model.clock import Clock, read_clocks
from odradek.model.plain import NotPlainError

TERMS_KEPT: Final = 2
_PREFIX: Final = "controller-events-"
_SUFFIX: Final = ".jsonl"
_REASON_CHARS_MAX: Final = 200
_END_BYTES: Final = 2_000  # is left for the last line


def recording_name(controller_epoch: int) -> str:
    """The file of a term, in the first log directory. Names sort by controller epoch."""
    return f"{_PREFIX}{controller_epoch:010d}{_SUFFIX}"


class EventRecorder:
    """The recordings of one broker's terms as controller."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        clock: Clock,
        *,
        broker_id: int,
        bytes_max: int,
        note: Callable[[str], None],
    ) -> None:
        """`bytes_max` 0: nothing is recorded. `note` gets what an operator should know."""
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self._broker_id = broker_id
        self._bytes_max = bytes_max
        self._note = note
        self._file: File | None = None
        self._written = 0

    def begin(self, controller: Controller) -> Callable[[Event], list[Effect]]:
        """Record the term of a new controller; what to call instead of its `handle`."""
        if not self._bytes_max:
            return controller.handle
        epoch = controller.context.controller_epoch
        try:
            self._remove_old()
            file = self._file = self._disk.create(f"{self._directory}/{recording_name(epoch)}")
        except StorageError as error:
            self._failed(error)
            return controller.handle
        self._written = 0
        self._write(file, Term(epoch, controller.deletion_enabled, self._broker_id, __version__))

        def handle(event: Event) -> list[Effect]:
            now = read_clocks(self._clock)
            try:
                effects = controller.handle(event)
            except Exception:
                self._record(Handled(event, None, now))
                raise
            self._record(Handled(event, kinds(effects), now))
            return effects

        return handle

    def end(self, reason: str) -> None:
        """The term is over."""
        if self._file is not None:
            self._write(self._file, Ended(reason[:_REASON_CHARS_MAX], read_clocks(self._clock)))
            self._file = None

    def _record(self, entry: Handled) -> None:
        if self._file is not None:
            self._write(self._file, entry)

    def _write(self, file: File, entry: Entry) -> None:
        try:
            line = to_line(entry).encode()
            is_full = self._written + len(line) > self._bytes_max - _END_BYTES
            if is_full and not isinstance(entry, Ended):
                reason = f"odradek.controller.events.max.bytes={self._bytes_max} is reached"
                self._note(f"{file.path} ends: {reason}; the next term has a file of its own")
                self.end(reason)
                return
            file.write(self._written, [line])
            self._written += len(line)
        except (StorageError, NotPlainError) as error:
            self._failed(error)

    def _failed(self, error: StorageError | NotPlainError) -> None:
        self._note(f"the events of this term are not recorded any more: {error}")
        self._file = None

    def _remove_old(self) -> None:
        names = [entry.name for entry in self._disk.list(self._directory)]
        files = [name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
        for name in sorted(files)[: 1 - TERMS_KEPT]:
            self._disk.unlink(f"{self._directory}/{name}")
