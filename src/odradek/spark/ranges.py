"""From options to offset ranges: the requests to the cluster before anything is read."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.arrow.cluster import UnknownTopicError, partitions_by_topic, topic_names
from odradek.client.cluster import Cluster
from odradek.client.fetch.offsets import list_offsets
from odradek.model.java_pattern import compile_java_pattern
from odradek.model.partition import TopicPartition
from odradek.spark.offsets import LostDataError, Piece
from odradek.spark.options import EARLIEST, LATEST, OptionError, QueryBound, ReadOptions

_log = logging.getLogger("odradek.spark")
_UNSET: Final = -1


async def partitions_of(cluster: Cluster, options: ReadOptions) -> list[TopicPartition]:
    """The partitions of the query's topics, as the cluster has them now.

    The metadata of a missing topic is requested again, as often as the options allow.

    Raises:
        UnknownTopicError: a topic does not exist.
    """
    missing_ms = options.offset_retries * options.offset_retry_ms
    if options.assign:
        assigned = {partition.topic for partition in options.assign}
        there = await partitions_by_topic(cluster, assigned, missing_ms=missing_ms)
        for partition in options.assign:
            if partition.partition not in there[partition.topic]:
                raise UnknownTopicError(
                    f"{partition} does not exist: {partition.topic} has "
                    f"{len(there[partition.topic])} partitions"
                )
        return list(options.assign)
    topics = options.subscribe
    if options.pattern is not None:
        pattern = compile_java_pattern(options.pattern)
        # A match anywhere in the name, as in the connector.
        topics = tuple(topic for topic in await topic_names(cluster) if pattern.search(topic))
        if not topics:
            return []
    there = await partitions_by_topic(cluster, topics, missing_ms=missing_ms)
    return [TopicPartition(topic, number) for topic in topics for number in there[topic]]


async def offsets_at(
    cluster: Cluster,
    options: ReadOptions,
    place: QueryBound,
    partitions: list[TopicPartition],
    *,
    side: str,
) -> dict[TopicPartition, int]:
    """The offset in each partition for a start or end.

    Raises:
        OptionError: specific offsets for other partitions than these, or a timestamp after which
            there is no record (unless an option allows it).
    """
    if place.everywhere is None:
        _check_all_named(place, partitions, side)
    wanted = {
        name: place.by_partition[name] if place.everywhere is None else place.everywhere
        for name in partitions
    }
    if place.kind == "offset":
        asked = {name: at for name, at in wanted.items() if at in (EARLIEST, LATEST)}
        offsets = {name: at for name, at in wanted.items() if at not in (EARLIEST, LATEST)}
        for name, at in offsets.items():
            if at < 0:
                raise OptionError(f"{side}Offsets for {name} is {at}: -1 is latest, -2 earliest")
        offsets.update(await _listed(cluster, options, asked))
        return offsets
    offsets = await _listed(cluster, options, wanted)
    missing = {name: LATEST for name, offset in offsets.items() if offset == _UNSET}
    if missing and side == "starting" and options.timestamp_strategy == "error":
        name = min(missing)
        raise OptionError(
            f"No offset matched from request of topic-partition {name} and timestamp "
            f"{wanted[name]}."
        )
    return {**offsets, **await _listed(cluster, options, missing)}


def _check_all_named(place: QueryBound, partitions: list[TopicPartition], side: str) -> None:
    if set(place.by_partition) != set(partitions):
        option = f"{side}Offsets" + ("ByTimestamp" if place.kind == "timestamp" else "")
        raise OptionError(
            f"If {option} contains specific offsets, you must specify all TopicPartitions.\n"
            f"Use -1 for latest, -2 for earliest.\n"
            f"Specified: {_listed_names(place.by_partition)} "
            f"Assigned: {_listed_names(partitions)}"
        )


def _listed_names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


async def _listed(
    cluster: Cluster, options: ReadOptions, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if not wanted:
        return {}
    found = await list_offsets(cluster, wanted, reads_committed=options.committed)
    return {partition: listed.offset for partition, listed in found.items()}


async def latest(
    cluster: Cluster, options: ReadOptions, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The end offset of each partition for a reader with these options."""
    return await _listed(cluster, options, dict.fromkeys(partitions, LATEST))


async def earliest(
    cluster: Cluster, options: ReadOptions, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The log start offset of each partition."""
    return await _listed(cluster, options, dict.fromkeys(partitions, EARLIEST))


async def batch_ranges(cluster: Cluster, options: ReadOptions) -> list[Piece]:
    """The ranges of a batch query.

    Raises:
        What `partitions_of` and `offsets_at` raise; LostDataError: a range ends before it begins,
            or begins before the log start.
    """
    partitions = await partitions_of(cluster, options)
    starts = await offsets_at(cluster, options, options.start, partitions, side="starting")
    ends = await offsets_at(cluster, options, options.end, partitions, side="ending")
    ends = await _within_log(cluster, options, ends)
    firsts = await earliest(cluster, options, partitions)
    pieces = []
    for name in partitions:
        start, end = starts[name], ends[name]
        if start < firsts[name] and start < end:
            lost(options, f"{name}: offset {start} was requested, the partition begins at "
                          f"{firsts[name]}")  # fmt: skip
            start = min(firsts[name], end)
        if start > end:
            lost(options, f"{name}: reading from offset {start} to {end}, which is before it")
            start = end
        pieces.append(Piece(name, start, end))
    return pieces


async def _within_log(
    cluster: Cluster, options: ReadOptions, ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The requested ends, each at most its partition's high watermark.

    Raises:
        LostDataError: one is, and failOnDataLoss is true.
    """
    asked = [name for name, end in options.end.by_partition.items() if end >= 0]
    if options.end.kind != "offset" or not asked:
        return ends
    # Not the last stable offset: the read waits for open transactions.
    for name, (last, *_) in (await list_offsets(cluster, dict.fromkeys(asked, LATEST))).items():
        if ends[name] > last:
            lost(options, f"{name}: offsets up to {ends[name]} were requested, the partition ends "
                          f"at {last}")  # fmt: skip
            ends = {**ends, name: last}
    return ends


def lost(options: ReadOptions, what: str) -> None:
    """Raise or log that data is missing.

    Raises:
        LostDataError: failOnDataLoss is true.
    """
    if options.fail_on_data_loss:
        raise LostDataError(what)
    _log.warning("%s; failOnDataLoss is false, so it is skipped", what)
