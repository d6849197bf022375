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

from odradek.web.lanes.drawing import SvgText, lanes_svg
from odradek.web.rendering import wants_json
from odradek.web.stories.introductions import STORIES, find
from odradek.web.stories.values import Played, Story, StoryFrame, StoryRun

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
    is_over: bool  # the run ended at an earlier step
    frame: StoryFrame
    pictures: tuple[SvgText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryView:
    """A story at one step."""

    story: Story
    step: int  # counted from 1
    steps: int
    columns: tuple[StoryColumn, ...]
    sentences: tuple[str, ...]  # the first of each step, for the list of steps


def story_view(played: Played, step: int) -> StoryView:
    """What a page shows of a story at a step; the last step if there are fewer."""
    step = min(max(step, 1), played.steps)
    longest = max(played.runs, key=lambda run: len(run.frames))
    return StoryView(
        story=played.story,
        step=step,
        steps=played.steps,
        columns=tuple(
            _column(run, step, f"run{number}-") for number, run in enumerate(played.runs)
        ),
        sentences=tuple(frame.sentences[0] for frame in longest.frames),
    )


def _column(run: StoryRun, step: int, prefix: str) -> StoryColumn:
    index = min(step, len(run.frames)) - 1
    frame = run.frames[index]
    return StoryColumn(
        title=run.title,
        is_damaged=run.is_damaged and index == len(run.frames) - 1,
        is_over=step > len(run.frames),
        frame=frame,
        pictures=tuple(lanes_svg(lanes, prefix=prefix) for lanes in frame.lanes),
    )


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
