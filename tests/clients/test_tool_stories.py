"""Stories of tools, crosswise: our tools on Kafka's brokers, and Kafka's own tools on ours.

What each is held to is what Kafka's tools said on Kafka's brokers (`tests/recorded/stories`); that
ours on ours say it, `tests/recorded/test_stories.py` holds, without Java.
"""

import pathlib

import pytest
from tests.recorded.stories import NAMES, Call, read_story
from tool_stories import compared, play

pytestmark = pytest.mark.jvm

# Kafka's tools speak to ZooKeeper, and ours to the embedded store.
WITH_ZOOKEEPER = {"zookeeper", "quotas", "configs"}
# A consumer of theirs is ended with its process, and here all share one.
IN_ONE_PROCESS = {"consoles", "perf"}


@pytest.mark.parametrize("name", NAMES)
def test_our_tools_say_on_kafkas_brokers_what_kafkas_say(name: str, tmp_path: pathlib.Path) -> None:
    told = play(read_story(name), tmp_path, apaches_brokers=True, javas_tools=False)

    assert told
    assert compared(told) == []


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITH_ZOOKEEPER - IN_ONE_PROCESS))
def test_kafkas_tools_say_on_our_brokers_what_they_say_on_kafkas(
    name: str, tmp_path: pathlib.Path
) -> None:
    told = play(read_story(name), tmp_path, apaches_brokers=False, javas_tools=True)

    assert sum(isinstance(step, Call) for step in read_story(name).steps) == len(told)
    assert compared(told) == []
