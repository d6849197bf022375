"""The pages of the stories."""

import asyncio
import json
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import pytest
from tests.asgi import request

from odradek.web.app import create_app
from odradek.web.stories.alignment import aligned
from odradek.web.stories.catalogue import catalogue, play
from odradek.web.stories.pages import StoryShelf, story_view

NAME = "unclean-election"  # with two runs of different lengths


@cache
def played():
    return play(NAME)


class OnePlayed(StoryShelf):
    def __init__(self, story):
        super().__init__()
        self.story = story

    async def played(self, name):
        del name
        return self.story


def asked(path, accept="text/html"):
    app = create_app(None)
    app.state.story_shelf = OnePlayed(played())
    return request(app, "GET", path, {"accept": accept, "host": "localhost"})


def test_the_shelf_has_all_stories():
    text = asked("/stories").text
    assert all(f'href="/stories/{story.name}"' in text for story in catalogue())
    stories = json.loads(asked("/stories", "application/json").text)["stories"]
    assert [story["name"] for story in stories] == [story.name for story in catalogue()]


def test_a_step_is_readable_without_javascript():
    text = asked(f"/stories/{NAME}?step=2").text
    frame = played().runs[0].frames[1]
    assert frame.sentences[0] in text
    assert 'href="?step=1"' in text
    assert 'href="?step=3"' in text
    assert text.count("<svg") > 2


def test_the_first_and_the_last_step_have_no_step_before_and_after():
    steps = len(played().steps)
    assert 'rel="prev"' not in asked(f"/stories/{NAME}").text
    assert 'rel="next"' not in asked(f"/stories/{NAME}?step={steps + 5}").text


def test_the_ids_of_two_runs_differ():
    text = asked(f"/stories/{NAME}?step=9").text
    body = text[text.index("<article") : text.index("</article>")]
    ids = [part.split('"')[0] for part in body.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


def test_json_has_all_steps():
    value = json.loads(asked(f"/stories/{NAME}", "application/json").text)
    assert [len(run["frames"]) for run in value["runs"]] == [
        len(run.frames) for run in played().runs
    ]
    assert value["steps"] == [list(step) for step in played().steps]
    assert value["runs"][0]["frames"][0]["lanes"][0]["lanes"][0]["leo"] == 0


def test_the_code_that_a_story_names_can_be_read():
    answer = asked(f"/stories/{NAME}/controller/election.py")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "unclean" in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("none", 404),
        (f"{NAME}?step=x", 400),
        (f"{NAME}/web/app.py", 404),
        (f"{NAME}/../../controller/election.py", 404),
    ],
)
def test_what_is_not_there_is_refused(path, status):
    assert asked(f"/stories/{path}").status_code == status


def test_both_runs_show_the_same_moment_of_the_plan():
    columns = [story_view(played(), step).columns for step in range(1, len(played().steps) + 1)]
    for left, right in columns:
        assert left.is_new or right.is_new
    killed = [
        [any("broker 0 is killed" in each for each in run.frame.sentences) for run in step]
        for step in columns
    ]
    assert [True, True] in killed
    assert len(columns) < sum(len(run.frames) for run in played().runs)


def test_a_run_in_which_nothing_happens_at_a_step_says_so():
    steps = [story_view(played(), step) for step in range(1, len(played().steps) + 1)]
    waits = [step for step in steps if not step.columns[0].is_new and not step.columns[0].is_over]
    assert waits
    text = asked(f"/stories/{NAME}?step={waits[0].step}").text
    assert text.count("nothing happens in this run at this step") == 1
    listed = waits[0].sentences[waits[0].step - 1]
    assert listed == f"{waits[0].columns[1].title}: {waits[0].columns[1].frame.sentences[0]}"


def test_a_partition_is_drawn_on_one_axis_in_both_runs():
    for step in range(1, len(played().steps) + 1):
        pictures = [column.pictures[0] for column in story_view(played(), step).columns]
        one, other = (
            [each.text for each in ElementTree.fromstring(picture).iter() if is_number(each)]
            for picture in pictures
        )
        assert one == other


def is_number(element):
    return element.get("class") == "axis-number"


def test_a_run_that_has_ended_stays_at_its_last_frame():
    short, long = sorted(played().runs, key=lambda run: len(run.frames))
    runs = (replace(short, frames=short.frames[:3]), long)
    shown = replace(played(), runs=runs, steps=aligned([run.frames for run in runs]))
    view = story_view(shown, len(shown.steps))
    assert view.columns[0].is_over
    assert view.columns[0].frame == short.frames[2]
    assert view.columns[1].is_damaged
    assert not view.columns[1].is_over
    assert all(ElementTree.fromstring(picture) for picture in view.columns[1].pictures)


def test_a_story_is_played_once_in_another_process():
    async def twice():
        shelf = StoryShelf()
        one = await shelf.played("high-watermark")
        assert await shelf.played("high-watermark") is one
        return one

    assert asyncio.run(twice()) == play("high-watermark")
