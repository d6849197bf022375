"""`odradek consume TOPIC`: prints the records of a topic, up to its current end."""

import asyncio
import base64
import json
import pathlib
import sys
from collections.abc import Sequence

import click

from odradek.cli.kafka.clients.client_flags import write_bytes
from odradek.cli.near_names import suggestion
from odradek.cli.odradek.where import client_properties, connection_options
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.fetched import ConsumerRecord
from odradek.client.consumer.settings import ConsumerSettings
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition

_POLL_MS = 1_000


class NoSuchTopicError(OdradekError):
    """The topic, or the partition of it, does not exist."""


@click.command
@click.argument("topic")
@click.option(
    "--from",
    "begin",
    default="beginning",
    show_default=True,
    metavar="WHERE",
    help="beginning, end, or an offset.",
)
@click.option("--partition", type=int, metavar="N", help="Only this partition.")
@click.option("--count", type=int, metavar="N", help="Stop after N records.")
@click.option("--follow", is_flag=True, help="At the end, wait for more records.")
@click.option("--committed", is_flag=True, help="Only committed records (read_committed).")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object for each record, not its value."
)
@connection_options
def consume(  # noqa: PLR0913 - one argument for each option
    *,
    topic: str,
    begin: str,
    partition: int | None,
    count: int | None,
    follow: bool,
    committed: bool,
    as_json: bool,
    servers: str | None,
    path: pathlib.Path,
    config: str | None,
    words: Sequence[str],
) -> None:
    """Print the values of TOPIC, one a line, and stop at the end (or --follow it)."""
    if begin not in ("beginning", "end") and not begin.isdecimal():
        raise click.UsageError(f"--from {begin}: must be beginning, end or an offset")
    properties = client_properties(servers, path, config, words)
    properties["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    properties.setdefault("allow.auto.create.topics", "false")
    settings = ConsumerSettings.from_properties(properties, client_id="odradek-consume")
    asyncio.run(
        _read(
            settings,
            topic,
            begin=begin,
            partition=partition,
            count=count,
            follow=follow,
            as_json=as_json,
        )
    )


async def _read(  # noqa: PLR0913 - one argument for each option
    settings: ConsumerSettings,
    topic: str,
    *,
    begin: str,
    partition: int | None,
    count: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    async with await Consumer.open(settings) as consumer:
        partitions = await consumer.partitions_for(topic)
        if not partitions:
            near = suggestion(topic, await consumer.topics())
            raise NoSuchTopicError(f"there is no topic {topic!r}{near}")
        if partition is not None:
            held = len(partitions)
            partitions = [each for each in partitions if each.partition == partition]
            if not partitions:
                raise NoSuchTopicError(
                    f"topic {topic!r} has no partition {partition}: it has {held}, from 0 on"
                )
        consumer.assign(partitions)
        if begin == "end":
            consumer.seek_to_end()
        elif begin == "beginning":
            consumer.seek_to_beginning()
        else:
            for each in partitions:
                consumer.seek(each, int(begin))
        ends = await consumer.end_offsets(partitions)
        left = -1 if count is None else count
        while left and (follow or await _are_behind(consumer, ends)):
            records = await consumer.poll(_POLL_MS)
            for record in records if left < 0 else records[:left]:
                left -= 1
                if follow or record.offset < ends[TopicPartition(topic, record.partition)]:
                    _show(record, as_json=as_json)
            sys.stdout.flush()


async def _are_behind(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    for partition, end in ends.items():
        if await consumer.position(partition) < end:
            return True
    return False


def _show(record: ConsumerRecord, *, as_json: bool) -> None:
    if not as_json:
        write_bytes((record.value or b"") + b"\n")
        return
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    line = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    write_bytes(line.encode() + b"\n")


def _text(data: bytes | None) -> object:
    """UTF-8 as text; other bytes as an object with their encoding."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
