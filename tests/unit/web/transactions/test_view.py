"""The shown values of transactions: golden values."""

from odradek.client.admin.groups import TransactionDescription
from odradek.model.partition import TopicPartition
from odradek.plan.commands import Caller
from odradek.plan.facts import OpenProducer
from odradek.web.transactions.facts import HeldPartition, TransactionsNow
from odradek.web.transactions.view import HANGING_MS, shown, transactions_view

NOW = 1_767_225_600_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)

OPEN = TransactionDescription("pay-1", 2, 7, 3, "Ongoing", 60_000, NOW - 20_000, (P0, P1))
COORDINATED = OpenProducer(7, 3, 100, NOW - 5_000, True, "pay-1", NOW - 20_000, 60_000)
HANGING = OpenProducer(9, 0, 50, NOW - HANGING_MS - 1)


def held(*producers, groups=()):
    return HeldPartition(
        partition=P0, stable=50, high_watermark=1_250, producers=producers, groups=groups
    )


def now(transactions=(OPEN,), held_partitions=(), **more):
    return TransactionsNow(
        at_ms=NOW, transactions=transactions, held=held_partitions,
        caller=Caller("b:9092"), **more,
    )  # fmt: skip


def test_an_open_transaction_has_its_age_its_end_and_what_it_holds_back():
    (each,) = shown(now(held_partitions=(held(COORDINATED),))).transactions

    assert (each["state"], each["open"], each["held"]) == ("Ongoing", "20 s", 1_200)
    assert each["ends"] == (
        "the coordinator aborts it at 2026-01-01T00:00:40.000Z, in 40 s (transaction.timeout.ms)"
    )
    assert each["partitions"] == ["orders-0", "orders-1"]
    assert str(each["command"]) == (
        "kafka-transactions --bootstrap-server b:9092 describe --transactional-id pay-1"
    )


def test_a_transaction_beyond_its_timeout_and_one_whose_markers_are_written():
    late = OPEN._replace(started_ms=NOW - 70_000)
    ending = OPEN._replace(state="PrepareCommit")

    texts = [each["ends"] for each in shown(now((late, ending))).transactions]

    assert texts == [
        "its timeout passed at 2025-12-31T23:59:50.000Z: the coordinator aborts it next", "",
    ]  # fmt: skip


def test_a_hanging_transaction_has_the_command_that_ends_it():
    (each,) = shown(now(held_partitions=(held(HANGING, COORDINATED, groups=("app",)),))).held

    hanging, coordinated = each["producers"]
    assert hanging["is_hanging"]
    assert str(hanging["command"]) == (
        "kafka-transactions --bootstrap-server b:9092 abort --topic orders --partition 0 "
        "--start-offset 50"
    )
    assert not coordinated["is_hanging"]
    assert coordinated["text"] == "its coordinator has it: transactional id pay-1"
    assert each["text"] == (
        "1,200 offsets wait behind the transaction that begins at offset 50; the committed offset "
        "of app is the last stable offset"
    )


def test_what_no_coordinator_has_is_not_hanging_before_the_longest_timeout():
    young = HANGING._replace(last_timestamp=NOW - 60_000)

    (each,) = shown(now(held_partitions=(held(young),))).held

    assert not each["producers"][0]["is_hanging"]
    assert each["producers"][0]["command"] is None


def test_where_coordinators_cannot_be_asked_nothing_is_called_hanging():
    problems = {"coordinators": "the brokers cannot be asked: they are older than Kafka 3.0"}

    view = shown(now((), (held(HANGING),), problems=problems))

    assert view.held[0]["producers"][0]["text"] == "whether its coordinator has it is not known"
    assert view.problems == problems


def test_before_the_first_observation_nothing_is_shown():
    assert transactions_view({}).transactions is None
