"""Which refused sequences are violations."""

from random import Random
from types import SimpleNamespace

import pytest

from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.sim.checks.history import Facts, History, Topic
from odradek.sim.clients.producers import Pending, SimulatedProducer
from odradek.wire.messages.produce import PartitionProduceResponse

NAME = TopicPartition("t", 0)


class Stage:
    """An idempotent producer, and the errors that its workload has to explain."""

    def __init__(self):
        self.fenced = []
        self.facts = Facts(Topic("t", b"i" * 16, 1, replicas=3), 0)
        self.history = History(lambda what: None)
        workload = SimpleNamespace(
            replication_factor=3,
            produces_each_second=1.0,
            traits=frozenset(),
            history=self.history,
            succeeded=lambda: None,
            fenced=lambda facts, error: self.fenced.append(error),
        )
        seed = next(n for n in range(9) if Random(n).random() < 0.6)
        self.producer = SimulatedProducer(workload, SimpleNamespace(random=Random(seed)), "p")

    def answered(self, error, *, epochs, offset=-1):
        """`epochs`: the leader epoch of the broker at the request, and at the response."""
        pending = {NAME: Pending(NAME, self.facts, [], b"")}
        outcome = PartitionProduceResponse(error_code=error, base_offset=offset)
        self.producer._outcome(pending, pending[NAME], outcome, epochs)


@pytest.mark.parametrize(
    ("acknowledged", "refused", "is_lost"),
    [
        pytest.param((5, 5), 5, True, id="the same leader"),
        pytest.param((5, 5), 6, True, id="a later leader"),
        pytest.param((5, 6), 5, False, id="a former leader"),
        pytest.param((5, -1), 4, False, id="a former leader, after the other one was killed"),
        pytest.param((5, -1), 5, True, id="a leader of that epoch"),
    ],
)
def test_a_refused_sequence_is_a_lost_record_unless_a_former_leader_refuses_it(
    acknowledged, refused, is_lost
):
    stage = Stage()
    stage.answered(ErrorCode.NONE, epochs=acknowledged, offset=0)
    error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    stage.answered(error, epochs=(refused, refused))
    assert stage.fenced == [error] * is_lost
