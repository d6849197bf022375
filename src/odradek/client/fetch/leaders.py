"""Requests about partitions, which only their leaders can answer, repeated while leaders move."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TypeVar

from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.kafka_errors import failure
from odradek.model.errors import RETRIABLE, ApiError, ErrorCode
from odradek.model.partition import NO_LEADER, TopicPartition
from odradek.net.retry import Retries

W = TypeVar("W")
R = TypeVar("R")
# Sends one request to one leader. Partitions that are missing in the result have no outcome yet.
Ask = Callable[[Connection, Mapping[TopicPartition, W]], Awaitable[Mapping[TopicPartition, R]]]


def is_temporary(error: BaseException) -> bool:
    """Whether a request that failed with this error may succeed after a refresh of metadata."""
    if isinstance(error, ApiError):
        return error.code in RETRIABLE or error.code is ErrorCode.BROKER_NOT_AVAILABLE
    return isinstance(error, ConnectionError)


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, W],
    ask: Ask[W, R | ApiError],
    found: MutableMapping[TopicPartition, R | ApiError],
    *,
    deadline_s: float | None = None,
    waits_for_topics: bool = False,
) -> None:
    """Put the outcome of each partition into `found`: what its leader answered, or the error.

    Temporary errors are retried until `deadline_s`, a time of the event loop. A partition that is
    missing in the metadata is an error at once, unless `waits_for_topics`.
    """
    retries = Retries(cluster.retry_pause_s, deadline_s=deadline_s)
    left = dict(wanted)
    while left:
        outcomes, missing = await _ask_all(cluster, left, ask)
        found.update(outcomes)
        found.update(missing)
        again = {p for p, o in outcomes.items() if isinstance(o, ApiError) and is_temporary(o)}
        if waits_for_topics:
            again |= {partition for partition, error in missing.items() if is_temporary(error)}
        left = {partition: each for partition, each in left.items() if partition in again}
        if left and not await retries.pause():
            return


async def try_leaders(
    cluster: Cluster, wanted: Mapping[TopicPartition, W], ask: Ask[W, R | ApiError]
) -> dict[TopicPartition, R | ApiError]:
    """The outcome of each partition, after `default.api.timeout.ms` at the latest.

    A partition that does not exist is an error at once.
    """
    found: dict[TopicPartition, R | ApiError] = {}
    await ask_leaders(cluster, wanted, ask, found, deadline_s=cluster.deadline_s())
    return {partition: found[partition] for partition in wanted}


async def _ask_all(
    cluster: Cluster, wanted: Mapping[TopicPartition, W], ask: Ask[W, R | ApiError]
) -> tuple[dict[TopicPartition, R | ApiError], dict[TopicPartition, ApiError]]:
    """The outcomes of one request to each leader; and partitions that metadata does not have."""
    if cluster.metadata.without_leader(wanted):
        try:
            await cluster.refresh(sorted({partition.topic for partition in wanted}))
        except ConnectionError as error:
            return dict.fromkeys(wanted, ApiError(ErrorCode.NETWORK_EXCEPTION, str(error))), {}
    missing: dict[TopicPartition, ApiError] = {}
    outcomes: dict[TopicPartition, R | ApiError] = {}
    by_leader: dict[int, dict[TopicPartition, W]] = {}
    for partition, each in wanted.items():
        leader = cluster.metadata.leader(partition)
        if leader != NO_LEADER:
            by_leader.setdefault(leader, {})[partition] = each
            continue
        absent = _missing(cluster, partition)
        if absent is not None:
            missing[partition] = absent
        else:
            outcomes[partition] = ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
    answered = await asyncio.gather(
        *(_ask_one(cluster, leader, asked, ask) for leader, asked in by_leader.items())
    )
    for each_answered in answered:
        outcomes.update(each_answered)
    return outcomes, missing


async def _ask_one(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, W], ask: Ask[W, R | ApiError]
) -> dict[TopicPartition, R | ApiError]:
    """The outcomes of one leader; after temporary errors, with the metadata refreshed."""
    outcomes: dict[TopicPartition, R | ApiError]
    try:
        outcomes = dict(await ask(await cluster.broker(leader), wanted))
    except ConnectionError as error:
        outcomes = dict.fromkeys(wanted, ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)))
    except ApiError as error:
        outcomes = dict.fromkeys(wanted, error)
    stale = {p.topic for p, o in outcomes.items() if isinstance(o, ApiError) and is_temporary(o)}
    if stale:
        with contextlib.suppress(ConnectionError):  # the next round refreshes again
            await cluster.refresh(sorted(stale))
    return outcomes


def _missing(cluster: Cluster, partition: TopicPartition) -> ApiError | None:
    """The error of a partition that the last Metadata response does not contain."""
    topic = cluster.metadata.topics.get(partition.topic)
    if topic is not None:
        if partition.partition in topic.partitions:
            return None
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code = cluster.metadata.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if code == ErrorCode.LEADER_NOT_AVAILABLE:
        return None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Failed to fetch metadata for partition {partition} because metadata for topic "
            f"`{partition.topic}` could not be found",
        )
    return failure(code)
