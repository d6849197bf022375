"""Kafka 3.9.2's recorded calls, replayed with our tools against a cluster of ours.

A scenario is a list of steps, in the order in which Kafka's calls were recorded: the name of a
recording, which is played and compared, or a command of ours that repeats what was done between
the recordings. All scenarios together play every recording except those that `NOT_PLAYED` leaves
out; a test checks this.
"""

import os

import pytest
from tests.recorded.clusters import Cluster, OurCluster, run_step
from tests.recorded.exceptions import DIFFERENT, NOT_PLAYED
from tests.recorded.recording import CALLS, SAME, differences, read
from tests.recorded.scenarios import SCENARIOS, Scenario

RECORDED = sorted(path.stem for path in CALLS.glob("*.txt"))


@pytest.fixture
def cluster(request, tmp_path):
    scenario: Scenario = request.param
    made = OurCluster(tmp_path, racks=scenario.racks, options=scenario.options)
    try:
        made.start()
        yield made
    finally:
        made.close()


def play(cluster: Cluster, name: str) -> list[str]:
    """What differs between a recorded call and ours."""
    recorded = read(name)
    for file, text in recorded.files.items():
        (cluster.home / file).write_text(text)
    if recorded.code == "timeout":
        result = cluster.run_for(recorded.tool, recorded.arguments, recorded.stdin, timeout_s=5)
    else:
        result = cluster.run(recorded.tool, recorded.arguments, recorded.stdin)
    return differences(recorded, *result, DIFFERENT.get(name, SAME))


@pytest.mark.parametrize("cluster", SCENARIOS, ids=str, indirect=True)
def test_a_recorded_scenario_has_the_recorded_output(cluster, request):
    scenario: Scenario = request.node.callspec.params["cluster"]
    differences = []
    for step in scenario.steps:
        if (CALLS / f"{step}.txt").exists():
            differences += [f"{step}: {what}" for what in play(cluster, step)]
        else:
            run_step(cluster, step)

    assert not differences, "\n".join(differences)


def test_every_recording_is_played_or_left_out_for_a_reason():
    played = [step for scenario in SCENARIOS for step in scenario.steps if step in RECORDED]

    assert sorted({*played, *NOT_PLAYED}) == RECORDED
    assert NOT_PLAYED.keys().isdisjoint(played)
    assert DIFFERENT.keys() <= set(played)
    assert all(os.linesep not in why for why in NOT_PLAYED.values())
