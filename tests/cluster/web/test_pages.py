"""The pages of messages, groups and transactions on a real broker, request by request."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from brokers import BrokerProcess
from tests.asgi import requested

import odradek.client.admin.groups as admin_groups
import odradek.client.admin.topics as admin
from odradek.client.cluster import Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings
from odradek.model.partition import TopicPartition
from odradek.web.app import create_app
from odradek.web.facts.source import Source
from odradek.web.guard import TOKEN_HEADER, WriteAccess

JSON = {"accept": "application/json"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    options = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}
    broker = BrokerProcess(tmp_path_factory.mktemp("pages") / "broker", options)
    broker.start()
    yield f"127.0.0.1:{broker.port}"
    broker.kill()


class Page:
    """The application of one test, and a cluster's connection beside it."""

    def __init__(self, app, access, cluster):
        self._app = app
        self._token = access.exchange(access.code)
        self.cluster = cluster

    async def get(self, url, headers=JSON):
        return await requested(self._app, "GET", url, headers)

    async def post(self, url, body, *, token=True):
        headers = {**JSON, **({TOKEN_HEADER: self._token} if token else {})}
        return await requested(self._app, "POST", url, headers, body)


@asynccontextmanager
async def page_of(servers):
    access = WriteAccess(is_enabled=True)
    app = create_app(Source({"bootstrap.servers": servers}), write_access=access)
    async with (
        app.router.lifespan_context(app),
        await Cluster.bootstrap(servers) as cluster,
    ):
        yield Page(app, access, cluster)


async def fill(page, servers, topic, values, *, configs=None, **options):
    wanted = admin.NewTopic(topic, 1, 1, configs=configs or {})
    outcome = await admin.create_topics(page.cluster, [wanted])
    assert list(outcome.values()) == [None]
    settings = ProducerSettings(client=ClientSettings(bootstrap_servers=(servers,)), **options)
    async with await Producer.open(settings) as producer:
        for value in values:
            await (await producer.send(topic, value))


def test_a_search_is_readable_and_json_and_a_file(servers):
    async def work():
        async with page_of(servers) as page:
            values = [b"<script>alert(%d)</script>" % n for n in range(20)]
            await fill(page, servers, "shown", values)
            url = "/messages?topic=shown&text=alert&limit=5"
            as_json = (await page.get(url)).json()
            more = (await page.get(f"{as_json['continue_url']}")).json()
            html = (await page.get(url, {"accept": "text/html"})).text
            file = await page.get("/messages/export?topic=shown&text=alert(7)&format=jsonl")
            form = (await page.get("/messages")).json()
            return as_json, more, html, file, form

    as_json, more, html, file, form = asyncio.run(work())

    assert [each["offset"] for each in as_json["messages"]] == [0, 1, 2, 3, 4]
    assert as_json["progress"]["sentences"][0] == "15 offsets in 1 partition: not read yet"
    assert [each["offset"] for each in more["messages"]] == [5, 6, 7, 8, 9]
    assert "&lt;script&gt;alert(0)" in html
    assert "<script>alert" not in html
    assert "style=" not in html
    assert (file.headers["x-odradek-complete"], len(file.body.splitlines())) == ("yes", 1)
    assert "shown" in form["topics"]


def test_an_export_has_values_whole_that_the_page_shows_cut(servers):
    value = bytes(range(32, 127)) * 30_000  # 2.8 MB
    large = {"max.message.bytes": str(8 << 20)}

    async def work():
        async with page_of(servers) as page:
            await fill(page, servers, "large", [b"small", value], configs=large,
                       request_bytes_max=8 << 20)  # fmt: skip
            shown = (await page.get("/messages?topic=large&go=1")).json()
            return shown, await page.get("/messages/export?topic=large&format=jsonl")

    shown, file = asyncio.run(work())

    assert [each["is_cut"] for each in shown["messages"]] == [False, True]
    assert [json.loads(line)["value"].encode() for line in file.body.splitlines()] == [
        b"small",
        value,
    ]
    assert file.headers["x-odradek-complete"] == "yes"


@pytest.mark.parametrize(
    ("url", "status", "text"),
    [
        ("/messages?topic=nothing", 400, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/messages?topic=a&from=yesterday", 400, "neither an offset nor a time"),
        ("/messages?topic=a&cursor=AAAA", 400, "cursor is damaged"),
        ("/messages/export?topic=nothing&format=xml", 400, "jsonl, csv, parquet"),
    ],
)
def test_what_cannot_be_searched_is_refused(servers, url, status, text):
    async def work():
        async with page_of(servers) as page:
            return await page.get(url)

    answer = asyncio.run(work())

    assert answer.status_code == status
    assert text in answer.text


def test_a_message_is_produced_only_with_the_token(servers):
    async def work():
        async with page_of(servers) as page:
            await fill(page, servers, "written", [])
            body = {"topic": "written", "key": "k", "value": "v", "headers": "h: 1"}
            without = await page.post("/messages", body, token=False)
            first = await page.post("/messages", body)
            again = {"topic": "written", "partition": "0", "offset": "0"}
            second = await page.post("/messages/again", again)
            found = (await page.get("/messages?topic=written")).json()
            return without, first, second, found

    without, first, second, found = asyncio.run(work())

    assert (without.status_code, first.status_code, second.status_code) == (403, 200, 200)
    assert [each["value"]["text"] for each in found["messages"]] == ["v", "v"]
    assert [each["headers"][0]["name"] for each in found["messages"]] == ["h", "h"]


def consumer_of(servers, group):
    client = ClientSettings(bootstrap_servers=(servers,), client_id="reader")
    return Consumer.open(
        ConsumerSettings(
            client=client, group_id=group, offset_reset="earliest", commits_by_itself=False
        )
    )


def test_a_group_has_members_lag_and_how_it_was_found_and_is_reset_when_it_is_empty(servers):
    async def work():
        async with page_of(servers) as page:
            await fill(page, servers, "read", [b"%d" % n for n in range(10)])
            async with await consumer_of(servers, "readers") as consumer:
                consumer.subscribe(["read"])
                while not await consumer.poll(1_000):
                    pass
                await consumer.commit(
                    {TopicPartition("read", 0): OffsetAndMetadata(4, metadata="m")}
                )
                active = (await page.get("/groups/readers")).json()["group"]
                refused = await page.post(
                    "/groups/readers", {"scenario": "to-earliest", "execute": "1"}
                )
            listed = (await page.get("/groups")).json()["groups"]
            tried = await page.post("/groups/readers", {"scenario": "shift-by", "value": "-9"})
            before = await admin_groups.committed_offsets(page.cluster, "readers")
            done = await page.post(
                "/groups/readers", {"scenario": "to-offset", "value": "7", "execute": "1"}
            )
            after = await admin_groups.committed_offsets(page.cluster, "readers")
            html = (await page.get("/groups/readers", {"accept": "text/html"})).text
            return active, refused, listed, tried, before, done, after, html

    active, refused, listed, tried, before, done, after, html = asyncio.run(work())

    partition = TopicPartition("read", 0)
    assert (active["state"], active["lag"], active["lag_time"]["source"]) == ("Stable", 6, "record")
    assert active["members"][0]["client_id"] == "reader"
    assert active["members"][0]["partitions"] == ["read-0"]
    assert active["partitions"][0]["metadata"] == "m"
    assert active["rebalances"][0]["source"] == "the coordinator's report"
    assert (refused.status_code, "stop its members" in refused.text) == (400, True)
    (row,) = listed
    assert (row["group"], row["lag"], row["lag_time"]["source"]) == ("readers", 6, "record")
    (row,) = tried.json()["offsets"]
    assert (row["committed_offset"], row["new_offset"]) == (4, 0)
    assert "-5 is out of bounds" in row["note"]
    assert tried.json()["command"]["text"].endswith(
        "--reset-offsets --group readers --all-topics --shift-by=-9 --dry-run"
    )
    assert (before[partition].offset, after[partition].offset) == (4, 7)
    assert done.json()["executed"]
    assert "read-0" in html


def test_an_open_transaction_is_shown_with_what_it_holds_back(servers):
    async def work():
        async with page_of(servers) as page:
            await fill(page, servers, "paid", [b"before"])
            client = ClientSettings(bootstrap_servers=(servers,))
            settings = ProducerSettings(client=client, transactional_id="pay-1")
            async with await Producer.open(settings) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await (await producer.send("paid", b"undecided"))
                group = {TopicPartition("paid", 0): 1}
                await admin_groups.commit_offsets(page.cluster, "waiting", group)
                during = (await page.get("/transactions")).json()
                html = (await page.get("/transactions", {"accept": "text/html"})).text
                await producer.abort_transaction()
        async with page_of(servers) as page:
            return during, html, (await page.get("/transactions")).json()

    during, html, after = asyncio.run(work())

    (transaction,) = during["transactions"]
    (held,) = during["held"]
    assert (transaction["transactional_id"], transaction["state"]) == ("pay-1", "Ongoing")
    assert (transaction["partitions"], transaction["held"]) == (["paid-0"], 1)
    assert (held["last_stable_offset"], held["high_watermark"], held["groups"]) == (
        1, 2, ["waiting"],
    )  # fmt: skip
    assert held["producers"][0]["text"] == "its coordinator has it: transactional id pay-1"
    assert "pay-1" in html
    assert (after["transactions"], after["held"]) == ([], [])
