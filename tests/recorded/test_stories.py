"""Stories of Kafka 3.9.2's tools, replayed with our tools against a cluster of ours."""

import pytest
from tests.recorded.clusters import Cluster, OurCluster, run_step
from tests.recorded.recording import differences
from tests.recorded.stories import NAMES, Call, Story, read_story


@pytest.fixture
def cluster(request, tmp_path):
    story = read_story(request.param)
    made = OurCluster(tmp_path, brokers=story.brokers, racks=story.racks, options=story.options)
    try:
        made.start()
        yield made, story
    finally:
        made.close()


def play(cluster: Cluster, story: Story) -> list[str]:
    """The differences of each call."""
    found = []
    for step in story.steps:
        if not isinstance(step, Call):
            run_step(cluster, step)
            continue
        recorded = step.recording
        for file, text in recorded.files.items():
            (cluster.home / file).write_text(text)
        if recorded.code == "timeout":
            result = cluster.run_for(recorded.tool, recorded.arguments, recorded.stdin, timeout_s=5)
        else:
            result = cluster.run(recorded.tool, recorded.arguments, recorded.stdin)
        found += [
            f"{step.text[0]}\n  {what}" for what in differences(recorded, *result, step.allowed)
        ]
    return found


@pytest.mark.parametrize("cluster", NAMES, indirect=True)
def test_a_story_has_the_output_of_kafkas_tools(cluster):
    found = play(*cluster)

    assert not found, "\n".join(found)
