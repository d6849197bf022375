"""Makes the values that the sentences and the doctor use from the reports of the brokers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from odradek.client.admin.state import describe_state
from odradek.client.cluster import Cluster
from odradek.explain.reports import Asked, Query
from odradek.explain.sentences import Picture
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError
from odradek.model.sentence import sentence
from odradek.plan.cluster import ClusterPicture
from odradek.plan.collect import Reported, certificates_of, facts_of
from odradek.plan.examination import AREAS, PROCESSES
from odradek.plan.facts import ClusterFacts, Gap
from odradek.plan.rules.cut_off import CutOff, cut_off
from odradek.plan.rules.open_files import exhausted, more_files

# The reports that the doctor uses.
EXAMINED: Final[Mapping[str, Query]] = {"broker": {}, "journal": {}, "groups": {}, "controller": {}}


def picture_of(asked: Asked, wall_ms: WallMs) -> Picture:
    """The reports as the sentences on topics and brokers use them."""
    # Only a broker that holds a partition of the topic has read its options.
    isr_min = [
        replica["isr_min"]
        for report in asked.by_broker("replicas").values()
        for replica in report["replicas"]
        if replica["role"] == "leader"
    ]
    return Picture(
        asked.state,
        asked.journal,
        wall_ms,
        asked.caller,
        {id_: report["log_dirs"] for id_, report in asked.by_broker("broker").items()},
        isr_min[0] if isr_min else 1,
        asked.foreign,
        {id_: report.get("cuts", ()) for id_, report in asked.by_broker("broker").items()},
        _fetch_problems(asked),
        _cut_off(asked),
        {
            id_: (report.get("store_age") or {}).get("older_directories", ())
            for id_, report in asked.by_broker("broker").items()
        },
        {
            id_: sentence(f"broker {id_}: {why}; ", more_files(id_, asked.caller))
            for id_, report in asked.by_broker("broker").items()
            if (why := exhausted(report, wall_ms))
        },
    )


def _fetch_problems(asked: Asked) -> dict[int, Sequence[Mapping[str, Any]]]:
    """Of each broker its fetches that fail.

    Two reports of a broker are of different moments. That of the replicas counts: it is asked for
    last, has also what has just begun, and is what the table of a partition is made from.
    """
    reports = asked.by_broker("broker") | asked.by_broker("replicas")
    return {id_: report.get("fetch_problems", ()) for id_, report in reports.items()}


def _cut_off(asked: Asked) -> dict[int, CutOff]:
    found = {id_: cut_off(report) for id_, report in asked.by_broker("broker").items()}
    return {id_: each for id_, each in found.items() if each is not None}


def bound_addresses(asked: Asked) -> dict[int, str]:
    """The addresses on which the brokers of this machine listen, from their own reports.

    First those whose metadata is current: a broker without the store does not know of changes.
    """
    cut = _cut_off(asked)
    return {
        id_: report["bound"][0].partition("://")[2].replace("0.0.0.0:", "127.0.0.1:")
        for id_, report in sorted(
            asked.by_broker("broker").items(), key=lambda each: (each[0] in cut, each[0])
        )
        if report["bound"]
    }


async def seed_address(cluster: Cluster, asked: Asked) -> dict[int, str]:
    """The broker behind the bootstrap address, if it can be identified, with that address.

    Its report is added to `asked`: at the address that it advertises it may not answer.
    """
    connection = await cluster.any_broker()
    try:
        report = await describe_state(connection, "broker")
    except (ApiError, ConnectionError):
        return {}
    if report is not None:
        asked.reports.setdefault(report["broker_id"], {}).setdefault("broker", report)
        return {report["broker_id"]: connection.name}
    nodes = await cluster.nodes()
    return dict.fromkeys(nodes, connection.name) if len(nodes) == 1 else {}


async def examined(
    cluster: Cluster, asked: Asked, answers_at: Mapping[int, str], limits: Mapping[str, Any]
) -> ClusterFacts:
    """All facts for the doctor; `limits` are `patience_ms` and `disk_percent`, if not the usual.

    Raises:
        ApiError, ConnectionError: the cluster does not answer at all.
    """
    groups = [g for report in asked.by_broker("groups").values() for g in report["groups"]]
    reported = Reported(
        caller=asked.caller,
        reports=asked.by_broker("broker"),
        coordinated=groups,
        journal=asked.journal,
        answers_at=answers_at,
        unreported=asked.silent,
        **limits,
    )
    facts = await facts_of(cluster, reported)
    return replace(
        facts,
        certificates=await certificates_of(cluster),
        unreadable_topics=(asked.state or {}).get("unreadable_topics", {}),
    )


def without_cluster(asked: Asked) -> ClusterFacts:
    """The facts that are known if no broker answers: states of processes, and logs."""
    unreachable = {
        id_: "no broker answers"
        for id_, state in asked.caller.local.items()
        if id_ not in asked.caller.ends
    }
    return ClusterFacts(
        picture=ClusterPicture({}, {}),
        caller=asked.caller,
        unreachable=unreachable,
        journal=asked.journal,
        gaps={area: Gap("no broker answers") for area in AREAS if area != PROCESSES},
        wall_ms=WallMs(max((e["at_ms"] for e in asked.journal), default=0)),
    )
