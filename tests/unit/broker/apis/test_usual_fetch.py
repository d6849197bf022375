"""The straight path of a follower's usual fetch: it answers and notes what the general one does.

The first test plays the same random requests twice, the second time in the general way only.
"""

import asyncio
import random

import pytest
from tests.follower_frames import fetch_frame
from tests.unit.broker.live import dotted, fetch, play, produce, produced, values

from odradek.broker.apis import usual_fetch
from odradek.model.acl import AclOperation
from odradek.model.errors import ErrorCode
from odradek.replica.selector import RACK_AWARE
from odradek.sim.world.disk import DiskFault
from odradek.wire.codec import decoder, encoder
from odradek.wire.follower_fetch import FollowerLimits
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchResponse,
)
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)

T0 = ("t", 0)
BY_NAME = 12
NEVER_MS = 600_000
MEBIBYTE = 1 << 20
EPOCH = 7  # the broker epoch of the followers
ID = b"t" * 16
SEEDS, STEPS = 14, 300
TOPICS = {"t": 3, "u": 2, "v": 1}  # and how many partitions they have


@pytest.fixture
def straight(monkeypatch):
    """How many responses the straight path has encoded; `off()` switches it off."""
    return Straight(monkeypatch)


class Straight:
    def __init__(self, monkeypatch):
        self.answered, self.read = 0, 0
        self._monkeypatch = monkeypatch
        self._encode, self._read = usual_fetch.encode_usual_response, usual_fetch.read_usual_fetch
        self.on()

    def on(self):
        self._monkeypatch.setattr(usual_fetch, "encode_usual_response", self._encoded)
        self._monkeypatch.setattr(usual_fetch, "read_usual_fetch", self._readable)

    def off(self):
        self._monkeypatch.setattr(usual_fetch, "read_usual_fetch", lambda _: None)

    def _readable(self, frame):
        found = self._read(frame)
        self.read += found is not None
        return found

    def _encoded(self, *arguments):
        self.answered += 1
        return self._encode(*arguments)


# ------------------------------------------------------------------------------- random requests


class Client:
    """A connection of a client, and the frames that it has received so far."""

    def __init__(self, live):
        self.live = live
        self.sent = 0
        self.open()

    def open(self):
        self.peer, self.awaited = self.live.peer(), []

    def send(self, *frames):
        self.awaited += [self.peer.expect_frame() for _ in frames]
        self.peer.send_frame(*frames)

    def encoded(self, request, version):
        self.sent += 1
        key = request.SCHEMA.api_key
        header = encode_request_header(key, version, self.sent, "client")
        return header + encoder(type(request), version)(request)

    def received(self):
        """The frames since the last call."""
        frames = []
        while self.awaited and self.awaited[0].done():
            answer = self.awaited.pop(0)
            frames.append(None if answer.cancelled() else answer.result())
        return frames


class Follower(Client):
    """A follower's connection and session."""

    def __init__(self, live, id_):
        super().__init__(live)
        self.id = id_
        self.session, self.epoch = 0, 0
        self.named = {}  # what it last requested of each partition

    def frame(self, named, limits=(0, 1, MEBIBYTE), *, forgotten=(), broker_epoch=EPOCH, id_=None):
        """The next fetch in the session, or the first; `named` is `{(topic id, index): wanted}`."""
        topics, removed = {}, {}
        for (topic_id, _), wanted in named.items():
            topics.setdefault(topic_id, []).append(wanted)
        for topic_id, index in forgotten:
            removed.setdefault(topic_id, []).append(index)
        self.sent += 1
        frame = fetch_frame(
            (self.sent, f"broker-{self.id}"),
            (self.id if id_ is None else id_, broker_epoch),
            FollowerLimits(*limits),
            (self.session, self.epoch),
            topics,
            removed,
        )
        self.epoch += 1
        return frame

    def received(self):
        frames = super().received()
        for frame in frames:
            if frame is not None:
                error, session = int.from_bytes(frame[9:11], "big"), frame[11:15]
                self.session = int.from_bytes(session, "big")
                if error or not self.session:
                    self.session = self.epoch = 0
        return frames


class Chance:
    """Plays random requests to one broker, and notes what can be seen after each."""

    def __init__(self, live, seed):
        self.live = live
        self.random = random.Random(seed)
        self.ids = {name: name.encode() * 16 for name in TOPICS}
        self.orders = {name: {"leader_epoch": 1, "partition_epoch": 0} for name in TOPICS}
        self.followers = [Follower(live, 2), Follower(live, 3)]
        self.producer, self.consumer = Client(live), Client(live)
        self.seen = []
        self.operations = {
            self.fetch: 30,
            self.produce: 14,
            self.wait: 16,
            self.consume: 2,
            self.delete_records: 3,
            self.move_log_start: 1,
            self.change_leader: 1,
            self.change_isr: 2,
            self.delete_topic: 1,
            self.throttle: 1,
            self.hang_up: 1,
            self.be_alone: 4,
        }

    async def play(self, steps):
        for name in TOPICS:
            await self.order(name)
        for follower in self.followers:
            follower.send(follower.frame({key: self.wanted(key) for key in self.keys()}))
        operations, weights = list(self.operations), list(self.operations.values())
        for _ in range(steps):
            (operation,) = self.random.choices(operations, weights)
            await operation()
            self.note(operation.__name__)

    # --------------------------------------------------------------------- the requests

    async def fetch(self):
        follower = self.random.choice(self.followers)
        if follower.awaited and self.random.random() < 0.7:
            return
        frames = [self.fetch_frame(follower)]
        while self.random.random() < 0.07:
            frames.append(self.fetch_frame(follower))
        follower.send(*frames)

    def fetch_frame(self, follower):
        draw, keys = self.random, self.keys()
        unusual = draw.random() < 0.2
        at_random = draw.sample(keys, draw.choice([0, 0, 0, 1, 2]))
        names = [key for key in keys if self.is_behind(follower, key)]
        names = keys if not follower.epoch else list(dict.fromkeys([*names, *at_random]))
        draw.shuffle(names)
        named = {key: self.wanted(key, unusual=unusual) for key in names}
        deleted = [key for key in follower.named if key not in keys] if draw.random() < 0.8 else []
        for key in deleted:
            del follower.named[key]
        follower.named |= named
        if not unusual:
            limits = (draw.choice([0, 500, 500, 500]), 1, MEBIBYTE)
            return follower.frame(named, limits, forgotten=deleted if follower.epoch else ())
        if draw.random() < 0.1:
            follower.epoch += draw.choice([-1, 1])
        if draw.random() < 0.05:
            follower.session += 1
        limits = (
            draw.choice([0, 500, 20_000]),
            draw.choice([0, 1, 1, 300]),
            draw.choice([0, 100, 500, MEBIBYTE]),
        )
        return follower.frame(
            named,
            limits,
            forgotten=draw.sample(keys, draw.choice([0, 0, 0, 0, 1])),
            broker_epoch=EPOCH + draw.choice([0] * 10 + [-1, 1]),
            id_=draw.choice([None] * 10 + [3, 9]),
        )

    def is_behind(self, follower, key):
        """Whether the follower has something new to say about a partition; it may forget to."""
        known, partition = follower.named.get(key), self.partition(key)
        log = partition.log if partition is not None else None
        if known is None or log is None:
            return self.random.random() < 0.1
        state = (known.fetch_offset, known.last_fetched_epoch, known.current_leader_epoch)
        present = (log.leo, log.epochs.latest_epoch, partition.leader_epoch)
        return state != present and self.random.random() < 0.9

    def wanted(self, key, *, unusual=False):
        """What is requested of a partition: mostly the end of its log."""
        draw, partition = self.random, self.partition(key)
        log = partition.log if partition is not None else None
        if log is None:
            return FetchPartition(partition=key[1], partition_max_bytes=MEBIBYTE)
        near = draw.choice([log.leo, log.leo, log.leo, max(log.leo - 1, log.log_start_offset)])
        offset, latest, current = near, log.epochs.latest_epoch, partition.leader_epoch
        if unusual:
            offset = draw.choice(
                [near, log.leo + 1, log.log_start_offset - 1, log.high_watermark, 0]
            )
            latest += draw.choice([0, 0, 0, -1, 1, -latest - 1])
            current += draw.choice([0, 0, 0, 0, -1, 1, -current - 1])
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=current,
            fetch_offset=offset,
            last_fetched_epoch=latest,
            log_start_offset=draw.choice([log.log_start_offset, log.log_start_offset, 0]),
            partition_max_bytes=draw.choice([-200, 10, 200, 500] + [MEBIBYTE] * 12),
        )

    async def produce(self):
        frames = [self.produce_frame()]
        while self.random.random() < 0.2:
            frames.append(self.produce_frame())
        self.producer.send(*frames)

    def produce_frame(self):
        draw = self.random
        name = draw.choice(list(TOPICS))
        value = bytes(draw.choice([1, 10, 200, 200, 5_000]))
        batch = self.live.batch(*[value] * draw.choice([1, 1, 3]))
        request = produce(
            batch, name, draw.randrange(TOPICS[name]), acks=draw.choice([1, -1]), timeout_ms=5_000
        )
        return self.producer.encoded(request, 9)

    async def wait(self):
        for name, order in self.orders.items():
            if order.get("leader") and self.random.random() < 0.4:
                await self.lead(name, 0)
        await asyncio.sleep(self.random.choice([0, 0.001, 0.001, 0.006, 0.006, 0.6, 0.6, 25]))

    async def consume(self):
        name = self.random.choice(list(TOPICS))
        request = fetch({(name, 0): 0}, max_wait_ms=self.random.choice([0, 100]))
        self.consumer.send(self.consumer.encoded(request, BY_NAME))

    async def delete_records(self):
        name = self.random.choice(list(TOPICS))
        part = DeleteRecordsPartition(partition_index=0, offset=self.random.choice([-1, 1]))
        topic = DeleteRecordsTopic(name=name, partitions=[part])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)
        self.consumer.send(self.consumer.encoded(request, 2))

    async def move_log_start(self):
        partition = self.live.partition(self.random.choice(list(TOPICS)), 0)
        log = partition.log if partition is not None else None
        if log is not None and log.log_start_offset < log.high_watermark:
            log.advance_log_start(log.log_start_offset + 1)

    async def change_leader(self):
        await self.lead(self.random.choice(list(TOPICS)), self.random.choice([0, 2]))

    async def lead(self, name, leader):
        order = self.orders[name]
        order["leader_epoch"] += 1
        order["partition_epoch"] += 1
        order["leader"], order["isr"] = leader, (0, 2, 3)
        await self.order(name)

    async def change_isr(self):
        name = self.random.choice(list(TOPICS))
        order = self.orders[name]
        order["partition_epoch"] += 1
        order["isr"] = self.random.choice([(0, 2, 3), (0, 2, 3), (0, 2)])
        await self.order(name)

    async def delete_topic(self):
        name = self.random.choice(list(TOPICS))
        gate = self.live.broker.controller_requests
        states = [
            StopReplicaPartitionState(partition_index=n, leader_epoch=-2, delete_partition=True)
            for n in range(TOPICS[name])
        ]
        await gate.stop_replica(
            StopReplicaRequest(
                controller_epoch=gate.controller_epoch,
                broker_epoch=gate.broker_epoch,
                topic_states=[StopReplicaTopicState(topic_name=name, partition_states=states)],
            )
        )
        self.note("deleted")
        self.ids[name] = self.random.randbytes(16)
        self.orders[name] = {"leader_epoch": 1, "partition_epoch": 0}
        await self.order(name)

    async def throttle(self):
        name = self.random.choice(list(TOPICS))
        replicas = {"leader_replication_throttled_replicas": self.random.choice(["*", "0:0"])}
        options = dotted(replicas) if self.random.random() < 0.3 else {}
        self.live.broker.settings.set_topic(name, options)

    async def hang_up(self):
        client = self.random.choice([*self.followers, self.producer])
        client.peer.hang_up()
        self.seen.append(client.received())
        client.open()
        if self.random.random() < 0.5 and client is not self.producer:
            client.session = client.epoch = 0

    async def be_alone(self):
        alone = self.random.random() < 0.5
        self.live.is_alone = self.live.loop.is_last if alone else lambda: False

    async def order(self, name):
        await self.live.order(
            name,
            partitions=TOPICS[name],
            topic_id=self.ids[name],
            is_new=False,
            **self.orders[name],
        )

    # ------------------------------------------------------------------ what can be seen

    def keys(self):
        return [(self.ids[name], n) for name, count in TOPICS.items() for n in range(count)]

    def partition(self, key):
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return self.live.partition(names[key[0]], key[1])

    def note(self, operation):
        broker = self.live.broker
        clients = [*self.followers, self.producer, self.consumer]
        requests = broker.metrics.requests
        self.seen.append(
            {
                "operation": operation,
                "time": self.live.loop.time(),
                "responses": [client.received() for client in clients],
                "partitions": [_partition(self.partition(key)) for key in self.keys()],
                "sessions": [_session(each) for each in broker.fetch.sessions],
                "clients": [
                    (each.peer.connection.session.api_key, each.peer.connection.session.client_id)
                    for each in clients
                ],
                "quota": list(broker.leader_quota._samples),
                "waiting": broker.purgatory.by_operation(),
                "bytes out": (broker.metrics.replication_bytes_out, broker.metrics.bytes_out),
                "requests": {key: _requests(api) for key, api in requests.apis.items()},
                "errors": dict(requests.errors),
                "failures": (requests.failed, requests.malformed, len(self.live.failures)),
            }
        )


def _partition(partition):
    if partition is None:
        return None
    log, leader = partition.log, partition.leader
    return {
        "error": partition.error,
        "log": log and (log.log_start_offset, log.high_watermark, log.leo, log.last_stable_offset),
        "low watermark": partition.low_watermark,
        "followers": leader
        and [
            (each, [getattr(state, name) for name in state.__slots__])
            for each, state in leader.followers.items()
        ],
        "isr": leader and (leader.isr.committed, leader.isr.maximal),
    }


def _session(fetcher):
    return {
        "id": fetcher.id,
        "epoch": fetcher.epoch,
        "used": fetcher.last_used_ms,
        "follower": (fetcher.follower_id, fetcher.follower_epoch, fetcher.is_registered),
        "ready": list(fetcher.ready),
        "waits": fetcher.waiting is not None and (fetcher._missing_bytes, fetcher._is_soon),
        "partitions": {
            key: (
                wanted.target is not None,
                [getattr(wanted, name) for name in wanted.__slots__ if name != "target"],
            )
            for key, wanted in fetcher.partitions.items()
        },
    }


def _requests(api):
    times = {phase: (each.counts, each.sum_ms) for phase, each in api.phases.items()}
    return repr((api.versions, api.total_ms.counts, api.total_ms.sum_ms, times))


def played(seed, steps):
    notes = []

    async def story(live):
        chance = Chance(live, seed)
        notes.append(chance)
        await chance.play(steps)

    play(
        story,
        log_segment_bytes=4096,
        leader_replication_throttled_rate=1_000,
        replica_lag_time_max_ms=30_000,
    )
    return notes[0].seen


def test_both_paths_answer_the_same_and_leave_the_same_behind(straight):
    for seed in range(SEEDS):
        straight.on()
        found = played(seed, STEPS)
        answered = straight.answered
        straight.off()
        expected = played(seed, STEPS)
        for step, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert one == other, f"seed {seed}, step {step}"
        assert straight.answered == answered, "it was switched off"
    assert straight.answered > 20 * SEEDS


# ---------------------------------------------------------------------------------- one by one


@pytest.fixture(params=["straight", "general"])
def path(request, straight):
    """Play a test on each path: what it asserts holds on both."""
    if request.param == "general":
        straight.off()
    return straight


def asked(offset=0, index=0, *, max_bytes=MEBIBYTE):
    return {
        (ID, index): FetchPartition(
            partition=index,
            current_leader_epoch=0,
            fetch_offset=offset,
            last_fetched_epoch=0,
            log_start_offset=0,
            partition_max_bytes=max_bytes,
        )
    }


def answers(client):
    """The responses since the last call."""
    responses = []
    for frame in client.received():
        view = memoryview(frame)
        _, at = decode_response_header(view, 0, 1, 17)
        responses.append(decoder(FetchResponse, 17)(view, at)[0])
    return responses


def answer(client):
    """The only response since the last call, as errors or values by partition."""
    (response,) = answers(client)
    return ErrorCode(response.error_code) or {
        part.partition_index: ErrorCode(part.error_code) or values(part.records)
        for topic in response.responses
        for part in topic.partitions
    }


async def begun(live, id_=2, *, partitions=1, offset=0):
    """A follower that has begun a session with all partitions."""
    if live.partition() is None:
        await live.order("t", topic_id=ID, partitions=partitions)
    follower = Follower(live, id_)
    named = {key: each for n in range(partitions) for key, each in asked(offset, n).items()}
    follower.send(follower.frame(named))
    assert not isinstance(answer(follower), ErrorCode)
    return follower


def send(follower, named=None, wait_ms=NEVER_MS, **more):
    follower.send(follower.frame(named or {}, (wait_ms, 1, MEBIBYTE), **more))


def test_a_usual_fetch_is_answered_at_once_or_later(path, request):
    async def story(live):
        follower = await begun(live)
        send(follower)
        assert answers(follower) == []
        live.append(b"a")
        assert answers(follower) == [], "not inside the append"
        await asyncio.sleep(0.001)
        assert answer(follower) == {0: [b"a"]}

        send(follower, asked(0))
        assert answer(follower) == {0: [b"a"]}
        send(follower, asked(1), wait_ms=0)
        assert answer(follower) == {}
        assert live.partition().leader.followers[2].leo == 1

    play(story)
    assert path.answered == (3 if "straight" in request.node.name else 0)


def test_a_fetch_that_waits_for_longer_than_it_wants_is_answered_with_nothing(path):
    async def story(live):
        follower = await begun(live)
        send(follower, wait_ms=100)
        assert answers(follower) == []
        await asyncio.sleep(0.12)
        assert answer(follower) == {}
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_partition_that_was_ready_for_nothing_is_looked_at_once(path):
    async def story(live):
        follower = await begun(live)
        send(follower)
        (session,) = live.broker.fetch.sessions
        session.partition_changed(session.partitions[ID, 0])
        await asyncio.sleep(0.001)
        assert answers(follower) == []
        assert not session.ready

    play(story)


def test_only_the_first_partition_with_data_may_go_above_the_limit(path):
    async def story(live):
        follower = await begun(live, partitions=2)
        for index in (0, 1):
            live.append(b"x" * 400, index=index)
        follower.send(follower.frame(asked(0) | asked(0, 1), (0, 1, 500)))
        assert answer(follower) == {0: [b"x" * 400]}
        follower.send(follower.frame(asked(1), (0, 1, 100)))
        assert answer(follower) == {1: [b"x" * 400]}, "what did not fit comes next"

    play(story)


def test_what_fits_is_given_up_to_the_limit_of_a_partition(path):
    async def story(live):
        follower = await begun(live, partitions=2)
        size = len(live.batch(b"x" * 100))
        for index in (0, 1):
            for _ in range(3):
                live.append(b"x" * 100, index=index)
        send(follower, asked(0, max_bytes=2 * size) | asked(0, 1))
        assert answer(follower) == {0: [b"x" * 100] * 2, 1: [b"x" * 100] * 3}
        send(follower, asked(0, max_bytes=3 * size - 1) | asked(0, 1))
        (response,) = answers(follower)
        (topic,) = response.responses
        found = {part.partition_index: len(part.records) for part in topic.partitions}
        assert found == {0: 2 * size, 1: 3 * size}, "whole batches"

    play(story)


def test_more_than_a_response_may_hold_in_memory_is_left_to_the_general_way(straight):
    async def story(live):
        follower = await begun(live)
        values_ = [bytes([65 + n]) * 400_000 for n in range(3)]
        for value in values_:
            live.append(value)
        send(follower, asked(0))
        assert (answer(follower), straight.answered) == ({0: values_[:2]}, 1)
        follower.send(follower.frame(asked(0, max_bytes=2 * MEBIBYTE), (0, 1, 2 * MEBIBYTE)))
        await asyncio.sleep(0.001)  # it is sent in slices
        assert (answer(follower), straight.answered) == ({0: values_}, 1)

    play(story)


def test_a_large_answer_is_written_at_once(straight):
    """One write is one wake-up of the follower."""

    async def story(live):
        follower = await begun(live, partitions=2)
        values_ = [[bytes([65 + n]) * 100_000 for n in range(3)] for _ in range(2)]
        for index in (0, 1):
            for value in values_[index]:
                live.append(value, index=index)
        writes = []
        transport = follower.peer.connection._transport
        write = transport.write
        transport.write = lambda data: (writes.append(len(data)), write(data))
        send(follower, asked(0) | asked(0, 1))
        assert answer(follower) == dict(enumerate(values_))
        assert (len(writes), straight.answered) == (1, 1)

    play(story)


def test_the_end_of_a_segment_is_answered_at_once_if_another_stands_behind_it(path):
    async def story(live):
        follower = await begun(live)
        for value in (b"x", b"y"):
            live.append(value * 600)
        follower.send(follower.frame(asked(0), (NEVER_MS, 2_000, MEBIBYTE)))
        assert answer(follower) == {0: [b"x" * 600]}
        follower.send(follower.frame(asked(1), (NEVER_MS, 2_000, MEBIBYTE)))
        assert answers(follower) == [], "nothing is behind it"

    play(story, log_segment_bytes=1024)


async def without(live, id_):
    """The controller's metadata has all brokers but this."""
    orders = live.broker.controller_requests
    await orders.update_metadata(
        UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=orders.controller_epoch,
            broker_epoch=orders.broker_epoch,
            live_brokers=[
                UpdateMetadataBroker(
                    id=each,
                    endpoints=[
                        UpdateMetadataEndpoint(
                            host=f"b{each}", port=9092, listener="PLAINTEXT", security_protocol=0
                        )
                    ],
                )
                for each in {0, 2, 3} - {id_}
            ],
        )
    )


def test_a_broker_that_is_no_longer_registered_is_given_and_acknowledges_nothing(path):
    async def story(live):
        follower = await begun(live)
        live.append(b"secret")
        await without(live, 2)
        send(follower, asked(0))
        assert answer(follower) == {0: ErrorCode.UNKNOWN_LEADER_EPOCH}
        send(follower, asked(1))
        assert answer(follower) == {0: ErrorCode.UNKNOWN_LEADER_EPOCH}
        assert live.partition().leader.followers[2].leo == 0

        await without(live, None)
        throttled = dotted({"leader_replication_throttled_replicas": "*"})
        live.broker.settings.set_topic("t", throttled)  # so that the general way reads
        send(follower, asked(0))
        assert answer(follower) == {0: [b"secret"]}, "it is registered again"

    play(story)


def test_min_bytes_are_waited_for_over_many_appends(path):
    async def story(live):
        follower = await begun(live)
        (session,) = live.broker.fetch.sessions
        live.append(b"x" * 100)
        size = live.log().size_bytes
        follower.send(follower.frame(asked(0), (NEVER_MS, 3 * size, MEBIBYTE)))
        assert session._missing_bytes == 2 * size, "what is there counts"
        live.append(b"x" * 100)
        await asyncio.sleep(0.001)
        assert answers(follower) == []
        live.append(b"x" * 100)
        await asyncio.sleep(0.001)
        assert answer(follower) == {0: [b"x" * 100] * 3}

    play(story)


def test_a_broker_that_is_no_replica_any_longer_is_given_nothing(path):
    async def story(live):
        follower = await begun(live, 3)
        await live.order("t", topic_id=ID, replicas=(0, 2), partition_epoch=1)
        live.append(b"secret")
        send(follower, asked(0))
        assert answer(follower) == {0: ErrorCode.UNKNOWN_LEADER_EPOCH}

    play(story)


def test_a_session_by_name_does_not_go_on_by_id(path):
    async def story(live):
        await live.order("t", topic_id=ID)
        follower = Follower(live, 2)
        request = fetch({T0: 0}, session_epoch=0, replica_id=2, max_wait_ms=0)
        response = await follower.peer.ask(request, BY_NAME)
        follower.session, follower.epoch = response.session_id, 1
        send(follower, broker_epoch=-1)
        assert answer(follower) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    play(story)


class Exempting:
    """Quotas that note which requests they do not count."""

    def __init__(self, quotas):
        self.exempted, self._quotas = [], quotas

    def exempt(self, session):
        self.exempted.append((session.api_key, session.client_id))

    def __getattr__(self, name):
        return getattr(self._quotas, name)


def test_the_fetch_of_a_follower_is_not_counted_by_quotas(path):
    async def story(live):
        follower = await begun(live)
        quotas = live.quotas.chosen = Exempting(live.quotas.chosen)
        send(follower, wait_ms=0)
        assert answer(follower) == {}
        assert quotas.exempted == [(1, "broker-2")]

    play(story)


def test_a_waiting_fetch_is_answered_before_another_request_of_its_connection(path):
    async def story(live):
        follower = await begun(live)
        send(follower)
        waiting = follower.awaited[0]
        assert not waiting.done()
        follower.send(follower.encoded(MetadataRequest(topics=[]), 9))
        assert waiting.done()
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_fetch_behind_a_waiting_request_of_its_connection_is_handled_after_it(path):
    async def story(live):
        follower = await begun(live)
        (session,) = live.broker.fetch.sessions
        waiting = produce(live.batch(b"a"), acks=-1, timeout_ms=100)
        named = follower.frame(asked(0), (0, 1, MEBIBYTE))
        follower.send(follower.encoded(waiting, 9), named)
        assert session.epoch == 1, "its response would wait in memory"
        await asyncio.sleep(0.12)
        assert session.epoch == 2
        assert [each.done() for each in follower.awaited] == [True, True]

    play(story)


def test_a_response_has_the_last_stable_offset_of_an_open_transaction(path):
    async def story(live):
        await live.order("t", topic_id=ID, replicas=(0, 2))
        follower = await begun(live)
        live.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        send(follower, asked(1))
        live.append(b"b")
        await asyncio.sleep(0.001)
        (part,) = parts(follower)
        assert (part.high_watermark, part.last_stable_offset) == (1, 0)

    play(story)


class Noting:
    """An authorizer that notes for which request it was asked."""

    version = 0

    def __init__(self):
        self.allows, self.noted = True, []

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        if is_logged:
            self.noted.append((operation, name, session.api_key, session.client_id))
        return self.allows


def test_a_follower_that_may_not_fetch_any_longer_is_refused_and_the_audit_log_has_it_once(path):
    async def story(live):
        follower = await begun(live)
        live.append(b"secret")
        authorizer = live.authorizer.chosen = Noting()
        follower.send(follower.encoded(MetadataRequest(topics=[]), 9))
        Client.received(follower)
        for allows, outcome, acknowledged in (
            (True, {0: [b"secret"]}, 0),
            (False, {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}, 0),
        ):
            authorizer.allows, authorizer.noted = allows, []
            send(follower, asked(0 if allows else 1))
            assert answer(follower) == outcome
            assert authorizer.noted == [
                (AclOperation.CLUSTER_ACTION, "kafka-cluster", 1, "broker-2")
            ]
            assert live.partition().leader.followers[2].leo == acknowledged
        (session,) = live.broker.fetch.sessions
        assert session.epoch == 2, "what was refused is no part of the session"

    play(story)


def test_a_follower_does_not_go_on_with_the_session_of_another(path):
    async def story(live):
        follower = await begun(live)
        live.append(b"a")
        send(follower, asked(1), id_=3)
        assert answer(follower) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        leader = live.partition().leader
        assert [leader.followers[id_].leo for id_ in (2, 3)] == [0, -1]

    play(story)


def test_a_second_fetch_in_a_session_answers_the_first_with_what_there_was(path):
    async def story(live):
        follower = await begun(live)
        send(follower)
        first = follower.awaited.pop()
        follower.open()  # it has given up on its connection
        send(follower, asked(0))
        assert first.done()
        assert answers(follower) == []
        live.append(b"a")
        await asyncio.sleep(0.001)
        assert answer(follower) == {0: [b"a"]}
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_woken_fetch_whose_session_was_closed_meanwhile_is_answered_at_once(path):
    async def story(live):
        follower = await begun(live)
        send(follower)
        waiting = follower.awaited.pop()
        live.append(b"a")
        follower.open()
        follower.epoch = 0  # a full fetch, which ends the session that it names
        send(follower, asked(0))
        await asyncio.sleep(0.001)
        assert waiting.done()
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_fetch_of_a_closed_connection_is_dropped(path):
    async def story(live):
        follower = await begun(live)
        send(follower)
        assert live.broker.purgatory.size == 1
        live.append(b"a")
        follower.peer.hang_up()
        await asyncio.sleep(0.01)
        assert live.broker.purgatory.size == 0
        follower.open()
        send(follower, asked(0))
        assert answer(follower) == {0: [b"a"]}

    play(story)


def test_data_that_is_not_in_the_page_cache_is_read_into_it_first(path):
    async def story(live):
        follower = await begun(live)
        live.append(b"a")
        live.disk.cold_share = 1.0
        send(follower, asked(0))
        assert answers(follower) == [], "it does not wait for the disk"
        await live.until(follower.awaited[0].done)
        assert answer(follower) == {0: [b"a"]}

        send(follower, asked(1))
        live.append(b"b")
        await live.until(follower.awaited[0].done)
        assert answer(follower) == {0: [b"b"]}
        live.disk.cold_share = 0.0

    play(story)


@pytest.mark.parametrize("waits", [False, True])
def test_one_read_that_fails_takes_the_directory_along(path, waits):
    async def story(live):
        follower = await begun(live, partitions=2)
        if waits:
            send(follower)
        live.append(b"a")
        live.append(b"b", index=1)
        live.disk.faults.append(DiskFault("read", "t-0/"))
        if not waits:
            send(follower, asked(0))
        await asyncio.sleep(0.001)
        assert answer(follower)[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert live.partition().error == ErrorCode.KAFKA_STORAGE_ERROR
        send(follower, asked(0, 1))
        assert answer(follower) == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: [b"b"]}

    play(story)


def test_where_consumers_read_from_followers_a_newer_high_watermark_is_answered_at_once(path):
    async def story(live):
        follower, other = await begun(live), await begun(live, 3)
        live.append(b"a")
        send(follower, asked(0))
        follower.received()
        send(follower, asked(1))
        assert answers(follower) == []
        begun_s = live.loop.time()
        send(other, asked(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [part.high_watermark for part in parts(follower)] == [1]
        assert live.loop.time() == begun_s

    play(story, replica_selector_class=RACK_AWARE)


def parts(client):
    (response,) = answers(client)
    return [part for topic in response.responses for part in topic.partitions]


# -------------------------------------------------------------------- in the turn of a produce


async def lone(live, **more):
    """A follower whose fetch waits, and a producer whose requests arrive alone."""
    live.is_alone = lambda: True
    follower = await begun(live, **more)
    send(follower)
    return follower, Client(live)


def produce_frame(client, batch, acks=-1, **more):
    return client.encoded(produce(batch, acks=acks, timeout_ms=NEVER_MS, **more), 9)


def outcomes(client):
    found = []
    for frame in client.received():
        view = memoryview(frame)
        _, at = decode_response_header(view, 0, 0, 9)
        found.append(produced(decoder(ProduceResponse, 9)(view, at)[0])[T0])
    return found


def test_a_lone_produce_request_passes_its_batch_on_at_once(path):
    async def story(live):
        follower, producer = await lone(live)
        producer.send(produce_frame(producer, live.batch(b"a")))
        assert answer(follower) == {0: [b"a"]}
        assert outcomes(producer) == [], "it is not committed"
        other = await begun(live, 3, offset=1)
        send(other, asked(1))
        send(follower, asked(1))
        assert outcomes(producer) == [0]

    play(story)


def test_requests_that_arrive_together_are_passed_on_together(path):
    async def story(live):
        follower, producer = await lone(live)
        frames = [produce_frame(producer, live.batch(value), acks=1) for value in (b"a", b"b")]
        producer.send(*frames)
        assert answer(follower) == {0: [b"a", b"b"]}
        assert outcomes(producer) == [0, 1]

    play(story)


def test_beside_other_work_a_batch_is_passed_on_in_the_next_turn(path):
    async def story(live):
        follower, producer = await lone(live)
        live.is_alone = lambda: False
        producer.send(produce_frame(producer, live.batch(b"a"), acks=1))
        assert answers(follower) == []
        await asyncio.sleep(0.001)
        assert answer(follower) == {0: [b"a"]}

    play(story)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_read_for_a_follower_that_fails_refuses_the_lone_produce_request(path, acks):
    async def story(live):
        follower, producer = await lone(live)
        live.disk.faults.append(DiskFault("read", "t-0/"))
        producer.send(produce_frame(producer, live.batch(b"a"), acks))
        assert outcomes(producer) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert answer(follower) == {0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_lone_produce_request_that_is_refused_leaves_the_waiting_fetch_as_it_was(path):
    async def story(live):
        follower, producer = await lone(live)
        known = {"producer_id": 5, "producer_epoch": 0}
        producer.send(produce_frame(producer, live.batch(b"a", base_sequence=0, **known), 1))
        assert answer(follower) == {0: [b"a"]}
        send(follower, asked(1))
        producer.send(produce_frame(producer, live.batch(b"b", base_sequence=7, **known), 1))
        assert outcomes(producer) == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert answers(follower) == []

        live.append(b"c")
        await asyncio.sleep(0.001)
        assert answer(follower) == {0: [b"c"]}, "woken in the next turn as usual"

    play(story)


def test_a_write_that_fails_in_a_lone_produce_request_is_answered_to_the_follower_too(path):
    async def story(live):
        follower, producer = await lone(live)
        live.disk.faults.append(DiskFault("write", "t-0/"))
        producer.send(produce_frame(producer, live.batch(b"a")))
        assert outcomes(producer) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert answer(follower) == {0: ErrorCode.KAFKA_STORAGE_ERROR}

    play(story)
