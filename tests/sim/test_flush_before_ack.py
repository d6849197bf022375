"""What has to be flushed before it is acknowledged is on the disks of all who are in sync."""

import pytest
from tests.sim.scene import is_committed, leo, play, until
from tests.sim.stage import contents

RECORDS = [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("back", [(0, 1), (0, 2), (1, 2)])
def test_all_lose_power_at_once_and_whoever_comes_back_has_what_was_acknowledged(back):
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
