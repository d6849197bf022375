"""`odradek produce TOPIC --from FILE`: writes a file's rows to a topic."""

import asyncio
import contextlib
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import click

from odradek.cli.odradek.rows import FORMATS, Row, RowError, format_of, rows
from odradek.cli.odradek.where import client_properties, connection_options
from odradek.cli.output import bare
from odradek.client.producer.batches import Delivery
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import OdradekError

_ROWS_A_TURN = 256


@click.command
@click.argument("topic")
@click.option("--from", "source", default="-", metavar="FILE", help="The file; - for stdin.")
@click.option("--key", metavar="FIELD", help="The field that becomes the key.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The format of the file.  [default: by its suffix, else lines]",
)
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def produce(  # noqa: PLR0913 - one argument for each option
    *,
    topic: str,
    source: str,
    key: str | None,
    form: str | None,
    servers: str | None,
    path: pathlib.Path,
    config: str | None,
    words: Sequence[str],
    as_json: bool,
) -> None:
    """Write the rows of a file to TOPIC: lines, CSV with a header, or JSON line by line.

    A CSV row becomes a JSON object. An error is reported with what was written before it.
    """
    defaults = {"linger.ms": "20", "batch.size": "65536"}
    properties = {**defaults, **client_properties(servers, path, config, words)}
    settings = ProducerSettings.from_properties(properties, client_id="odradek-produce")
    form = form or format_of(pathlib.Path(source).suffix)
    begun_s = time.perf_counter()
    with _opened(source) as (lines, progress):
        counts = asyncio.run(_write(settings, topic, rows(lines, form, key), progress))
    elapsed_s = time.perf_counter() - begun_s
    summary: dict[str, Any] = {"topic": topic, **counts, "seconds": round(elapsed_s, 3)}
    if as_json:
        print(json.dumps(summary))
        return
    print(
        f"{counts['records']:,} records to {topic} in {elapsed_s:.1f} s "
        f"({counts['records'] / max(elapsed_s, 1e-9):,.0f}/s)",
        file=sys.stderr,
    )


@contextlib.contextmanager
def _opened(source: str) -> Iterator[tuple[Iterator[str], Callable[[], None]]]:
    """The lines of a file, and a function that updates the progress display."""
    if source == "-":
        yield iter(sys.stdin), lambda: None
        return
    file = pathlib.Path(source)
    with file.open(encoding="utf-8", errors="surrogateescape", newline="") as opened:
        if not sys.stderr.isatty():
            yield _lines(opened), lambda: None
            return
        from rich.console import Console  # noqa: PLC0415 - for a terminal only
        from rich.progress import Progress  # noqa: PLC0415

        with Progress(console=Console(file=bare(sys.stderr)), transient=True) as bar:
            task = bar.add_task(file.name, total=file.stat().st_size)
            read = 0

            def counted() -> Iterator[str]:
                nonlocal read
                for line in opened:
                    read += len(line)
                    yield line

            yield counted(), lambda: bar.update(task, completed=read)


def _lines(opened: TextIO) -> Iterator[str]:
    yield from opened


async def _write(
    settings: ProducerSettings, topic: str, records: Iterator[Row], progress: Callable[[], None]
) -> dict[str, int]:
    written = _Written()
    async with await Producer.open(settings) as producer:
        try:
            for number, row in enumerate(records):
                delivery = producer.try_send(topic, row.value, key=row.key)
                if delivery is None:
                    delivery = await producer.send(topic, row.value, key=row.key)
                delivery.when_done(written.arrived)
                written.bytes += len(row.value) + len(row.key or b"")
                if number % _ROWS_A_TURN == 0:
                    progress()
                    await asyncio.sleep(0)
                if written.error is not None:
                    break
        except RowError as error:
            await producer.flush()
            raise RowError(f"{error}; {written.records} records before it were written") from None
        await producer.flush()
    if written.error is not None:
        raise OdradekError(f"{written.error}; {written.records} records were written")
    return {"records": written.records, "bytes": written.bytes}


class _Written:
    """The number of acknowledged records, and the first failure."""

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.error: Exception | None = None

    def arrived(self, delivery: Delivery) -> None:
        if delivery.error is None:
            self.records += 1
        elif self.error is None:
            self.error = delivery.error
