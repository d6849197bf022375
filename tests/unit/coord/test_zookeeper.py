"""The store in ZooKeeper without ZooKeeper: the test answers in the place of kazoo's client."""

import asyncio
import random
import socket
from types import SimpleNamespace

import pytest

pytest.importorskip("kazoo")

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooState
from kazoo.protocol.serialization import GetData, int_struct, multiheader_struct, stat_struct
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from odradek.coord.store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SetData,
    StoreError,
)
from odradek.coord.zookeeper import ZooKeeperStore, parse_servers
from odradek.coord.zookeeper_messages import MultiRead, acl_of, error_of, results_of, stat_of
from odradek.model.errors import StartupError

STAT = ZnodeStat(11, 12, 13, 14, 5, 6, 0, 77, 3, 2, 12)


class Client:
    """In the place of kazoo's: requests are kept in `sent` until a test answers them."""

    def __init__(self, **options) -> None:
        self.options = options
        self.connected = False
        self.client_id = (77, b"")
        self.sent = []
        self.is_stopped = False

    def add_listener(self, listener) -> None:
        self.listener = listener

    def start_async(self) -> None:
        self.change_state(KazooState.CONNECTED)

    def change_state(self, state: str) -> None:
        self.connected = state == KazooState.CONNECTED
        self.listener(state)

    def _call(self, message, answer) -> None:
        if getattr(message, "path", None) == "/kafka":  # a chroot that exists
            answer.set(STAT)
        else:
            self.sent.append((message, answer))

    def answer(self, value) -> None:
        self.settle(self.sent.pop(0)[1], value)

    @staticmethod
    def settle(answer, value) -> None:
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set(value)

    def lose(self) -> None:
        """As kazoo does it: waiting requests fail first, then the state changes."""
        self.connected = False
        lost, self.sent = self.sent, []
        for _, answer in lost:
            answer.set_exception(kazoo_errors.ConnectionLoss())
        self.change_state(KazooState.SUSPENDED)

    def stop(self) -> None:
        self.is_stopped = True

    def close(self) -> None:
        pass


class World:
    def __init__(self) -> None:
        self.clients = []

    def make(self, **options):
        self.clients.append(Client(**options))
        return self.clients[-1]

    async def connect(self, servers="one:1", **options) -> tuple[ZooKeeperStore, Client]:
        store = ZooKeeperStore(
            servers,
            call_soon=asyncio.get_running_loop().call_soon_threadsafe,
            randomness=random.Random(0),
            make_client=self.make,
            **options,
        )
        await store.open()
        return store, self.clients[-1]


async def turn() -> None:
    """Run the loop until nothing is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def on_loop(test):
    def run():
        asyncio.run(test(World()))

    run.__name__ = test.__name__
    return run


# ------------------------------------------------------------------------------ addresses


def test_servers_and_chroot_are_read_from_zookeeper_connect():
    assert parse_servers("a:1,b:2/kafka/x") == (["a:1", "b:2"], "/kafka/x")
    assert parse_servers(" a , [::1]:3/") == (["a:2181", "[::1]:3"], "")


@pytest.mark.parametrize("text", ["", "a:1,,b:2", "a:x", "a:0", "a:70000", ":2181", "a:1/b//c"])
def test_a_malformed_list_of_servers_is_refused_by_name(text):
    with pytest.raises(StartupError, match="zookeeper.connect="):
        parse_servers(text)


# -------------------------------------------------------------------------------- meanings


def test_a_stat_keeps_its_meaning():
    stat = stat_of(STAT)
    assert (stat.created_id, stat.modified_id, stat.created_ms, stat.modified_ms) == (
        11,
        12,
        13,
        14,
    )
    assert (stat.version, stat.children_version, stat.ephemeral_owner) == (5, 6, 77)
    assert (stat.data_length, stat.children_count) == (3, 2)


@pytest.mark.parametrize(
    ("theirs", "subject", "ours", "text"),
    [
        (kazoo_errors.NoNodeError, "/a", NoNodeError, "/a does not exist"),
        (kazoo_errors.NoNodeError, Create("/a/b"), NoNodeError, "its parent /a does not exist"),
        (kazoo_errors.NodeExistsError, Create("/a"), NodeExistsError, "/a exists already"),
        (kazoo_errors.BadVersionError, SetData("/a", b"", 3), BadVersionError, "/a .*not 3"),
        (kazoo_errors.NotEmptyError, Delete("/a"), NotEmptyError, "/a has children"),
        (kazoo_errors.NoAuthError, "/a", StoreError, "/a: its ACL"),
        (kazoo_errors.SessionExpiredError, "/a", SessionExpiredError, "session"),
        (kazoo_errors.ConnectionClosedError, "/a", SessionExpiredError, "session"),
        (kazoo_errors.ConnectionLoss, "/a", ConnectionLostError, "connection"),
        (kazoo_errors.SessionMovedError, "/a", ConnectionLostError, "connection"),
        (kazoo_errors.MarshallingError, "/a", StoreError, "/a: .*MarshallingError"),
    ],
)
def test_kazoos_errors_are_the_contracts(theirs, subject, ours, text):
    error = error_of(theirs(), subject)
    assert type(error) is ours
    with pytest.raises(ours, match=text):
        raise error


def test_a_failed_multi_names_the_operation_that_failed():
    operations = [Create("/a"), Check("/b", 4), Create("/c")]
    answers = [
        kazoo_errors.RolledBackError(),
        kazoo_errors.BadVersionError(),
        kazoo_errors.RuntimeInconsistency(),
    ]
    error = results_of(operations, answers, root="/kafka")
    assert isinstance(error, MultiError)
    assert error.index == 1
    assert isinstance(error.cause, BadVersionError)


def test_a_multi_is_answered_without_the_chroot():
    operations = [
        Create("/q/n_", sequential=True),
        SetData("/a", b""),
        Delete("/b"),
        Check("/c", 1),
    ]
    answers = ["/kafka/q/n_0000000007", STAT, True, True]
    results = results_of(operations, answers, root="/kafka")
    assert results == ["/q/n_0000000007", stat_of(STAT), None, None]


def test_many_reads_are_one_request_and_errors_are_in_their_places():
    asked = bytes(MultiRead(["/a", "/b"]).serialize())
    one = multiheader_struct.pack(GetData.type, 0, -1) + int_struct.pack(2)
    end = multiheader_struct.pack(-1, 1, -1)
    assert asked == one + b"/a\0" + one + b"/b\0" + end

    header = multiheader_struct.pack(GetData.type, 0, 0)
    answered = (
        header
        + int_struct.pack(3)
        + b"xyz"
        + stat_struct.pack(*STAT)
        + multiheader_struct.pack(-1, 0, -101)
        + int_struct.pack(-101)
        + header
        + int_struct.pack(-1)
        + stat_struct.pack(*STAT)
        + end
    )
    first, second, third = MultiRead.deserialize(answered, 0)
    assert first == (b"xyz", STAT)
    assert isinstance(second, kazoo_errors.NoNodeError)
    assert third == (None, STAT)


@pytest.mark.parametrize(
    ("path", "rights"),
    [
        ("/brokers/topics/t", [("auth", "ALL"), ("world", "READ")]),
        ("/config/topics/t", [("auth", "ALL"), ("world", "READ")]),
        ("/config/users/u", [("auth", "ALL")]),
        ("/config/brokers/1", [("auth", "ALL")]),
        ("/delegation_token/tokens/x", [("auth", "ALL")]),
        ("/consumers", [("world", "ALL")]),
    ],
)
def test_secured_nodes_are_written_by_brokers_and_read_by_all_but_for_secrets(path, rights):
    found = acl_of(path, is_secured=True)
    assert [(acl.id.scheme, acl.acl_list[0]) for acl in found] == rights
    assert [acl.id.scheme for acl in acl_of(path, is_secured=False)] == ["world"]


# -------------------------------------------------------------------------------- requests


@on_loop
async def test_in_flight_requests_are_limited_and_the_others_wait_in_order(world):
    store, client = await world.connect(in_flight_max=3)
    writes = [asyncio.ensure_future(store.delete(f"/{number}")) for number in range(5)]
    await turn()
    assert [message.path for message, _ in client.sent] == ["/0", "/1", "/2"]
    client.answer(True)
    await turn()
    assert [message.path for message, _ in client.sent] == ["/1", "/2", "/3"]
    for _ in range(4):
        client.answer(True)
        await turn()
    assert await asyncio.gather(*writes) == [None] * 5


@on_loop
async def test_a_request_cancelled_before_it_was_sent_is_not_sent(world):
    store, client = await world.connect(in_flight_max=1)
    writes = [asyncio.ensure_future(store.delete(f"/{number}")) for number in range(3)]
    await turn()
    writes[1].cancel()
    await turn()
    client.answer(True)
    await turn()
    assert [message.path for message, _ in client.sent] == ["/2"]
    client.answer(True)
    await writes[2]


@on_loop
async def test_many_reads_come_in_slices_and_one_by_one_from_an_old_server(world):
    store, client = await world.connect(in_flight_max=1000)
    paths = [f"/{number}" for number in range(450)]
    reads = asyncio.ensure_future(store.get_many(paths))
    await turn()
    assert [len(message.paths) for message, _ in client.sent] == [200, 200, 50]
    for _ in range(3):
        client.answer(kazoo_errors.UnimplementedError())
    await turn()
    assert [message.path for message, _ in client.sent] == paths
    for number in range(450):
        client.answer((b"x", STAT) if number % 2 else kazoo_errors.NoNodeError())
    found = await reads
    assert [node is None for node in found] == [number % 2 == 0 for number in range(450)]


@on_loop
async def test_a_request_too_long_for_the_server_is_refused_before_it_is_sent(world):
    store, client = await world.connect(request_bytes_max=10_000)
    with pytest.raises(StoreError, match="/a: a request of 100.. bytes .* takes 10000"):
        await store.set_data("/a", b"x" * 10_000)
    small, large = [Create("/b", b"x" * 4_000)], [Create("/c", b"x" * 5_000)] * 2
    outcomes = asyncio.ensure_future(store.multi_many([large, small]))
    await turn()
    assert len(client.sent) == 1
    client.answer(["/b"])
    refused, done = await outcomes
    assert isinstance(refused, MultiError)
    assert "jute.maxbuffer" in str(refused)
    assert done == ["/b"]
    # Too long by the upper bound, not by the exact count: it is sent.
    write = asyncio.ensure_future(store.set_data("/" + "a" * 2_000, b"x" * 5_000))
    await turn()
    client.answer(STAT)
    await write


@on_loop
async def test_a_bad_path_in_a_multi_is_named_with_its_place(world):
    store, client = await world.connect()
    with pytest.raises(MultiError, match="operation 1 of a multi: path 'b'"):
        await store.multi([Create("/a"), Create("b")])
    assert client.sent == []


# --------------------------------------------------------------------- a lost connection


@on_loop
async def test_when_the_connection_is_lost_writes_fail_and_reads_are_sent_again(world):
    store, client = await world.connect(in_flight_max=2)
    write = asyncio.ensure_future(store.set_data("/w", b""))
    read = asyncio.ensure_future(store.exists("/r"))
    unsent = asyncio.ensure_future(store.delete("/later"))
    await turn()
    client.lose()
    with pytest.raises(ConnectionLostError, match="/w"):
        await write
    await turn()
    assert client.sent == []
    assert not read.done()
    client.change_state(KazooState.CONNECTED)
    await turn()
    assert [message.path for message, _ in client.sent] == ["/r", "/later"]
    client.answer(None)
    client.answer(True)
    assert await read is None
    assert await unsent is None


@on_loop
async def test_a_connection_that_is_lost_and_made_again_is_told(world):
    store, client = await world.connect(in_flight_max=2)
    told = []
    store.counts.changed = told.append
    client.lose()
    await turn()
    assert (told, store.counts.disconnects) == ([False], 1)
    client.change_state(KazooState.CONNECTED)
    await turn()
    assert told == [False, True]


@on_loop
async def test_no_request_waits_for_a_connection_longer_than_the_session_time_out(world):
    store, client = await world.connect(session_timeout_ms=50)
    client.lose()
    for attempt in (store.get("/a"), store.create("/b")):
        with pytest.raises(ConnectionLostError):
            await attempt
    client.change_state(KazooState.CONNECTED)
    await turn()
    # Reported lost: it must not be sent later.
    assert client.sent == []
    assert store.session_id == 77


@on_loop
async def test_watches_of_a_lost_connection_fire_once_after_the_next_connection(world):
    store, client = await world.connect("one:1/kafka")
    fired = []
    reads = [
        asyncio.ensure_future(store.get("/a", watch=lambda: fired.append("data"))),
        asyncio.ensure_future(store.children("/a", watch=lambda: fired.append("children"))),
    ]
    await turn()
    watch = client.sent[0][0].watcher
    client.answer((b"", STAT))
    client.answer([])
    await asyncio.gather(*reads)
    client.lose()
    watch(WatchedEvent(EventType.NONE, "CONNECTING", None))
    await turn()
    assert fired == []
    client.change_state(KazooState.CONNECTED)
    watch(WatchedEvent(EventType.CHANGED, "CONNECTED", "/kafka/a"))
    await turn()
    assert fired == ["data", "children"]


@on_loop
async def test_an_event_that_arrives_right_after_the_answer_finds_its_watcher(world):
    store, client = await world.connect()
    fired = []
    read = asyncio.ensure_future(store.children("/", watch=lambda: fired.append("/")))
    await turn()
    watch = client.sent[0][0].watcher
    client.answer(["b", "a"])
    watch(WatchedEvent(EventType.CHILD, "CONNECTED", "/"))
    assert await read == ["a", "b"]
    assert fired == ["/"]


# ------------------------------------------------------------------------------- sessions


@on_loop
async def test_an_expiry_ends_every_call_and_no_new_session_begins_by_itself(world):
    store, client = await world.connect(in_flight_max=1)
    lost = []
    store.on_session_lost = lambda: lost.append(store.session_id)
    calls = [asyncio.ensure_future(call) for call in (store.get("/a"), store.delete("/b"))]
    await turn()
    handler = client.options["handler"]
    client.change_state(KazooState.LOST)
    with pytest.raises(ConnectionAbortedError):
        handler.create_connection(("127.0.0.1", 1))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [SessionExpiredError] * 2
    client.answer((b"", STAT))  # too late
    await turn()
    assert lost == [0]
    with pytest.raises(SessionExpiredError):
        await store.multi([])
    await store.open()
    assert store.session_id == 77
    assert len(world.clients) == 2
    await store.close()
    assert world.clients[1].is_stopped
    assert lost == [0]


@on_loop
async def test_a_call_of_several_steps_ends_with_the_session_too(world):
    store, client = await world.connect()
    create = asyncio.ensure_future(store.create("/a/b", make_parents=True))
    await turn()
    client.answer(kazoo_errors.NoNodeError())
    client.change_state(KazooState.LOST)
    with pytest.raises(SessionExpiredError):
        await create
    await store.open()
    await turn()
    assert [message for message, _ in world.clients[1].sent] == []


@on_loop
async def test_an_answer_of_session_expired_ends_the_session_too(world):
    store, client = await world.connect()
    lost = []
    store.on_session_lost = lambda: lost.append(1)
    write = asyncio.ensure_future(store.delete("/a"))
    await turn()
    client.answer(kazoo_errors.SessionExpiredError())
    with pytest.raises(SessionExpiredError):
        await write
    assert lost == [1]
    assert store.session_id == 0


@on_loop
async def test_a_session_that_ends_while_it_is_opened_fails_the_open(world):
    store = ZooKeeperStore(
        "one:1",
        call_soon=asyncio.get_running_loop().call_soon_threadsafe,
        randomness=random.Random(0),
        make_client=world.make,
    )
    store.on_session_lost = lambda: pytest.fail("there was no session yet")
    opening = asyncio.ensure_future(store.open())
    await asyncio.sleep(0)
    world.clients[0].change_state(KazooState.LOST)
    with pytest.raises(StartupError, match="ZooKeeper at one:1: "):
        await opening
    assert store.session_id == 0


@on_loop
async def test_the_chroot_is_created_with_its_parents(world):
    store = ZooKeeperStore(
        "one:1/x/y",
        call_soon=asyncio.get_running_loop().call_soon_threadsafe,
        randomness=random.Random(0),
        make_client=world.make,
    )
    opening = asyncio.ensure_future(store.open())
    output = []
    for value in (None, kazoo_errors.NoNodeError(), kazoo_errors.NodeExistsError(), "/x/y"):
        await turn()
        (client,) = world.clients
        output.append((type(client.sent[0][0]).__name__, client.sent[0][0].path))
        client.answer(value)
    await opening
    assert output == [("Exists", "/x/y"), ("Create", "/x/y"), ("Create", "/x"), ("Create", "/x/y")]
    read = asyncio.ensure_future(store.exists("/"))
    await turn()
    assert client.sent[0][0].path == "/x/y"
    client.answer(STAT)
    assert (await read).created_id == 11


def test_an_unreachable_zookeeper_is_named_with_the_reason():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        async def main():
            store = ZooKeeperStore(
                f"127.0.0.1:{port}",
                call_soon=asyncio.get_running_loop().call_soon_threadsafe,
                randomness=random.Random(0),
                connection_timeout_ms=100,
            )
            with pytest.raises(StartupError, match=f"127.0.0.1:{port}: .*Connection refused"):
                await store.open()
            await store.close()

        asyncio.run(main())


def test_servers_are_tried_in_turn_in_a_shuffled_order():
    permutations = {
        tuple(
            ZooKeeperStore(
                "a:1,b:2,c:3", call_soon=SimpleNamespace, randomness=random.Random(seed)
            )._servers
        )
        for seed in range(20)
    }
    assert len(permutations) > 1
    assert all(sorted(order) == ["a:1", "b:2", "c:3"] for order in permutations)
