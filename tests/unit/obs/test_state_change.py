"""One line for each transition, which people read and programs search."""

from odradek.model.partition import LeaderAndIsr
from odradek.obs.state_change import StateChange, described

BEFORE = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), store_version=7)
AFTER = LeaderAndIsr(leader=-1, leader_epoch=5, isr=(2,), store_version=8)


def test_what_a_controller_decided_is_said_with_its_cause():
    change = StateChange(
        broker_id=1,
        controller_epoch=5,
        subject="orders-7",
        before=described(BEFORE),
        after=described(AFTER),
        cause="broker went away: 1",
    )

    assert str(change) == (
        "[Controller id=1 epoch=5] orders-7: "
        "leader=1 leader_epoch=4 isr=1,2 partition_epoch=7 -> "
        "leader=none leader_epoch=5 isr=2 partition_epoch=8 because broker went away: 1"
    )


def test_what_a_broker_did_is_said_without_a_controllers_epoch():
    change = StateChange(broker_id=2, subject="orders-7", before="follower", after="leader")

    assert str(change) == "[Broker id=2] orders-7: follower -> leader"
    assert change.fields() == {
        "broker_id": 2,
        "subject": "orders-7",
        "before": "follower",
        "after": "leader",
    }


def test_fields_hold_what_the_line_says():
    change = StateChange(
        broker_id=2, subject="t", before=described(None), after="x", cause="y", controller_epoch=0
    )

    assert change.fields()["before"] == "not stored"
    assert change.fields()["cause"] == "y"
    assert change.fields()["controller_epoch"] == 0
