"""Malformed batches over the wire: a broker answers each as Kafka 3.9.2 did, or as noted."""

import asyncio

from brokers import BrokerProcess
from tests.oracle.record.record_answers import answers
from tests.oracle.record.test_answers import OURS, RECORDED

# Of a request without a transactional id, whatever its batch is: a broker checks that first.
BEFORE_THE_BATCH = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def expected(name):
    """Error, offsets by which the log end moved, records that were blamed."""
    *_, error, moved, blamed = RECORDED[name]
    if error != BEFORE_THE_BATCH:
        error = OURS.get(name, error)
    return (error, moved if error == "NONE" else "0", blamed)


def test_every_malformed_batch_is_answered_and_moves_the_log_end_by_its_records_alone(tmp_path):
    broker = BrokerProcess(tmp_path / "broker").start()

    async def ask():
        return [line.split("|") async for line in answers(f"127.0.0.1:{broker.port}")]

    try:
        lines = asyncio.run(ask())
        differences = [
            (name, (error, moved, blamed), expected(name))
            for name, _, _, _, error, moved, blamed in lines
            if (error, moved, blamed) != expected(name)
        ]
        assert differences == []
        assert broker.traces() == []
    finally:
        broker.stop()
