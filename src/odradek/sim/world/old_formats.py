"""Rewrites the logs of a stopped broker as an earlier Kafka would have written them.

With a lower `message.format.version` Kafka wrote messages of format v0 or v1, compressed or not;
the option could be lowered and raised at any time. Batches of idempotent producers stay in format
v2, which alone has sequences.
"""

import random
from typing import Final

from odradek.log.checkpoints import FORMAT_FILE, decode_offsets, encode_offsets
from odradek.log.directories import Mark, partition_directories
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.partition import TopicPartition
from odradek.record.batch import CorruptBatchError, iter_batches
from odradek.record.compression import Codec
from odradek.record.message_set import write_messages
from odradek.record.records import iter_records
from odradek.sim.world.cluster import LOG_DIRS
from odradek.sim.world.disk import SimulatedDisk

# Few changes of the option in a log, or one for each batch.
_CHANGES: Final = (0.05, 0.3, 1.0)
_CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def rewrite_in_old_formats(disk: SimulatedDisk, draw: random.Random) -> None:
    """Rewrite segments on the disk of a broker that was shut down cleanly.

    Either Kafka had the directory first: then all may be old, and there is no
    `record-format-checkpoint`. Or Kafka ran on it for a while: then that file has earlier offsets,
    and what is below them stays.
    """
    had_all = draw.random() < 0.5
    changes = draw.choice(_CHANGES)
    for log_dir in LOG_DIRS:
        if not disk.exists(log_dir):
            continue
        file = f"{log_dir}/{FORMAT_FILE}"
        before = decode_offsets(disk.read_file(file) or b"")
        kept: dict[TopicPartition, int] = {}
        for name, (partition, mark) in partition_directories(disk.list(log_dir)):
            if mark is not Mark.NONE or partition.topic in INTERNAL_TOPICS:
                kept |= {partition: before[partition]} if partition in before else {}
                continue
            known = 0 if had_all else draw.randint(0, before.get(partition, 0))
            if known:
                kept[partition] = known
            _rewrite_log(disk, f"{log_dir}/{name}", known, changes, draw)
        disk.replace_now(file, encode_offsets(kept))


def _rewrite_log(
    disk: SimulatedDisk, directory: str, known: int, changes: float, draw: random.Random
) -> None:
    magic = 2
    for entry in disk.list(directory):
        if not entry.name.endswith(".log"):
            continue
        path = f"{directory}/{entry.name}"
        data = memoryview(disk.read_file(path) or b"")
        out = bytearray()
        try:
            batches = list(iter_batches(data))
        except CorruptBatchError:
            return  # rewritten before, and not loaded since
        for position, header in batches:
            if draw.random() < changes:
                magic = draw.randrange(3)
            batch = data[position : position + header.size_bytes]
            if magic == 2 or header.producer_id >= 0 or header.base_offset < known:
                out += batch
            else:
                records = list(iter_records(bytes(batch)))
                out += write_messages(records, magic=magic, codec=draw.choice(_CODECS))
        if out == data:
            continue
        for suffix in (".index", ".timeindex"):
            index = path.removesuffix(".log") + suffix
            if disk.exists(index):
                disk.unlink(index)
        file = disk.create(path)
        file.write(0, (out,))
        disk.flush_now([file, directory])
