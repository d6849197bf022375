"""With odradek.flush.before.ack, acknowledged records are on the disks of all in-sync replicas."""

import pytest

from odradek.sim.scenes.replicas import contents, leo
from odradek.sim.scenes.scene import is_committed, play, until

RECORDS = [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("back", [(0, 1), (0, 2), (1, 2)])
def test_after_a_power_loss_of_all_any_two_replicas_have_every_acknowledged_record(back):
    async def story(scene):
        for follower in scene.brokers[1:]:
            follower.disk.slowest_ms = 300
        for record in RECORDS:
            assert await is_committed(scene.brokers[0], record)
        for broker in scene.brokers:
            scene.lose_power(broker)
        present = [scene.brokers[id_] for id_ in back]
        for broker in present:
            broker.start()
        await until(lambda: any(map(scene.leads, present)))
        await until(lambda: leo(present[0]) == leo(present[1]))
        assert [contents(broker) for broker in present] == [RECORDS] * 2

    play(story, properties={"odradek.flush.before.ack": "true"})
