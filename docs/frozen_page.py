"""The page on a cluster that does not exist, whose facts are frozen: for pictures of its views.

Everything that the page makes of facts is made here, too; only collecting them is left out. All
times are counted from now, because the page shows the date of what was not today.
"""

import time
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.client.admin.security import ALLOW, LITERAL, Acl
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.clock import WallMs
from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas
from odradek.plan.execute import MovePace
from odradek.plan.facts import Finding, Severity
from odradek.plan.reassignment import plan_to
from odradek.record.compression import Codec
from odradek.web.app import KINDS, create_app
from odradek.web.facts.access import AccessFacts
from odradek.web.facts.broker import BrokerDetail, DirectoryFacts, DiskSample
from odradek.web.facts.cluster import BrokerOverview, ClusterOverview, RackSeen, TopicCounts
from odradek.web.facts.copies import CopyFacts
from odradek.web.facts.doctor import Diagnosis
from odradek.web.facts.journal import ClusterHistory, Happening
from odradek.web.facts.poller import FactKind
from odradek.web.facts.source import Source
from odradek.web.facts.topic import PartitionFacts, ReplicaFacts, TopicDetail
from odradek.web.groups import view as group_values
from odradek.web.groups.collect import GroupsView, GroupView
from odradek.web.groups.history import GroupHistory
from odradek.web.groups.picture import assignment_svg
from odradek.web.groups.values import ObservedGroup, ObservedMember, PartitionLag
from odradek.web.messages import view as message_values
from odradek.web.messages.pages import MessagesView
from odradek.web.messages.progress import PartitionProgress, SearchProgress
from odradek.web.messages.query import read_query
from odradek.web.messages.scan import FoundRecord, TransactionState
from odradek.web.moves.collect import MovesFacts, MovingPartition
from odradek.web.moves.planned import planned_move
from odradek.web.moves.request import parse_request
from odradek.web.moves.saved import SavedPlan
from odradek.web.rendering import clock
from odradek.web.transactions.facts import TransactionsNow

AT = WallMs(int(time.time() * 1000))
RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "c", 4: "a"}
GONE = 3


def _replica(broker: int, leo: int, **more: Any) -> ReplicaFacts:
    known: dict[str, Any] = {
        "rack": RACKS[broker], "in_sync": True, "high_watermark": min(leo, 1180),
        "log_start_offset": 0, "leader_epoch": 4, "leo": leo, "size_bytes": 100_000 * leo,
    }  # fmt: skip
    return ReplicaFacts(broker=broker, **{**known, **more})


def _health(number: int) -> PartitionFacts:
    """A partition of a topic with many of them: most are healthy, each level is there."""
    in_sync = 1 if number in (12, 40) else 2 if number % 29 == 0 else 3
    leads = None if number in (7, 8) else 2 if number % 17 == 0 else 1
    isr = (1, 2, 3)[:in_sync]
    moves = number in range(60, 66)
    return PartitionFacts(
        partition=number, leader=leads, leader_epoch=4, isr=isr, adding=(4,) if moves else (),
        removing=(3,) if moves else (),
        replicas=tuple(
            _replica(broker, 1200 - 5 * broker, is_leader=broker == leads, in_sync=broker in isr,
                     fetched_ms_ago=41_000)
            for broker in ((1, 2, 3, 4) if moves else (1, 2, 3))
        ),
    )  # fmt: skip


ORDERS = PartitionFacts(
    partition=0, leader=1, leader_epoch=4, isr=(1, 2),
    replicas=(
        _replica(1, 1200, is_leader=True),
        _replica(2, 1180),
        _replica(3, 940, in_sync=False, is_registered=False, is_offline=True, high_watermark=930),
    ),
)  # fmt: skip
WHY = (
    f"orders-0: replica 3 is out of sync since {clock(AT - 41_000)}",
    f"because broker 3 is not registered: its process was killed at {clock(AT - 47_000)}",
)
HAPPENED = tuple(
    Happening(at_ms=AT - ago_s * 1000, says=says, kind="decision", topic=topic, broker=None, by=1)
    for ago_s, says, topic in (
        (612, "controller elected: broker 1, epoch 3", None),
        (540, "orders: created with 1 partition", "orders"),
        (120, "orders-0: leader elected (leader 1, epoch 4, ISR 1,2,3) because broker 2 returned",
         "orders"),
        (47, "broker 3 went offline because its session expired", None),
        (41, "orders-0: ISR changed (leader 1, epoch 4, ISR 1,2) because broker 3 went offline",
         "orders"),
        (41, "payments-2: no leader (leader -1, epoch 7, ISR 3) because broker 3 went offline",
         "payments"),
    )
)  # fmt: skip
JOURNAL = tuple(
    {"at_ms": each.at_ms, "says": each.says, "partition": 0, "after": None}
    for each in HAPPENED
    if each.topic == "orders"
)
CLUSTER = ClusterOverview(
    cluster_id="frozen",
    controller=1,
    brokers=tuple(
        BrokerOverview(
            id=id_, is_registered=id_ != GONE, host=None if id_ == GONE else f"kafka{id_}",
            port=9092, rack=rack, rack_seen=RackSeen.BEFORE if id_ == GONE else RackSeen.NOW,
            leads=0 if id_ == GONE else 9, replicas=27,
            process="killed" if id_ == GONE else "running",
        )
        for id_, rack in RACKS.items()
    ),
    topics=tuple(
        TopicCounts(
            name=name, is_internal=name.startswith("__"), partitions=partitions,
            replication_factor=3, offline=offline, under_replicated=under,
        )
        for name, partitions, offline, under in (
            ("payments", 6, 1, 3), ("orders", 1, 0, 1), ("clicks", 300, 2, 12),
            ("customers", 12, 0, 0), ("__consumer_offsets", 50, 0, 0),
        )
    ),
)  # fmt: skip
DIAGNOSIS = Diagnosis(
    findings=(
        Finding(Severity.CRITICAL, "broker down", "broker 3",
                f"broker 3 is offline since {clock(AT - 47_000)}: its process was killed",
                "odradek start 3"),
        Finding(Severity.CRITICAL, "no leader", "payments-2",
                "its only in-sync replica is on broker 3, which is not registered since "
                f"{clock(AT - 47_000)}",
                "odradek start 3"),
        Finding(Severity.WARNING, "under-replicated", "16 partitions",
                f"their replicas on broker 3 are out of sync since {clock(AT - 41_000)}",
                "odradek why topic orders --bootstrap-server kafka1:9092"),
    ),
    unknown={},
)  # fmt: skip


def _picture() -> ClusterPicture:
    held = {
        TopicPartition("orders", 0): Replicas((1, 2, 3), 120_000_000, 1, (1, 2)),
        **{TopicPartition("payments", n): Replicas((1, 2), 3 << 30, 1, (1, 2)) for n in range(6)},
        **{TopicPartition("logs", n): Replicas((1,), 1 << 30, 1, (1,)) for n in range(2)},
        **{TopicPartition("carts", n): Replicas((2, 1), 1 << 28, 2, (2, 1)) for n in range(8)},
    }
    return ClusterPicture(RACKS, held, {"orders": 2, "payments": 1, "logs": 1, "carts": 1})


BROKER = BrokerDetail(
    id=1,
    at_ms=AT,
    picture=_picture(),
    directories=(
        DirectoryFacts(
            path="/var/lib/kafka/1", is_offline=False, replicas=27, held_bytes=61 << 30,
            total_bytes=100 << 30, usable_bytes=31 << 30,
            samples=tuple(
                DiskSample(AT - (30 - n) * 10_000, (31 << 30) + (30 - n) * 40_000_000)
                for n in range(31)
            ),
        ),
        DirectoryFacts(path="/mnt/second", is_offline=True, replicas=0, held_bytes=0),
    ),
)  # fmt: skip


def _groups() -> tuple[GroupsView, GroupView]:
    history = GroupHistory()
    partitions = [TopicPartition("payments", number) for number in range(6)]
    members = tuple(
        ObservedMember(
            member_id=f"billing-{number}-7f3a", client_id=f"billing-{number}",
            host=f"/10.0.0.{number}", partitions=tuple(partitions[number - 1 :: 3]), silent_ms=800,
        )
        for number in (1, 2, 3)
    )  # fmt: skip
    group = ObservedGroup(group_id="billing", state="Stable", wall_ms=AT)
    for ago in range(30, -1, -1):
        lags = [4, 0, 90, 0, 900 - 20 * ago, 0]
        group = ObservedGroup(
            group_id="billing", state="Stable", wall_ms=WallMs(AT - ago * 1000),
            protocol_type="consumer", assignor="range", coordinator=(2, "kafka2", 9092),
            members=members,
            partitions=tuple(
                PartitionLag(
                    partition=each, committed=80_000 - 100 * ago - lag + 60 * ago, log_start=0,
                    end=80_000 - 100 * ago + 60 * ago, stable=80_000 - 100 * ago + 60 * ago,
                    member=members[number % 3].member_id,
                )
                for number, (each, lag) in enumerate(zip(partitions, lags, strict=True))
            ),
        )  # fmt: skip
        history.observe(group)
    rows = [group_values.summary(group, history)]
    for name, state, lag in (("reports", "Empty", 1_204), ("search", "Stable", 0)):
        other = replace(
            group, group_id=name, state=state, members=() if state == "Empty" else members[:1],
            partitions=(PartitionLag(partition=TopicPartition("orders", 0), committed=1180 - lag,
                                     log_start=0, end=1180),),
        )  # fmt: skip
        history.observe(other)
        rows.append(group_values.summary(other, history))
    one = GroupView(
        name="billing", group=group_values.details(group, history), picture=assignment_svg(group)
    )
    return GroupsView(groups=tuple(rows), unobserved={}), one


GROUPS, GROUP = _groups()
MOVED = tuple(TopicPartition("payments", number) for number in range(4))
MOVES = MovesFacts(
    at_ms=AT,
    moving=(
        MovingPartition(
            partition=MOVED[1], leader=1, replicas=(1, 2, 4), adding=(4,), removing=(2,),
            leader_bytes=3 << 30,
            copies=(CopyFacts(broker=4, held_bytes=2 << 30, left_bytes=1 << 30,
                              bytes_per_s=48e6, left_per_s=45e6),),
        ),
        MovingPartition(
            partition=MOVED[2], leader=1, replicas=(1, 2, 4), adding=(4,), removing=(2,),
            leader_bytes=3 << 30,
            copies=(CopyFacts(broker=4, held_bytes=700 << 20, left_bytes=2300 << 20,
                              bytes_per_s=22e6, left_per_s=21e6),),
        ),
    ),
    broker_throttles={
        id_: {"leader.replication.throttled.rate": "70000000"} for id_ in (1, 2, 4)
    },
    topic_throttles={"payments": {"leader.replication.throttled.replicas": "*"}},
    saved=SavedPlan(
        path="odradek-data/moves/frozen.001795420700000.json", is_done=False,
        title="Drain broker 2", begun_ms=AT - 90_000, pace=MovePace(70_000_000, 2, None),
        before=dict.fromkeys(MOVED, (1, 2)), after=dict.fromkeys(MOVED, (1, 4)), sizes={},
    ),
    unfinished=MOVED[1:],
)  # fmt: skip
ACCESS = AccessFacts(
    users={"alice": (("SCRAM-SHA-512", 4096),)},
    acls=tuple(
        Acl(ResourceType.TOPIC, "orders", LITERAL, f"User:{user}", "*", operation,
            ALLOW)
        for user, operation in (("alice", AclOperation.READ), ("shop", AclOperation.WRITE))
    ),
)  # fmt: skip


def _topic(name: str) -> TopicDetail:
    many = tuple(_health(number) for number in range(300)) if name == "clicks" else (ORDERS,)
    return TopicDetail(
        name=name, exists=True, at_ms=AT, isr_min=2, is_reported=True, partitions=many,
        sentences=WHY if name == "orders" else (), journal=JOURNAL if name == "orders" else (),
    )  # fmt: skip


def _found() -> MessagesView:
    fields = {"topic": "orders", "from": "-15m", "path": "$.order.state", "json": "refused"}
    query = read_query(fields, AT)
    values = (
        b'{"order": {"id": 4711, "state": "refused"}, "amount": 12.90}',
        b'{"order": {"id": 4793, "state": "refused"}, "amount": 3.20}',
    )
    records = [
        FoundRecord(
            partition=0, offset=1012 + 77 * number, timestamp=AT - 60_000 + number * 20_000,
            timestamp_type=0, key=b"4711", key_bytes=4, value=value, value_bytes=len(value),
            headers=(("trace", b"9f2c"),), headers_cut=0, leader_epoch=4, codec=Codec.ZSTD,
            batch_offset=1000, batch_bytes=4_096, batch_records=50, producer_id=7,
            producer_epoch=0, sequence=12,
            state=TransactionState.ABORTED if number else TransactionState.COMMITTED, marker="",
        )
        for number, value in enumerate(values)
    ]  # fmt: skip
    progress = SearchProgress(
        query=query.digest,
        started_ms=AT,
        partitions={
            0: PartitionProgress(
                start=0,
                end=1180,
                position=1180,
                records=1178,
                found=2,
                bytes=118_000,
                markers=2,
                not_json=3,
            )
        },
    )
    return MessagesView(
        fields=fields,
        tail_url="#",
        ended="end",
        messages=tuple(
            {**message_values.message(each), "url": "#", "near_url": "#"} for each in records
        ),
        progress=message_values.progress(query, progress),
        exports=dict.fromkeys(("jsonl", "csv", "parquet"), "#"),
    )


def _plan() -> Any:
    fields = {
        "kind": ["place"], "topic": ["payments"], "put": ["0:4,2", "1:1,4", "2:1,3"],
        "throttle": ["70MB"],
    }  # fmt: skip
    request, picture = parse_request(lambda name: fields.get(name, [])), _picture()
    targets = {TopicPartition("payments", number): held for number, held in request.puts.items()}
    inflow = {TopicPartition("payments", number): 2e6 for number in range(6)}
    return planned_move(request, picture, plan_to(picture, targets), inflow,
                        planned_s=0.1, server=" --bootstrap-server kafka1:9092")  # fmt: skip


def frozen_app() -> Starlette:
    """The page; `/messages/found` and `/moves/planned` stand for a search and for a plan."""

    def always(value: Any) -> FactKind:
        async def collect(_source: object, _argument: str, _before: object) -> Any:
            return value

        return FactKind(collect)

    async def topic(_source: object, name: str, _before: object) -> TopicDetail:
        return _topic(name)

    def shown(template: str, value: Any) -> Any:
        async def answer(request: Request) -> Response:
            rendered: Response = request.app.state.render(request, template, value)
            return rendered

        return answer

    return create_app(
        Source({"bootstrap.servers": "kafka1:9092"}),
        kinds={
            **KINDS,
            "topic": FactKind(topic),
            "cluster": always(CLUSTER),
            "doctor": always(DIAGNOSIS),
            "broker": always(BROKER),
            "journal": always(
                ClusterHistory(happenings=HAPPENED, begins_ms=AT - 700_000, is_reported=True)
            ),
            "access": always(ACCESS),
            "moves": always(MOVES),
            "groups": always(GROUPS),
            "group": always(GROUP),
            "transactions": always(TransactionsNow(at_ms=AT, idle=3)),
        },
        routes=(
            Route("/messages/found", shown("messages.html", _found())),
            Route("/moves/planned", shown("move_plan.html", _plan())),
        ),
    )
