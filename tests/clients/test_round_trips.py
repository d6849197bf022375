"""Unmodified clients read back unchanged what they wrote, with each codec and acks.

Seven client libraries in eight programs (the Java client in two versions) are given the same
plan; see `rounds.py`. A program runs once and its rounds are checked one by one.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
import rounds
from harness import Cluster, run_program
from programs import CLIENTS, each_client

# These clients refuse to send what the protocol allows.
WITHOUT_NULL_HEADER_VALUES = {"kafka_python", "kafkajs"}


@pytest.fixture(scope="session")
def reports(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, tuple[rounds.Round, dict[str, Any]]]]:
    """Each client's rounds by name, with its report on each; the program runs at first use."""
    known: dict[str, dict[str, tuple[rounds.Round, dict[str, Any]]]] = {}
    failed: dict[str, str] = {}

    def report_of(client: str) -> dict[str, tuple[rounds.Round, dict[str, Any]]]:
        if client in failed:
            pytest.fail(failed[client])
        if client not in known:
            failed[client] = f"{client} had failed before"
            asked = rounds.all_rounds(
                f"{client}-{time.time_ns():x}",
                null_header_values=client not in WITHOUT_NULL_HEADER_VALUES,
            )
            file = tmp_path_factory.mktemp(client) / "plan.json"
            file.write_text(rounds.plan(asked))
            command = [*CLIENTS[client](), cluster.bootstrap, "round_trips", str(file)]
            report = run_program(command, timeout_s=180)
            seen = {each["topic"]: each for each in report["rounds"]}
            known[client] = {str(each): (each, seen[each.topic]) for each in asked}
            del failed[client]
        return known[client]

    return report_of


@pytest.mark.parametrize("name", [str(each) for each in rounds.all_rounds("")])
@pytest.mark.parametrize("client", each_client())
def test_every_record_written_is_read_back_unchanged(
    reports: Callable[[str], dict[str, tuple[rounds.Round, dict[str, Any]]]],
    client: str,
    name: str,
) -> None:
    asked, seen = reports(client)[name]
    assert list(rounds.problems(asked, seen)) == []
