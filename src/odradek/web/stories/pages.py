"""The pages of the stories: the shelf, and one story with a step of it.

    /stories               the shelf
    /stories/NAME          the first step
    /stories/NAME?step=K   step K, counted from 1; JSON has all steps
    /stories/NAME/FILE     one of the files whose code it shows, as text

A story is played in a process of its own, because a historic rule holds for a whole process, and
kept from then on. It is the same whenever it is played.
"""

import asyncio
import pathlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.web.lanes.axis import axis_of
from odradek.web.lanes.drawing import SvgText, lanes_svg
from odradek.web.lanes.values import PartitionLanes
from odradek.web.rendering import wants_json
from odradek.web.stories.introductions import STORIES, find
from odradek.web.stories.values import Played, Story, StoryFrame

PACKAGE: Final = pathlib.Path(__file__).parents[2]


def play_here(name: str) -> Played:
    """Play a story in this process, which then has the code of brokers and simulator."""
    from odradek.web.stories.catalogue import play  # noqa: PLC0415 - the page needs none of it

    return play(name)


class StoryShelf:
    """Plays stories, one at a time, and keeps what was played."""

    def __init__(self, play_one: Callable[[str], Played] = play_here) -> None:
        self._play = play_one
        self._played: dict[str, Played] = {}
        self._playing = asyncio.Lock()

    async def played(self, name: str) -> Played:
        """A story that is in the catalogue, played to its end."""
        async with self._playing:
            if name not in self._played:
                loop = asyncio.get_running_loop()
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    self._played[name] = await loop.run_in_executor(pool, self._play, name)
            return self._played[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfView:
    """What the shelf shows."""

    stories: tuple[Story, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryColumn:
    """One run at one step."""

    title: str
    is_damaged: bool
    is_new: bool  # something happens in this run at this step
    is_over: bool  # all that happens in this run was at earlier steps
    frame: StoryFrame
    pictures: tuple[SvgText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryView:
    """A story at one step."""

    story: Story
    step: int  # counted from 1
    steps: int
    columns: tuple[StoryColumn, ...]
    sentences: tuple[str, ...]  # what happens first at each step, for the list of steps


def story_view(played: Played, step: int) -> StoryView:
    """What a page shows of a story at a step; the last step if there are fewer."""
    step = min(max(step, 1), len(played.steps))
    return StoryView(
        story=played.story,
        step=step,
        steps=len(played.steps),
        columns=_columns(played, step - 1),
        sentences=tuple(_first_sentence(played, index) for index in range(len(played.steps))),
    )


def _columns(played: Played, index: int) -> tuple[StoryColumn, ...]:
    """The runs at a step; a partition is drawn on one axis in all of them."""
    shown = played.steps[index]
    frames = [run.frames[at] for run, at in zip(played.runs, shown, strict=True)]
    lanes: dict[str, list[PartitionLanes]] = {}
    for each in (each for frame in frames for each in frame.lanes):
        lanes.setdefault(each.key, []).append(each)
    found = []
    for number, (run, frame) in enumerate(zip(played.runs, frames, strict=True)):
        is_last, is_new = frame is run.frames[-1], _is_new(played, index, number)
        found.append(
            StoryColumn(
                title=run.title,
                is_damaged=run.is_damaged and is_last,
                is_new=is_new,
                is_over=is_last and not is_new,
                frame=frame,
                pictures=tuple(
                    lanes_svg(each, prefix=f"run{number}-", axis=axis_of(*lanes[each.key]))
                    for each in frame.lanes
                ),
            )
        )
    return tuple(found)


def _is_new(played: Played, index: int, run: int) -> bool:
    return index == 0 or played.steps[index][run] != played.steps[index - 1][run]


def _first_sentence(played: Played, index: int) -> str:
    """What happens first at a step, with the title of its run if it happens in one of two only."""
    said = [
        (run.title, run.frames[at].sentences[0])
        for number, (run, at) in enumerate(zip(played.runs, played.steps[index], strict=True))
        if _is_new(played, index, number)
    ]
    if len(said) == len(played.runs) and len({sentence for _, sentence in said}) == 1:
        return said[0][1]
    return " ".join(f"{title}: {sentence}" for title, sentence in said)


async def shelf(request: Request) -> Response:
    """Answer the list of all stories."""
    response: Response = request.app.state.render(
        request, "stories.html", ShelfView(stories=STORIES)
    )
    return response


async def story(request: Request) -> Response:
    """Answer a story at a step, or as JSON with all steps."""
    name = request.path_params["name"]
    if find(name) is None:
        raise HTTPException(404, f"there is no story {name!r}")
    played = await _shelf_of(request).played(name)
    value = played if wants_json(request) else story_view(played, _step(request))
    response: Response = request.app.state.render(request, "story.html", value)
    return response


async def code(request: Request) -> Response:
    """Answer a file of the code that a story names."""
    name, file = request.path_params["name"], request.path_params["file"]
    known = find(name)
    if known is None or file not in known.files:
        raise HTTPException(404, f"the story {name!r} has no file {file!r}")
    return Response((PACKAGE / file).read_bytes(), media_type="text/plain; charset=utf-8")


def _shelf_of(request: Request) -> StoryShelf:
    state = request.app.state
    if not hasattr(state, "story_shelf"):
        state.story_shelf = StoryShelf()
    found: StoryShelf = state.story_shelf
    return found


def _step(request: Request) -> int:
    text = request.query_params.get("step", "1")
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise HTTPException(400, f"step={text!r}, must be a number")
    return int(text)


ROUTES: Final = (
    Route("/stories", shelf),
    Route("/stories/{name}", story),
    Route("/stories/{name}/{file:path}", code),
)
