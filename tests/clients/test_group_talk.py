"""Requests to a group coordinator, and in low versions, have Apache Kafka's responses.

`group_talk.txt` was written by Apache Kafka 3.9.2; `ODRADEK_REWRITE=1` with its address in
`ODRADEK_BOOTSTRAP` writes it again.
"""

import asyncio
import os
import pathlib

import group_talk

WRITTEN = pathlib.Path(__file__).parent / "group_talk.txt"


def test_every_response_is_the_one_of_apache_kafka(cluster):
    lines = asyncio.run(group_talk.everything(cluster.bootstrap))
    if os.environ.get("ODRADEK_REWRITE") and not cluster.ours:
        WRITTEN.write_text("".join(f"{line}\n" for line in lines))

    assert lines == WRITTEN.read_text().splitlines()
