"""The lowest versions of the APIs are answered as by Apache Kafka.

`lowest_versions.txt` was written by Apache Kafka 3.9.2; `ODRADEK_REWRITE=1` with its address in
`ODRADEK_BOOTSTRAP` writes it again.
"""

import asyncio
import os
import pathlib

import lowest_versions

WRITTEN = pathlib.Path(__file__).parent / "lowest_versions.txt"


def test_every_response_is_the_one_of_apache_kafka(cluster):
    lines = asyncio.run(lowest_versions.everything(cluster.bootstrap))
    if os.environ.get("ODRADEK_REWRITE") and not cluster.ours:
        WRITTEN.write_text("".join(f"{line}\n" for line in lines))

    assert lines == WRITTEN.read_text().splitlines()
