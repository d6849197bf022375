"""One broker: its log directories, what it reports of itself, and what depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from odradek.client.admin.state import describe_state
from odradek.client.cluster import Cluster
from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.net.clock import real_wall_ms
from odradek.plan.cluster import ClusterPicture
from odradek.plan.collect import picture_of
from odradek.web.facts.source import Source
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

SAMPLE_MS: Final = 10_000
SAMPLES: Final = 90  # a quarter of an hour


class DiskSample(NamedTuple):
    """The free bytes of a log directory's disk at a time."""

    at_ms: int
    usable_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """A log directory; sizes are None where the broker does not report them (before 3.3)."""

    path: str
    is_offline: bool
    replicas: int
    held_bytes: int
    total_bytes: int | None = None
    usable_bytes: int | None = None
    samples: tuple[DiskSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDetail:
    """A broker as it is now."""

    id: int
    at_ms: int
    directories: tuple[DirectoryFacts, ...] = ()
    report: Mapping[str, Any] | None = None  # of a broker of Odradek
    picture: ClusterPicture | None = None
    problems: Mapping[str, str] = field(default_factory=dict)


async def collect_broker(
    source: Source, argument: str, before: BrokerDetail | None
) -> BrokerDetail:
    """The broker with this id.

    Raises:
        OdradekError, ConnectionError: no broker answers.
    """
    number, wall_ms = int(argument), real_wall_ms()
    cluster = await source.cluster()
    picture = await picture_of(cluster, sizes=False)
    problems: dict[str, str] = {}
    directories: tuple[DirectoryFacts, ...] = ()
    report = None
    if number not in picture.racks:
        problems["broker"] = "it is not registered"
    else:
        earlier = {d.path: d.samples for d in before.directories} if before else {}
        try:
            directories = await _directories(cluster, number, earlier, wall_ms)
            report = await describe_state(await cluster.broker(number), "broker")
        except (OdradekError, ConnectionError) as error:
            problems["broker"] = str(error)
    return BrokerDetail(
        id=number,
        at_ms=wall_ms,
        directories=directories,
        report=report,
        picture=picture,
        problems=problems,
    )


async def _directories(
    cluster: Cluster, broker: int, earlier: Mapping[str, tuple[DiskSample, ...]], wall_ms: WallMs
) -> tuple[DirectoryFacts, ...]:
    connection = await cluster.broker(broker)
    response = await connection.request(
        DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
    )
    return tuple(
        _directory(each, earlier.get(each.log_dir, ()), wall_ms) for each in response.results
    )


def _directory(
    found: DescribeLogDirsResult, samples: tuple[DiskSample, ...], wall_ms: WallMs
) -> DirectoryFacts:
    usable = found.usable_bytes if found.usable_bytes >= 0 else None
    if usable is not None and (not samples or wall_ms - samples[-1].at_ms >= SAMPLE_MS):
        samples = (*samples[-SAMPLES + 1 :], DiskSample(wall_ms, usable))
    held = [partition for topic in found.topics for partition in topic.partitions]
    return DirectoryFacts(
        path=found.log_dir,
        is_offline=found.error_code != 0,
        replicas=len(held),
        held_bytes=sum(partition.partition_size for partition in held),
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        usable_bytes=usable,
        samples=samples,
    )
