"""The page on Apache Kafka's brokers: 2.8, 3.9 (both on ZooKeeper) and 4 (KRaft).

What only brokers of Odradek report is shown as unknown, and the page says so.
"""

import asyncio
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apache
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

from tests.served import ServedPage

from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings

pytestmark = pytest.mark.jvm
BROKERS = 3
RACKS = ("a", "b", "c")
RECORDS = 30
READ = 10
WAIT_S = 60


class Kafka(NamedTuple):
    """Brokers of a line, and the page on them."""

    line: str
    bootstrap: str
    page: ServedPage

    def tool(self, name: str, *arguments: object, typed: str = "") -> str:
        """What one of our tools prints."""
        done = subprocess.run(
            [sys.executable, "-m", "odradek", name, "--bootstrap-server", self.bootstrap,
             *map(str, arguments)],
            input=typed, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (name, arguments, done.stdout, done.stderr)
        return done.stdout

    def view(self, url: str) -> Any:
        """The values of a view."""
        status, found = self.page.ask(url)
        assert status == 200, (url, found)
        assert not found.get("problem"), (url, found["problem"])
        return found

    def wait(self, url: str, holds: Callable[[Any], bool]) -> Any:
        """The values of a view as soon as this holds for them."""
        deadline_s = time.monotonic() + WAIT_S
        while not holds(found := self.view(url)) and time.monotonic() < deadline_s:
            threading.Event().wait(0.3)
        assert holds(found), (url, found)
        return found


@pytest.fixture(scope="module", params=("2.8", "3.9", "4"))
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    home = tmp_path_factory.mktemp("apache")
    properties = {"auto.leader.rebalance.enable": "false"}
    with (
        apache.running(request.param, home, BROKERS, racks=RACKS, properties=properties) as brokers,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_STATE_HOME", str(home / "state"))  # where the page keeps its plans
        servers = ",".join(broker.address for broker in brokers)
        page = ServedPage("--bootstrap-server", servers, "--write")
        try:
            found = Kafka(request.param, servers, page)
            found.tool("topics", "--create", "--topic", "orders", "--partitions", 3,
                       "--replication-factor", 2)  # fmt: skip
            lines = "".join(f"line {number}\n" for number in range(RECORDS))
            found.tool("console-producer", "--topic", "orders", typed=lines)
            found.tool("console-consumer", "--topic", "orders", "--group", "readers",
                       "--from-beginning", "--max-messages", READ)  # fmt: skip
            yield found
        finally:
            page.end()


VIEWS = ("", "topics", "topics/orders", "topics/none", "brokers/1", "brokers/9", "messages",
         "groups", "groups/readers", "groups/none", "transactions", "moves", "timeline", "access",
         "stories")  # fmt: skip


def test_every_view_is_there(kafka: Kafka) -> None:
    assert {view: kafka.page.ask(view)[0] for view in VIEWS} == dict.fromkeys(VIEWS, 200)


def test_now_has_the_brokers_by_rack_and_what_could_not_be_examined(kafka: Kafka) -> None:
    view = kafka.wait("", lambda found: found["findings"] is not None)

    assert [rack["name"] for rack in view["racks"]] == list(RACKS)
    assert view["figures"][0] == {
        "name": "brokers registered", "value": 3, "of": 3, "is_bad": False,
    }  # fmt: skip
    assert [finding["kind"] for finding in view["findings"]] == ["lag"]
    unknown = {"2.8": ["retention"]}  # ListOffsets has no maximal timestamp yet
    assert sorted(view["not_examined"]) == unknown.get(kafka.line, [])


def test_a_topic_has_what_the_brokers_report_and_the_rest_is_unknown(kafka: Kafka) -> None:
    view = kafka.view("topics/orders")

    lanes = [lane for each in view["partitions"] for lane in each["lanes"]["lanes"]]
    leaders = [lane for lane in lanes if lane["role"] == "leader"]
    followers = [lane for lane in lanes if lane["role"] == "follower"]
    assert (len(leaders), len(followers), view["count"]) == (3, 3, 3)
    assert sum(lane["high_watermark"] for lane in leaders) == RECORDS
    assert sum(lane["leo"] for lane in followers) == RECORDS
    assert all(lane["in_sync"] for lane in lanes)
    assert {lane["leo"] for lane in leaders} == {None}  # no request of Kafka's asks for it
    assert (view["is_reported"], view["sentences"], view["journal"]) == (False, [], [])
    assert view["isr_min"] == 1
    assert view["size_bytes"] > RECORDS


def test_a_broker_has_its_disks_and_what_depends_on_it(kafka: Kafka) -> None:
    view = kafka.view("brokers/1")

    (disk,) = view["disks"]
    assert disk["replicas"] == view["broker"]["replicas"] > 0
    assert (disk["usable_bytes"] is None) == (kafka.line == "2.8")  # reported since 3.3
    assert "election" in {each["kind"] for each in view["consequences"]}


def test_messages_are_found_and_written(kafka: Kafka) -> None:
    view = kafka.view("messages?topic=orders&text=line+17")
    assert [each["value"]["text"] for each in view["messages"]] == ["line 17"]
    assert view["progress"]["complete"]

    kafka.tool("topics", "--create", "--topic", "written")
    message = {"topic": "written", "key": "k", "value": "v", "codec": "zstd"}
    assert kafka.page.ask("messages", body=message)[0] == 200
    (found,) = kafka.view("messages?topic=written")["messages"]
    assert (found["key"]["text"], found["value"]["text"], found["codec"]) == ("k", "v", "zstd")


def test_a_group_has_its_lag_and_is_reset(kafka: Kafka) -> None:
    (row,) = kafka.view("groups")["groups"]
    assert (row["group"], row["state"], row["lag"]) == ("readers", "Empty", RECORDS - READ)
    assert row["lag_time"]["source"] == "record"
    assert (
        "Kafka does not report rebalances" in kafka.view("groups/readers")["group"]["history_text"]
    )

    wanted = {"scenario": "shift-by", "value": "-4", "topics": "orders", "execute": "1"}
    status, answer = kafka.page.ask("groups/readers", body=wanted)
    assert (status, answer["executed"]) == (200, True), answer
    assert kafka.view("groups/readers")["group"]["lag"] >= RECORDS - READ
    back = wanted | {"value": "4"}
    assert kafka.page.ask("groups/readers", body=back)[0] == 200


def test_a_transaction_is_open_and_holds_consumers_back(kafka: Kafka) -> None:
    kafka.tool("topics", "--create", "--topic", "paid")
    client = ClientSettings(bootstrap_servers=tuple(kafka.bootstrap.split(",")))

    def is_there(view: Any) -> bool:
        return bool(view["held"] and (view["transactions"] or kafka.line == "2.8"))

    async def work() -> Any:
        settings = ProducerSettings(client=client, transactional_id="pay-1")
        async with await Producer.open(settings) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send("paid", b"undecided"))
            # The list may have been collected before the transaction began, what is held after it.
            found = await asyncio.to_thread(kafka.wait, "transactions", is_there)
            await producer.commit_transaction()
            return found

    during = asyncio.run(work())
    (held,) = during["held"]
    assert (held["last_stable_offset"], held["high_watermark"]) == (0, 1)
    listed = [(each["transactional_id"], each["state"]) for each in during["transactions"]]
    assert listed == ([] if kafka.line == "2.8" else [("pay-1", "Ongoing")])
    older = {"coordinators": "the brokers cannot be asked: they are older than Kafka 3.0"}
    assert during["problems"] == (older if kafka.line == "2.8" else {})
    kafka.wait("transactions", lambda view: not view["held"])


def replicas(kafka: Kafka, topic: str) -> set[tuple[int, ...]]:
    view = kafka.view(f"topics/{topic}")["partitions"]
    return {tuple(lane["broker"] for lane in each["lanes"]["lanes"]) for each in view}


def is_unthrottled(view: Any) -> bool:
    return not view["throttled_brokers"] and not view["throttled_topics"]


def test_a_move_is_planned_cancelled_executed_and_rolled_back(kafka: Kafka) -> None:
    kafka.tool("topics", "--create", "--topic", "moved", "--replica-assignment", "1:2,2:1")
    line = "x" * 1_000 + "\n"
    kafka.tool("console-producer", "--topic", "moved", typed=line * 6_000)
    kafka.wait("topics/moved", lambda view: (view["size_bytes"] or 0) > 1_000_000)
    before = replicas(kafka, "moved")

    slow = "moves/plan?kind=replication-factor&topic=moved&factor=3&throttle=10kB"
    plan = kafka.view(slow)
    assert plan["copied"] == 2
    assert plan["copied_bytes"] > 1_000_000
    assert kafka.page.ask("moves/begin", body={"plan": plan["id"]})[0] == 200
    moving = kafka.wait("moves", lambda view: view["moving"] and view["throttled_brokers"])
    assert {copy["broker"] for each in moving["moving"] for copy in each["copies"]} == {3}
    assert kafka.page.ask("moves/cancel", body={})[0] == 200
    kafka.wait("moves", lambda view: not view["moving"] and is_unthrottled(view))
    assert replicas(kafka, "moved") == before

    plan = kafka.view("moves/plan?kind=replication-factor&topic=moved&factor=3")
    assert kafka.page.ask("moves/begin", body={"plan": plan["id"]})[0] == 200
    done = kafka.wait("moves", lambda view: view["state"] == "done")
    assert {len(each) for each in replicas(kafka, "moved")} == {3}

    back = kafka.view("moves/plan?kind=roll-back")
    assert kafka.page.ask("moves/begin", body={"plan": back["id"]})[0] == 200
    kafka.wait(
        "moves",
        lambda view: view["state"] == "done" and view["saved"]["path"] != done["saved"]["path"],
    )
    assert replicas(kafka, "moved") == before


def test_the_timeline_has_what_two_polls_differ_in(kafka: Kafka) -> None:
    assert not kafka.view("timeline")["is_reported"]
    kafka.tool("topics", "--create", "--topic", "later")
    view = kafka.wait("timeline", lambda found: "later" in str(found["happenings"]))
    assert view["happenings"][0]["by"] is None


def test_access_says_that_there_is_no_authorizer(kafka: Kafka) -> None:
    assert "SECURITY_DISABLED" in kafka.view("access")["problems"]["ACLs"]
