"""Stories of tools, crosswise: our tools on Kafka's brokers, and Kafka's own tools on ours.

Each is compared with the output of Kafka's tools on Kafka's brokers (`tests/recorded/stories`); our
tools on our brokers are tested by `tests/recorded/test_stories.py`, without Java.
"""

import pathlib

import pytest
from tests.recorded.stories import NAMES, Call, read_story
from tool_stories import compared, play

pytestmark = pytest.mark.jvm

# Kafka's tools connect to ZooKeeper, and ours to the embedded store.
WITH_ZOOKEEPER = {"zookeeper", "quotas", "configs"}
# Kafka's consumer ends with its process, and here all calls share one.
IN_ONE_PROCESS = {"consoles", "perf"}


@pytest.mark.parametrize("name", NAMES)
def test_our_tools_print_on_kafkas_brokers_what_kafkas_print(
    name: str, tmp_path: pathlib.Path
) -> None:
    reported = play(read_story(name), tmp_path, apaches_brokers=True, javas_tools=False)

    assert reported
    assert compared(reported) == []


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITH_ZOOKEEPER - IN_ONE_PROCESS))
def test_kafkas_tools_print_on_our_brokers_what_they_print_on_kafkas(
    name: str, tmp_path: pathlib.Path
) -> None:
    reported = play(read_story(name), tmp_path, apaches_brokers=False, javas_tools=True)

    assert sum(isinstance(step, Call) for step in read_story(name).steps) == len(reported)
    assert compared(reported) == []
