"""Places in the user's own code, for messages: file and line, without frames of libraries."""

import asyncio
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any, Final

import odradek

_LIBRARIES: Final = tuple(
    str(Path(path).resolve())
    for path in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        str(Path(odradek.__file__).parent),
    }
)


def is_users(file_name: str) -> bool:
    """Whether a file is not the standard library's, an installed package's or Odradek's."""
    return not file_name.startswith(("<", *_LIBRARIES))


def place_of(due: Any) -> str:
    """Where the user's code is: of a due step of a task, or of the caller if `due` is None."""
    if due is None:
        frames = _callers(sys._getframe(1))  # noqa: SLF001 - the only way to the caller's frame
    else:
        task = getattr(due._callback, "__self__", None)  # noqa: SLF001 - our own handle
        frames = _stack(task) if isinstance(task, asyncio.Task) else []
    return where(frames) or "a place outside of the test's own code"


def where(frames: list[FrameType]) -> str:
    """The innermost frame of the user's code as `file.py:12 (function)`; frames inside first."""
    for frame in frames:
        code = frame.f_code
        if is_users(code.co_filename):
            return f"{Path(code.co_filename).name}:{frame.f_lineno} ({code.co_name})"
    return ""


def _stack(task: "asyncio.Task[Any]") -> list[FrameType]:
    """The frames of a waiting task, the innermost first; `Task.get_stack` has the outermost."""
    frames: list[FrameType] = []
    work: Any = task.get_coro()
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        frame = frame or getattr(work, "ag_frame", None)
        if frame is None:
            break
        frames.insert(0, frame)
        work = (
            getattr(work, "cr_await", None)
            or getattr(work, "gi_yieldfrom", None)
            or getattr(work, "ag_await", None)
        )
    return frames


def _callers(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames
