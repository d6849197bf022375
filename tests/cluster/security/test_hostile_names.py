"""Names that clients choose act on no terminal, begin no line, and are words of no shell command.

A group, a transactional id, an ACL and a client with each hostile name are made on a live cluster.
All that prints them is asked: Kafka's tools, `why`, `doctor`, and every view of the page.
"""

import asyncio
import json
import re
import shlex
import subprocess
from html import unescape
from urllib.parse import urlencode

import pytest
from tests.asgi import requested

from odradek.cli.main import run
from odradek.client.cluster import Cluster
from odradek.testkit import KafkaCluster
from odradek.web.app import create_app
from odradek.web.facts.source import Source
from odradek.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

FORGED = "ok: no problem was found"
NAMES = (
    "x$(touch${IFS}PWNED)",
    "x; odradek down --dir y",
    f"x\n{FORGED}\nx",
    f"\x1b[2J\x1b]0;t\x07\r{FORGED}",
    "\x9b31m\x85\u2028\u202egnp.exe",
    "--help",
    'it\'s "quoted" `id`',
)
HOSTILE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def must_be_tame(text, what):
    assert HOSTILE.search(text) is None, (what, HOSTILE.search(text), text[:2_000])


def must_have_no_forged_line(text, what):
    lines = text.splitlines()
    assert [line for line in lines if line.strip().startswith(FORGED)] == [], what


@pytest.fixture(scope="module")
def cluster():
    with KafkaCluster() as cluster:
        cluster.topic("t")
        asyncio.run(prepared(cluster.bootstrap))
        yield cluster


async def prepared(servers):
    for name in NAMES:
        cluster = await Cluster.bootstrap(servers, client_id=name)
        try:
            await with_groups(cluster, name)
        finally:
            await cluster.close()


async def with_groups(cluster, name):
    async def until(kind, key, request, response, code):
        for _ in range(200):
            (number, *_) = await cluster.nodes()
            connection = await cluster.broker(number)
            await connection.request(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]),
                FindCoordinatorResponse,
            )
            answer = await connection.request(request, response)
            if code(answer) not in (14, 15, 16):  # the coordinator is loading, or not yet there
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(code(answer))

    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=name
    )
    commit = OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    answer = await until(
        0, name, commit, OffsetCommitResponse, lambda a: a.topics[0].partitions[0].error_code
    )
    assert answer.topics[0].partitions[0].error_code == 0, name
    join = JoinGroupRequest(
        group_id=f"member of {name}",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        group_instance_id=name,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = await until(0, join.group_id, join, JoinGroupResponse, lambda a: a.error_code)
    assert joined.error_code == 0, name
    init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    made = await until(1, name, init, InitProducerIdResponse, lambda a: a.error_code)
    assert made.error_code == 0, name


def commands(cluster):
    server = ("--bootstrap-server", cluster.bootstrap)
    groups = ("consumer-groups", *server)
    yield (*groups, "--list")
    yield (*groups, "--list", "--state")
    for what in ((), ("--state",), ("--members", "--verbose"), ("--offsets",)):
        yield (*groups, "--describe", "--all-groups", *what)
    yield ("transactions", *server, "list")
    yield ("doctor", *server)
    for name in NAMES:
        yield ("topics", *server, "--describe", f"--topic={name}")
        yield ("topics", *server, "--delete", f"--topic={name}")
        yield (*groups, "--describe", f"--group={name}")
        yield (*groups, "--delete-offsets", f"--group={name}", "--topic", "t")
        yield ("transactions", *server, "describe", f"--transactional-id={name}")
        yield ("why", "group", *server, "--", name)
        yield ("why", "group", *server, "--", f"member of {name}")
        yield ("why", "client", *server, "--", name)
        yield ("why", "topic", *server, "--", name)


def test_what_the_commands_print_is_tame(cluster, capfd):
    for words in commands(cluster):
        run(words)
        printed = capfd.readouterr()
        for text in printed:
            must_be_tame(text, words)
            must_have_no_forged_line(text, words)


PAGES = ("/", "/topics", "/groups", "/transactions", "/timeline", "/moves", "/access", "/brokers/1")
HTML, JSON = {"accept": "text/html"}, {"accept": "application/json"}


async def pages(app):
    found = set(PAGES)
    for path in ("/groups", "/transactions"):
        listed = (await requested(app, "GET", path, HTML)).text
        found |= {unescape(each) for each in re.findall(r'href="(/[^"#]+)', listed)}
    for name in NAMES:
        asked = urlencode({"name": name, "topic": name})
        found |= {f"{path}?{asked}" for path in ("/groups", "/topics", "/messages")}
    return sorted(path for path in found if not path.startswith("/static"))


def test_what_the_page_shows_is_tame_and_its_commands_are_what_is_meant(cluster, tmp_path):
    async def work():
        app = create_app(Source({"bootstrap.servers": cluster.bootstrap}))
        async with app.router.lifespan_context(app):
            found = await pages(app)
            shown = [(p, kind, await requested(app, "GET", p, kind)) for p in found
                     for kind in (HTML, JSON)]  # fmt: skip
        return found, shown

    found, shown = asyncio.run(work())
    assert len(found) > len(PAGES) + 3 * len(NAMES)
    for path, kind, answer in shown:
        must_be_tame(answer.text, (path, kind))
    values = [answer.json() for _, kind, answer in shown if kind == JSON and is_json(answer)]
    for each in commands_in(values):
        must_be_read_back(each, tmp_path)


def is_json(response):
    return response.headers["content-type"].startswith("application/json")


def commands_in(value):
    if isinstance(value, dict):
        if value.keys() == {"words", "text"}:
            yield value
        for each in value.values():
            yield from commands_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from commands_in(each)


def must_be_read_back(command, folder):
    """Bash gets these words, and has run nothing."""
    _, _, text = command["text"].rpartition(" | ")
    shown = subprocess.run(
        ["bash", "-c", f"print() {{ printf '%s\\0' \"$@\"; }}; print {text}"],
        capture_output=True, check=True, cwd=folder,
    ).stdout  # fmt: skip
    assert shown.decode().split("\0")[:-1] == command["words"]
    assert list(folder.iterdir()) == []


def test_shlex_reads_back_ordinary_commands_too():
    assert shlex.split(shlex.join(NAMES)) == list(NAMES)
    assert json.loads(json.dumps(NAMES)) == list(NAMES)
