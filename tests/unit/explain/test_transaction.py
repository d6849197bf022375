"""`odradek why transaction`: the coordinator's state, and the producers that got errors."""

from odradek.client.admin.groups import TransactionDescription
from odradek.explain.reports import NOT_OURS, Asked
from odradek.explain.transaction import explain_transaction
from odradek.model.partition import TopicPartition
from odradek.plan.commands import Caller, clock

NOW_MS = 1_700_000_000_000
PAY = TransactionDescription(
    transactional_id="pay",
    coordinator=1,
    producer_id=1000,
    producer_epoch=7,
    state="Ongoing",
    timeout_ms=60_000,
    started_ms=NOW_MS,
    partitions=(TopicPartition("t", 1), TopicPartition("t", 0)),
)
FENCED = {
    "api": "EndTxn", "error": "PRODUCER_FENCED", "client_id": "a", "host": "h", "topic": "",
    "group": "", "instance_id": "", "transactional_id": "pay", "count": 1, "first_ms": NOW_MS,
    "last_ms": NOW_MS,
}  # fmt: skip


def explained(described, *errors, silent=None):
    reports = {0: {"broker": {"refusals": (), "began_ms": 0, "errors": errors}}}
    asked = Asked(Caller("b:9"), {} if silent else reports, silent or {})
    return [str(line) for line in explain_transaction(asked, "pay", described, NOW_MS)]


def test_an_open_transaction_and_a_fenced_producer():
    other = FENCED | {"transactional_id": "other"}

    assert explained(PAY, FENCED, FENCED | {"client_id": "b"}, other) == [
        (
            f"transactional.id pay: Ongoing since {clock(NOW_MS, NOW_MS)}, producer id 1000, epoch "
            "7; coordinator broker 1"
        ),
        (
            f"it is open in t-0 and t-1; the coordinator aborts it at "
            f"{clock(NOW_MS + 60_000, NOW_MS)} (transaction.timeout.ms)"
        ),
        *(
            f"broker 0 answered EndTxn of client {client} of h (transactional.id pay) with "
            f"PRODUCER_FENCED once at {clock(NOW_MS, NOW_MS)}"
            for client in "ab"
        ),
        (
            "another producer began with this transactional.id: end one of the two, or give each "
            "its own; more: odradek why transaction pay --bootstrap-server b:9"
        ),
    ]


def test_a_transaction_that_has_ended():
    assert explained(PAY._replace(state="Empty", started_ms=-1)) == [
        "transactional.id pay: Empty, producer id 1000, epoch 7; coordinator broker 1"
    ]


def test_brokers_of_apache_kafka_count_no_errors_and_that_is_said():
    state, note = explained(PAY._replace(started_ms=-1), silent={2: NOT_OURS})

    assert state.startswith("transactional.id pay: Ongoing")
    assert note.startswith(
        "broker 2: not of Odradek, or older: refused requests, errors of clients"
    )


def test_an_unknown_transactional_id():
    assert explained("it could not be found") == ["transactional.id pay: it could not be found"]
