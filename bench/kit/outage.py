"""How long some partitions accept no records: producers with acks=all that retry.

One producer for each partition sends one record after the other, a few milliseconds apart. What
is not acknowledged (an error, a lost connection, a time-out) is sent again, to the leader at that
time; metadata is requested up to 50 times a second while a leader is unknown. The result is the
longest time between two acknowledgements, for each partition.

    python -m kit.outage BOOTSTRAP TOPIC PARTITION,PARTITION...

It prints `ready` when all of them have been written to, continues until its standard input ends,
and then prints one line of JSON.
"""

import asyncio
import json
import struct
import sys
import time
from contextlib import suppress
from typing import Final

from kit import raw
from kit.small_requests import batch

PRODUCE, VERSION, ACKS_ALL = 0, 3, -1
PAUSE_S: Final = 0.003
METADATA_EVERY_S: Final = 0.02
SILENCE_S: Final = 5.0


def request(topic: str, partition: int) -> bytes:
    """A produce request of one record with acks=all."""
    records = batch(b"x" * 100)
    body = struct.pack(">hhi", -1, ACKS_ALL, 30_000) + struct.pack(">i", 1) + raw.text(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    return raw.frame(PRODUCE, VERSION, body)


class Leaders:
    """The leaders of the partitions, requested when one is unknown."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._addresses = bootstrap.split(",")
        self._topic = topic
        self._by_id: dict[int, str] = {}
        self._leaders: dict[int, int] = {}
        self._asked_s = 0.0
        self._turn = asyncio.Lock()

    def of(self, partition: int) -> str | None:
        """The leader's address in the last metadata."""
        return self._by_id.get(self._leaders.get(partition, -1))

    async def refresh(self, since_s: float) -> None:
        """Request the metadata again, unless that was done since."""
        async with self._turn:
            if self._asked_s > since_s:
                return
            await asyncio.sleep(max(0.0, self._asked_s + METADATA_EVERY_S - time.monotonic()))
            self._asked_s = time.monotonic()
            for address in [*self._addresses]:
                try:
                    await asyncio.wait_for(self._ask(address), 2.0)
                except (OSError, asyncio.IncompleteReadError, TimeoutError):
                    # A broker that does not answer is tried last from now on.
                    self._addresses.remove(address)
                    self._addresses.append(address)
                else:
                    return

    async def _ask(self, address: str) -> None:
        body = struct.pack(">i", 1) + raw.text(self._topic) + b"\0"
        answer = raw.Reader(await ask(address, raw.frame(raw.METADATA, 4, body)))
        answer.number("i")
        for _ in range(answer.number("i")):
            id_, host, port = answer.number("i"), answer.text(), answer.number("i")
            self._by_id[id_] = f"{host}:{port}"
            answer.text()
        answer.text(), answer.number("i"), answer.number("i")
        answer.number("h"), answer.text(), answer.number("b")
        for _ in range(answer.number("i")):
            answer.number("h")
            partition, leader = answer.number("i"), answer.number("i")
            self._leaders[partition] = leader
            answer.numbers(), answer.numbers()


async def ask(address: str, frame: bytes) -> bytes:
    """One request over a connection of its own. Returns the response's body."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(frame)
        return await _answer(reader)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return (await reader.readexactly(length))[4:]


class Producer:
    """The producer of one partition."""

    def __init__(self, leaders: Leaders, topic: str, partition: int) -> None:
        self._leaders = leaders
        self._frame = request(topic, partition)
        self._error_at = 4 + 2 + len(topic) + 4 + 4
        self.partition = partition
        self.acked = 0
        self.last_s = 0.0
        self.gap_s = 0.0
        self.first = asyncio.Event()

    async def run(self) -> None:
        while True:
            began_s = time.monotonic()
            address = self._leaders.of(self.partition)
            if address is not None:
                with suppress(OSError, asyncio.IncompleteReadError, TimeoutError, RuntimeError):
                    await self._write_to(address)
            await self._leaders.refresh(began_s)

    async def _write_to(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            while True:
                writer.write(self._frame)
                answer = await asyncio.wait_for(_answer(reader), SILENCE_S)
                (error_code,) = struct.unpack_from(">h", answer, self._error_at)
                if error_code:
                    raise RuntimeError(error_code)
                self._acknowledged()
                await asyncio.sleep(PAUSE_S)
        finally:
            writer.close()

    def _acknowledged(self) -> None:
        now_s = time.monotonic()
        if self.acked:
            self.gap_s = max(self.gap_s, now_s - self.last_s)
        self.acked += 1
        self.last_s = now_s
        if self.acked == 20:
            self.gap_s = 0.0  # the first ones have to find the leader
            self.first.set()


async def main() -> None:
    bootstrap, topic, partitions = sys.argv[1:]
    leaders = Leaders(bootstrap, topic)
    producers = [Producer(leaders, topic, int(p)) for p in partitions.split(",")]
    tasks = [asyncio.create_task(producer.run()) for producer in producers]
    await asyncio.gather(*(producer.first.wait() for producer in producers))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    now_s = time.monotonic()
    print(
        json.dumps(
            {
                "acked": sum(p.acked for p in producers),
                "gaps_ms": {
                    p.partition: round(1000 * max(p.gap_s, now_s - p.last_s), 1) for p in producers
                },
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
