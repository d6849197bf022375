"""What a broker reports of itself: replicas, groups, directories, options, refused clients."""

import asyncio
import json
import logging
import random
from dataclasses import replace
from types import SimpleNamespace

from tests.unit.broker.live import BEFORE_TOPIC_IDS, fetch, play, produce

from odradek.broker.cluster.lifecycle import Lifecycle
from odradek.broker.incidents import CUTS_MAX, REFUSALS_MAX, CutRecords, Incidents
from odradek.broker.reports import sample_disks
from odradek.broker.wiring.config_changes import ConfigChanges
from odradek.coord.store import StoreCounts
from odradek.log.checkpoints import RECOVERY_POINT_FILE
from odradek.log.directories import CLEAN_SHUTDOWN_FILE
from odradek.log.repair.cuts import CutKind, LogCut
from odradek.model.partition import TopicPartition
from odradek.obs.exposition import text_pieces
from odradek.wire.header import encode_request_header
from odradek.wire.messages.describe_state import DescribeStateRequest, Field


async def report(live, name, **query):
    fields = [Field(name=key, value=value) for key, value in query.items()]
    answer = await live.peer().ask(DescribeStateRequest(report=name, fields=fields))
    return json.loads(bytes(answer.body))


def test_a_leader_reports_its_offsets():
    async def story(live):
        await live.topic("t", 2)
        for _ in range(3):
            live.append(b"a")
        (replica,) = (await report(live, "replicas", topic="t", partition="0"))["replicas"]

        assert (replica["role"], replica["leo"], replica["high_watermark"]) == ("leader", 3, 3)
        assert (replica["isr"], replica["isr_min"], replica["followers"]) == ([0], 1, [])
        assert replica["open_transaction_offset"] is None
        assert len((await report(live, "replicas", topic="t"))["replicas"]) == 2
        assert (await report(live, "replicas", topic="u"))["replicas"] == []

    play(story)


def test_groups_are_reported_by_their_coordinator():
    async def story(live):
        assert await report(live, "groups") == {"groups": []}
        found = await report(live, "groups", group="g")
        assert found == {"group": "g", "is_here": False, "why": "NOT_COORDINATOR"}

    play(story)


def test_a_broker_reports_the_stored_options_of_topics_that_have_no_effect():
    async def story(live):
        await live.topic("t")
        changes = ConfigChanges(live.broker)
        changes.topic_config("t", {"retention.ms": "abc", "segment.bytes": "20000"})
        found = (await report(live, "broker"))["invalid_topic_options"]

        assert list(found["t"]) == ["retention.ms"]
        assert "abc" in found["t"]["retention.ms"]
        changes.topic_config("t", {"segment.bytes": "20000"})
        assert (await report(live, "broker"))["invalid_topic_options"] == {}

    play(story)


def test_a_broker_reports_its_directories_and_options_without_their_values():
    async def story(live):
        found = await report(live, "broker")

        assert [d["is_offline"] for d in found["log_dirs"]] == [False] * len(found["log_dirs"])
        assert found["cleaner"]["is_enabled"] is True
        unknown = [{"name": "num.partitons", "similar": ["num.partitions"]}]
        assert found["unknown_options"] == unknown
        assert "secret" not in json.dumps(found)
        assert found["store_age"] == {
            "restored": None,
            "disks_behind": 0,
            "older_directories": [],
            "refused_roles": [],
        }

    play(story, num_partitons="secret")


def test_connections_without_file_descriptors_are_reported():
    async def story(live):
        server, asker = live.broker.server, live.peer()
        most = server.connection_count + 2
        server.limits = replace(server.limits, files_max=most)
        for _ in range(5):
            live.peer()
        answer = await asker.ask(DescribeStateRequest(report="broker", fields=[]))

        now_ms = live.clock.wall_ms()
        assert json.loads(bytes(answer.body))["open_files"] == {
            "connections": most, "connections_max": most, "refused": 3, "first_ms": now_ms,
            "last_ms": now_ms, "hosts": [["10.0.0.7", most]],
        }  # fmt: skip

    play(story)


def test_clients_that_were_refused_are_recorded():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        header = bytearray(encode_request_header(3, 12, 1, "tomorrow"))
        header[2:4] = (99).to_bytes(2, "big")
        peer.send_frame(bytes(header))
        for _ in range(2):
            await live.peer().ask(produce(live.batch(b"x" * 5_000)))
        refusals = (await report(live, "broker"))["refusals"]

        assert [(r["what"], r["client_id"], r["count"]) for r in refusals] == [
            ("Produce to t: MESSAGE_TOO_LARGE", "peer", 2),
            ("Metadata version 99; served are 0-12", "tomorrow", 1),
        ]

    play(story, message_max_bytes="1000")


def test_of_many_kinds_of_refusals_the_oldest_are_dropped():
    incidents = Incidents(iter(range(1_000)).__next__)
    for n in range(REFUSALS_MAX + 1):
        incidents.refused(f"kind {n}", host=f"h{n}", client_id=None, software="?")
        incidents.refused("kind 0", host="h0", client_id=None, software="?")
    kinds = {refusal["what"]: refusal["count"] for refusal in incidents.as_json()}

    assert len(kinds) == REFUSALS_MAX
    assert kinds["kind 0"] == REFUSALS_MAX + 2
    assert "kind 1" not in kinds


def test_a_disk_is_reported_with_the_time_since_which_it_is_so_full():
    async def story(live):
        sample_disks(live.broker)
        began_ms = live.clock.wall_ms()
        directory = (await report(live, "broker"))["log_dirs"][0]

        percent = 100 * (directory["total_bytes"] - directory["usable_bytes"])
        assert percent // directory["total_bytes"] == len(directory["full_since_ms"]) - 1
        assert directory["full_since_ms"]["0"] == began_ms

    play(story)


def test_a_disk_that_falls_below_a_percentage_is_full_to_it_again_later():
    incidents = Incidents(iter(range(1_000, 9_000, 1_000)).__next__)  # 1,000 is its own start
    for usable in (50, 5, 4, 20, 9):
        incidents.disks_sampled([("/d", 100, usable)])

    since = incidents.full_since["/d"]
    assert (since[0], since[50], since[80], since[90], since.get(95)) == (
        2_000,
        2_000,
        3_000,
        6_000,
        None,
    )


def test_the_last_fetch_of_each_follower_is_reported():
    async def story(live):
        await live.order("t", replicas=(0, 1))
        request = fetch({("t", 0): 0}, replica_id=1, max_wait_ms=0, session_epoch=0)
        answer = await live.peer().ask(request, BEFORE_TOPIC_IDS)
        assert answer.session_id
        fetched_ms = live.clock.wall_ms()
        await asyncio.sleep(5)

        assert (await report(live, "broker"))["peers"] == [
            {"broker": 1, "fetched_ms": fetched_ms, "unanswered_ms": None}
        ]

    play(story)


def test_what_a_log_lost_at_a_start_is_warned_of_counted_and_reported(caplog):
    async def story(live):
        await live.topic("t")
        for _ in range(3):
            live.append(b"a")
        path = live.log().directory
        segment = f"{path}/{0:020d}.log"
        await live.broker.stop()
        live.disk.unlink(f"{path.rpartition('/')[0]}/{CLEAN_SHUTDOWN_FILE}")
        live.disk.unlink(f"{path.rpartition('/')[0]}/{RECOVERY_POINT_FILE}")
        size = live.disk.file(segment).size()
        live.disk.file(segment).write(2 * size // 3 + 30, (b"?",))
        live.broker = live.make()
        await live.start()

        (cut,) = (await report(live, "broker"))["cuts"]
        expected = {"topic": "t", "partition": 0, "kind": "damage", "path": path, "offset": 2}
        expected |= {"end_offset": None, "bytes": size // 3, "high_watermark": 3}
        assert expected.items() <= cut.items()
        assert cut["has_committed"] is True
        (line,) = [r for r in caplog.records if "t-0: the records from offset 2 on" in r.message]
        assert line.levelno == logging.WARNING
        assert f"({size // 3} bytes, {path})" in line.message
        text = b"".join(text_pieces(live.broker.metrics)).decode()
        assert 'odradek_log_cuts_total{kind="damage"} 1\n' in text
        assert f'odradek_log_cut_bytes_total{{kind="damage"}} {size // 3}\n' in text
        assert 'odradek_log_cuts_total{kind="gap"} 0\n' in text

    play(story)


def test_many_cuts_are_counted_and_the_newest_kept():
    records = CutRecords(lambda: 5)
    for offset in range(300):
        records.note(
            LogCut(TopicPartition("t", 0), CutKind.GAP, "/d/t-0", offset, offset + 2, 10, 0, "why")
        )

    assert (records.counts[CutKind.GAP], records.size_bytes[CutKind.GAP]) == (300, 3000)
    assert [kept["offset"] for kept in records.as_json()] == list(range(300 - CUTS_MAX, 300))
    assert records.as_json()[0]["span"] == "the records from offset 44 to 45"


def test_a_broker_reports_since_when_it_is_not_registered():
    async def story(live):
        store = (await report(live, "broker"))["store"]
        disk = store.pop("disk")
        assert disk["path"].endswith(".coordination.db")
        assert 0 < disk["usable_bytes"] < disk["total_bytes"]
        assert store == {
            "zookeeper": None,
            "silent_ms": None,
            "unregistered_ms": None,
        }
        lifecycle, ended, seen = live.broker.lifecycle, asyncio.Event(), []
        lost = live.store.on_session_lost

        def told():
            lost()
            seen.append(lifecycle.unregistered_ms)
            ended.set()

        live.store.on_session_lost = told
        live.store.expire()
        await ended.wait()
        assert seen == [live.clock.wall_ms()]
        await asyncio.sleep(60)  # simulated: it registers again
        assert (await report(live, "broker"))["store"]["unregistered_ms"] is None

    play(story)


def test_since_when_zookeeper_is_silent_is_known():
    store = SimpleNamespace(counts=StoreCounts(), on_session_lost=None)
    clock = SimpleNamespace(wall_ms=lambda: 7)
    lifecycle = Lifecycle(
        store, clock, random, session_timeout_ms=1, lost=lambda: None, registered=lambda _: None
    )
    seen = []
    for is_there in (True, False, True):
        store.counts.connection(is_there=is_there)
        seen.append(lifecycle.silent_ms)

    assert seen == [None, 7, None]
