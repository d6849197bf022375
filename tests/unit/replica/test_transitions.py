"""Which controller requests a replica accepts."""

import pytest

from odradek.model.errors import ErrorCode
from odradek.replica.transitions import refuse_request, refuse_role, refuse_stop


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "own_broker_epoch", "error"),
    [
        pytest.param(5, 7, 7, ErrorCode.NONE, id="for this broker"),
        pytest.param(6, 7, 7, ErrorCode.NONE, id="from a newer controller"),
        pytest.param(4, 7, 7, ErrorCode.STALE_CONTROLLER_EPOCH, id="from a former controller"),
        pytest.param(5, 6, 7, ErrorCode.STALE_BROKER_EPOCH, id="for an earlier registration"),
        pytest.param(5, 8, 7, ErrorCode.NONE, id="for a registration whose response is in flight"),
        pytest.param(5, -1, 7, ErrorCode.NONE, id="from a controller without broker epochs"),
        pytest.param(5, 7, -1, ErrorCode.STALE_BROKER_EPOCH, id="before the first registration"),
        pytest.param(5, -1, -1, ErrorCode.STALE_BROKER_EPOCH, id="the same, without an epoch"),
    ],
)
def test_a_request_of_a_controller(controller_epoch, broker_epoch, own_broker_epoch, error):
    refusal = refuse_request(
        controller_epoch=controller_epoch,
        newest_controller_epoch=5,
        broker_epoch=broker_epoch,
        own_broker_epoch=own_broker_epoch,
    )
    assert refusal is error


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "error"),
    [
        (3, 9, ErrorCode.STALE_CONTROLLER_EPOCH),
        (3, 10, ErrorCode.NONE),
        (4, 0, ErrorCode.NONE),
        (2, 99, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_a_role_needs_a_newer_leader_epoch_or_partition_epoch(leader_epoch, partition_epoch, error):
    refusal = refuse_role(
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        known_leader_epoch=3,
        known_partition_epoch=9,
    )
    assert refusal is error


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
        (-2, ErrorCode.NONE),
    ],
)
def test_a_stop_replica_of_an_earlier_leader_epoch_is_refused(leader_epoch, error):
    assert refuse_stop(leader_epoch=leader_epoch, known_leader_epoch=3) is error
