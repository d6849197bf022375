"""Two runs of a story are shown at the same moment of the plan."""

import pytest

from odradek.web.stories.alignment import aligned
from odradek.web.stories.values import StoryFrame


def frames(text):
    """One frame a line: `0.5 what happens. And what else.`"""
    found = []
    for line in text.strip().splitlines():
        at_s, _, said = line.strip().partition(" ")
        found.append(
            StoryFrame(
                at_s=float(at_s), sentences=tuple(f"{s.strip()}." for s in said.split(".") if s),
                controller=None, controller_epoch=0, brokers=(), stored=(), lanes=(),
            )
        )  # fmt: skip
    return found


def shown(left, right):
    """For each step what each of the runs shows."""
    runs = [frames(left), frames(right)]
    return [
        " | ".join(run[at].sentences[0] for run, at in zip(runs, step, strict=True))
        for step in aligned(runs)
    ]


def test_a_single_run_has_a_step_for_each_frame():
    assert aligned([frames("0 a.\n1 b.")]) == ((0,), (1,))


def test_the_same_event_is_one_step_though_one_run_reaches_it_later():
    assert shown(
        """
        0.0 There are 3 brokers.
        1.0 Broker 0 is killed.
        7.0 Broker 1 is started.
        """,
        """
        0.0 There are 3 brokers.
        1.0 Broker 0 is killed.
        1.5 Broker 1 truncates.
        2.0 Broker 1 is started.
        """,
    ) == [
        "There are 3 brokers. | There are 3 brokers.",
        "Broker 0 is killed. | Broker 0 is killed.",
        "Broker 0 is killed. | Broker 1 truncates.",
        "Broker 1 is started. | Broker 1 is started.",
    ]


def test_between_two_common_events_time_is_counted_from_the_first():
    assert shown(
        """
        0.0 begin.
        10.0 kill.
        10.2 a follows.
        10.4 a leads.
        """,
        """
        0.0 begin.
        3.0 kill.
        3.1 b follows.
        3.2 b fetches.
        3.9 b leads.
        """,
    ) == [
        "begin. | begin.",
        "kill. | kill.",
        "kill. | b follows.",
        "a follows. | b fetches.",
        "a leads. | b fetches.",
        "a leads. | b leads.",
    ]


def test_a_run_that_has_ended_stays_at_its_last_frame():
    assert shown("0 begin.\n1 end.", "0 begin.\n1 end.\n2 more.\n3 and more.") == [
        "begin. | begin.",
        "end. | end.",
        "end. | more.",
        "end. | and more.",
    ]


def test_an_event_that_happens_again_belongs_to_the_nearest_one():
    assert shown(
        "0 begin.\n1 ack.\n9 ack.\n10 end.",
        "0 begin.\n9 ack.\n10 end.",
    ) == ["begin. | begin.", "ack. | begin.", "ack. | ack.", "end. | end."]


def test_frames_with_more_sentences_in_common_belong_together():
    assert shown(
        "0 begin.\n1 ack.\n2 sent. ack.",
        "0 begin.\n1.1 sent. ack.",
    ) == ["begin. | begin.", "ack. | begin.", "sent. | sent."]


def test_two_frames_at_one_instant_are_two_steps():
    assert shown("0 begin.\n1 act.\n1 kill.", "0 begin.\n1 other.") == [
        "begin. | begin.",
        "act. | other.",
        "kill. | other.",
    ]


@pytest.mark.parametrize("other", ["0 begin.", "0 begin.\n5 x.\n6 b.\n7 a."])
def test_every_frame_is_shown_in_order(other):
    runs = [frames("0 begin.\n1 a.\n2 b.\n3 c.\n3 d."), frames(other)]
    steps = aligned(runs)
    for number, run in enumerate(runs):
        indices = [step[number] for step in steps]
        assert indices == sorted(indices)
        assert set(indices) == set(range(len(run)))
    assert len(set(steps)) == len(steps)
