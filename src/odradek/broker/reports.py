"""What a broker reports on itself and the cluster: by HTTP, and to our tools by DescribeState.

    journal       ?topic=T [&partition=P] | ?broker=N  [&limit=1000]   decisions and their causes
    controller    ?topic=T [&partition=P] | ?broker=N                  the controller's state
    broker                                                             this broker's state
    replicas      ?topic=T [&partition=P]                              LEO, HW and followers here
    groups        [?group=G]                                           groups coordinated here

All reports are read-only and limited, and contain no secrets: options are named without values.
What a viewer may not see is left out (`odradek.broker.viewer`).
"""

import os.path
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from odradek.broker.cluster.stores import embedded_path
from odradek.broker.controller.view import control_routes, in_pieces
from odradek.broker.coordinators.group_report import group_report, groups_report
from odradek.broker.exposed import exposed
from odradek.broker.http import Response, Route, json_response
from odradek.broker.replication.partition import Partition
from odradek.broker.reported import ReportedParts
from odradek.broker.viewer import Viewer
from odradek.config.broker import BROKER_OPTIONS
from odradek.config.former import FORMER_OPTIONS
from odradek.log.disk import StorageError
from odradek.log.producer_state import NO_OFFSET
from odradek.model.clock import MonotonicMs
from odradek.replica.failures import LASTING_MS

PARTITIONS_MAX: Final = 1_000
_HOSTS: Final = 3
_GROUPS_AT_ONCE: Final = 10  # each may have thousands of committed offsets


def report_routes(broker: ReportedParts, viewer: Viewer) -> Mapping[str, Route]:
    """The reports by their names, as far as the viewer may see them."""
    broker_id = broker.config.broker_id
    return {
        **control_routes(broker.controller, broker.journal, viewer, broker_id=broker_id),
        "broker": lambda _query: json_response(_broker(broker, viewer)),
        "replicas": lambda query: _replicas(broker, viewer, query),
        "groups": lambda query: _groups(broker, viewer, query),
    }


# --------------------------------------------------------------------------------- the broker


def _broker(broker: ReportedParts, viewer: Viewer) -> Mapping[str, Any]:
    config, counts = broker.config, broker.incidents.counts
    sees_clients = viewer.sees_clients()
    return {
        **asdict(broker.health()),
        "now_ms": broker.groups.now().wall_ms,
        "began_ms": broker.incidents.began_ms,
        "bound": [
            f"{point.listener}://{point.host}:{port}"
            for point, port in zip(config.listeners, broker.server.ports, strict=False)
        ],
        "exposed": [each._asdict() for each in exposed(config, broker.server.ports)],
        "peers": _peers(broker),
        "open_files": _open_files(broker, shows_hosts=sees_clients),
        "fetch_problems": _fetch_problems(broker, viewer, LASTING_MS),
        # The coordination store: `zookeeper` is None for the embedded one, `disk` is only its.
        "store": {
            "zookeeper": config.zookeeper_connect,
            "disk": _store_disk(broker),
            "silent_ms": broker.lifecycle.silent_ms,
            "unregistered_ms": broker.lifecycle.unregistered_ms,
        },
        "store_age": broker.store_comparison and broker.store_comparison.as_json(),
        "log_dirs": [_directory(broker, path) for path in broker.logs.directories],
        "cleaner": _cleaner(broker, viewer),
        "unknown_options": [{"name": name, "similar": _similar(name)} for name in config.unknown()],
        "invalid_topic_options": {
            topic: why for topic, why in broker.settings.invalid.items() if viewer.sees_topic(topic)
        },
        # False: of refusals only the viewer's own are shown, of errors and throttles none.
        "shows_clients": sees_clients,
        "refusals": list(filter(viewer.sees_refusal, broker.incidents.as_json())),
        "errors": counts.errors_as_json() if sees_clients else [],
        "cuts": [c for c in broker.incidents.cuts.as_json() if viewer.sees_topic(c["topic"])],
        "throttles": counts.throttles_as_json() if sees_clients else [],
        "throttle": {
            "leader.replication.throttled.rate": config.leader_replication_throttled_rate,
            "follower.replication.throttled.rate": config.follower_replication_throttled_rate,
        },
    }


def _open_files(broker: ReportedParts, *, shows_hosts: bool) -> Mapping[str, Any]:
    """Connections of clients, how many have file descriptors, and those that had none."""
    server, now = broker.server, broker.groups.now()
    refused = server.refused_for_files

    def wall_ms(at_ms: MonotonicMs) -> int | None:
        return now.wall_ms - (now.monotonic_ms - at_ms) if refused.count else None

    return {
        "connections": server.connection_count,
        "connections_max": server.limits.files_max,
        "refused": refused.count,
        "first_ms": wall_ms(refused.first_ms),
        "last_ms": wall_ms(refused.last_ms),
        "hosts": server.hosts(_HOSTS) if shows_hosts else [],
    }


def _similar(name: str) -> list[str]:
    """What may be meant by an unknown option: its successor, or a similar name."""
    successor = FORMER_OPTIONS.get(name)
    return [successor] if successor else get_close_matches(name, BROKER_OPTIONS, 1)


def _peers(broker: ReportedParts) -> list[Mapping[str, Any]]:
    """When other brokers last sent a fetch here, and since when they owe a response (wall time)."""
    now = broker.groups.now()

    def wall_ms(at_ms: MonotonicMs | None) -> int | None:
        return None if at_ms is None else now.wall_ms - (now.monotonic_ms - at_ms)

    fetched, unanswered = broker.last_fetches(), broker.fetchers.unanswered_since()
    return [
        {
            "broker": peer,
            "fetched_ms": wall_ms(fetched.get(peer)),
            "unanswered_ms": wall_ms(unanswered.get(peer)),
        }
        for peer in sorted(fetched.keys() | unanswered.keys())
    ]


def _fetch_problems(
    broker: ReportedParts, viewer: Viewer, lasting_ms: int = 0
) -> list[Mapping[str, Any]]:
    """Fetches of this broker's followers that have failed for so long; without a topic: all."""
    now = broker.groups.now()
    found = (
        {
            "leader": leader,
            "is_lasting": now.monotonic_ms - failure.since_ms >= LASTING_MS,
            "topic": None if subject is None else subject.topic,
            "partition": None if subject is None else subject.partition,
            "problem": failure.reason,
            "since_ms": now.wall_ms - (now.monotonic_ms - failure.since_ms),
        }
        for leader, subject, failure in broker.fetchers.failures()
        if now.monotonic_ms - failure.since_ms >= lasting_ms
        and (subject is None or viewer.sees_topic(subject.topic))
    )
    return list(islice(found, PARTITIONS_MAX))


def sample_disks(broker: ReportedParts) -> None:
    """Record how full the disks of the log directories are now."""
    spaces = []
    for path in broker.logs.directories:
        if not broker.logs.is_offline(path):
            with suppress(StorageError):  # the next read or write there takes it offline
                spaces.append((path, *broker.logs.space(path)))
    broker.incidents.disks_sampled(spaces)


def _store_disk(broker: ReportedParts) -> Mapping[str, Any] | None:
    """The disk of the embedded store's file."""
    if broker.config.zookeeper_connect is not None:
        return None
    path = embedded_path(broker.config)
    with suppress(StorageError):
        total, usable = broker.logs.space(os.path.dirname(path) or ".")
        return {"path": path, "total_bytes": total, "usable_bytes": usable}
    return None


def _directory(broker: ReportedParts, path: str) -> Mapping[str, Any]:
    offline = broker.logs.is_offline(path)
    since_ms, why = broker.incidents.failed_directories.get(path, (None, ""))
    total = usable = None
    if not offline:
        try:
            total, usable = broker.logs.space(path)
        except StorageError as error:
            why = str(error)
    return {
        "path": path,
        "set_aside": broker.logs.directories[path].strays,
        "is_offline": offline,
        "since_ms": since_ms,
        "why": why,
        "total_bytes": total,
        "usable_bytes": usable,
        # By percentages of the disk: since when it is full to this percentage or more.
        "full_since_ms": broker.incidents.full_since.get(path, {}),
    }


def _cleaner(broker: ReportedParts, viewer: Viewer) -> Mapping[str, Any]:
    cleaner = broker.cleaner
    return {
        "is_enabled": broker.config.log_cleaner_enable,
        "compacted_logs": sum(1 for log in broker.logs if log.config.is_compacted),
        "given_up": [
            {"partition": str(partition), "since_ms": since_ms, "why": why}
            for partition, (since_ms, why) in islice(cleaner.given_up.items(), PARTITIONS_MAX)
            if viewer.sees_topic(partition.topic) and not cleaner.uncleanable[partition].removed
        ],
    }


# --------------------------------------------------------------------------------- replicas


def _replicas(broker: ReportedParts, viewer: Viewer, query: Mapping[str, str]) -> Response:
    topic, number = query.get("topic"), query.get("partition")
    monotonic_ms = broker.groups.now().monotonic_ms
    settings = broker.settings
    held = (
        partition
        for partition in list(broker.replicas)
        if topic in (None, partition.topic_partition.topic)
        and number in (None, str(partition.topic_partition.partition))
        and viewer.sees_topic(partition.topic_partition.topic)
    )
    head = {
        "broker_id": broker.config.broker_id,
        "lag_ms_max": broker.config.replica_lag_time_max_ms,
        "fetch_problems": [
            problem
            for problem in _fetch_problems(broker, viewer)
            if problem["topic"] in (None, topic)
        ],
    }
    replicas = (
        {
            **_replica(partition, monotonic_ms),
            "isr_min": settings.topic(partition.topic_partition.topic).isr_min,
        }
        for partition in islice(held, PARTITIONS_MAX)
    )
    return in_pieces(head, "replicas", replicas)


def _replica(partition: Partition, monotonic_ms: MonotonicMs) -> Mapping[str, Any]:
    topic, index = partition.topic_partition
    log, leader = partition.log, partition.leader
    about: dict[str, Any] = {
        "topic": topic,
        "partition": index,
        "role": "offline" if log is None else "leader" if leader else "follower",
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
    }
    if log is None:
        return about
    first = log.producers.first_unstable_offset
    about |= {
        "log_start_offset": log.log_start_offset,
        "leo": log.leo,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "open_transaction_offset": None if first == NO_OFFSET else first,
    }
    if leader is not None:
        about |= {
            "isr": sorted(leader.isr.committed),
            "is_under_min_isr": leader.is_under_min_isr,
            "followers": [
                {
                    "broker": id_,
                    "leo": follower.leo,
                    "caught_up_ms_ago": monotonic_ms - follower.caught_up_ms,
                    "fetched_ms_ago": monotonic_ms - follower.fetched_ms
                    if follower.fetched_ms
                    else None,
                    "in_sync": id_ in leader.isr.committed,
                }
                for id_, follower in sorted(leader.followers.items())
            ],
        }
    return about


# ----------------------------------------------------------------------------------- groups


def _groups(broker: ReportedParts, viewer: Viewer, query: Mapping[str, str]) -> Response:
    group_id = query.get("group")
    shell = broker.groups
    if group_id is None:
        shown = (each for each in groups_report(shell) if viewer.sees_group(each["group"]))
        return in_pieces({}, "groups", shown, at_once=_GROUPS_AT_ONCE)
    return json_response(group_report(shell, group_id))
