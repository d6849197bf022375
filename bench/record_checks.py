"""The cost of a leader's check of records: processor time for one produced batch.

    ./run bench record_checks [--rounds 7]

Batches of 100-byte records made of words, filled to 16 and 64 KiB as they are sent, and one of a
single record, with every codec; each is validated by its header only, with the compiled check and
with the plain one, in turn. The figure is the least processor time of the rounds: the cost on an
idle machine, even when this one is not idle. One JSON line is appended to
bench/results/record_checks.jsonl. The rest of a small request takes a broker some 20 us, that of
one batch of 16 and 64 KiB 55 and 100 us.
"""

import random
import time
from collections.abc import Callable

import click
from kit import machine
from kit.results import keep_result

from odradek.record.check import fastest_check, plain_check
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch
from odradek.record.validate import ValidationRules, validate_produced

RECORD_BYTES = 100
NOW_MS = 1_700_000_000_000
SPENT_S = 0.02  # the duration of a round


def values(count: int) -> list[bytes]:
    """Text that compresses by about two."""
    drawn = random.Random(5)
    words = [
        bytes(drawn.randrange(97, 123) for _ in range(drawn.randrange(3, 9))) for _ in range(400)
    ]
    return [b" ".join(drawn.choices(words, k=30))[:RECORD_BYTES] for _ in range(count)]


def batch_of(size_bytes: int, codec: Codec) -> tuple[bytes, int]:
    """A batch of about this size after compression, and its number of records."""
    count = max(1, size_bytes // (RECORD_BYTES + 8))
    while True:
        records = [Record(None, value, NOW_MS + n // 3) for n, value in enumerate(values(count))]
        batch = build_batch(records, codec=codec)
        if count == 1 or len(batch) > size_bytes * 0.9:
            return batch, count
        count = count * size_bytes // len(batch)


def processor_us(work: Callable[[], object], rounds: int) -> float:
    """The least processor time of one call over all rounds, in microseconds."""
    least = float("inf")
    calls = 1
    for _ in range(rounds + 1):
        begun = time.process_time()
        for _ in range(calls):
            work()
        spent = (time.process_time() - begun) / calls
        least = min(least, spent)
        calls = max(1, int(SPENT_S / max(spent, 1e-7)))
    return least * 1e6


@click.command()
@click.option("--rounds", default=7, show_default=True)
def main(rounds: int) -> None:
    """Print the table and append it to the results."""
    if fastest_check() is plain_check:
        raise SystemExit("needs the compiled check: pip install ./fast")
    kinds = {
        "header": ValidationRules(full=False, check=plain_check),
        "compiled": ValidationRules(),
        "plain": ValidationRules(check=plain_check),
    }
    found = []
    print(f"{'batch':16}{'bytes':>8}{'records':>8}" + "".join(f"{kind:>12}" for kind in kinds))
    for size_bytes, name in ((0, "1 record"), (16_384, "16 KiB"), (65_536, "64 KiB")):
        for codec in Codec:
            batch, count = batch_of(size_bytes, codec)
            view = memoryview(batch)
            row = {
                kind: processor_us(
                    lambda rules=rules, view=view: validate_produced(
                        view, rules, wall_ms=NOW_MS, api_version=9
                    ),
                    rounds,
                )
                for kind, rules in kinds.items()
            }
            label = f"{name}, {codec.name.lower()}"
            print(
                f"{label:16}{len(batch):8}{count:8}"
                + "".join(f"{spent:9.1f} us" for spent in row.values())
            )
            found.append({"batch": label, "bytes": len(batch), "records": count, "us": row})
    keep_result("record_checks", {"machine": machine.describe(), "cases": found})


if __name__ == "__main__":
    main()
