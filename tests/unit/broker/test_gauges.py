"""The gauges of a broker, read from its parts."""

from tests.unit.broker.live import LOG_DIRS, fetch, play, produce

from odradek.sim.world.disk import DiskFault


def read(live, name):
    return live.broker.metrics.read_gauge[name]()


def test_partitions_leaders_and_those_that_lack_replicas():
    async def story(live):
        await live.topic("t", 2)
        await live.order("u", replicas=(0, 2), isr=(0,))
        await live.order("v", leader=2, replicas=(2, 0))
        manager = "kafka_server_replicamanager_"

        assert read(live, f"{manager}partitioncount") == 4
        assert read(live, f"{manager}leadercount") == 3
        assert read(live, f"{manager}underreplicatedpartitions") == 1
        assert read(live, f"{manager}underminisrpartitioncount") == 0
        live.broker.settings.set_topic("u", {"min.insync.replicas": "2"})
        assert read(live, f"{manager}underminisrpartitioncount") == 1
        controller = "kafka_controller_kafkacontroller_"
        assert read(live, f"{controller}activecontrollercount") == 1
        assert read(live, f"{controller}activebrokercount") == 3
        assert read(live, f"{controller}globaltopiccount") == 3
        assert read(live, f"{controller}globalpartitioncount") == 4

    play(story)


def test_directories_that_failed():
    async def story(live):
        await live.topic("t", 2)
        assert read(live, "kafka_log_logmanager_offlinelogdirectorycount") == 0
        live.disk.faults.append(DiskFault("write", f"{LOG_DIRS[0]}/"))
        await live.peer().ask(produce({("t", n): live.batch(b"a") for n in (0, 1)}))

        assert read(live, "kafka_log_logmanager_offlinelogdirectorycount") == 1
        assert read(live, "kafka_server_replicamanager_offlinereplicacount") == 1
        assert live.broker.health().offline_log_dirs == (LOG_DIRS[0],)

    play(story)


def test_fetch_sessions_and_waiting_requests():
    async def story(live):
        await live.topic("t", 3)
        sessions = "kafka_server_fetchsessioncache_numincrementalfetch"
        peer = live.peer()
        offsets = {("t", index): 0 for index in range(3)}
        peer.send(fetch(offsets, session_epoch=0, max_wait_ms=60_000), 12)

        assert read(live, f"{sessions}sessions") == 1
        assert read(live, f"{sessions}partitionscached") == 3
        rows = live.broker.metrics.read_gauges[
            "kafka_server_delayedoperationpurgatory_purgatorysize"
        ]()
        assert rows == [(("Fetch",), 1), (("Produce",), 0)]

    play(story)


def test_the_state_of_the_broker():
    async def story(live):
        assert read(live, "kafka_server_kafkaserver_brokerstate") == 3
        await live.broker.stop()
        assert read(live, "kafka_server_kafkaserver_brokerstate") == 0

    play(story)


def test_what_is_moved_is_not_under_replicated_for_what_is_added():
    async def story(live):
        await live.order("t", replicas=(0, 2, 3), isr=(0, 2), adding=(3,))
        await live.order("u", replicas=(0, 2, 3), isr=(0,), adding=(3,))
        await live.order("v", replicas=(0, 2), isr=(0, 2), removing=(2,))
        manager = "kafka_server_replicamanager_"

        assert read(live, f"{manager}underreplicatedpartitions") == 1
        assert read(live, f"{manager}reassigningpartitions") == 3
        await live.order("t", replicas=(0, 3), isr=(0, 3), leader_epoch=1)
        assert read(live, f"{manager}reassigningpartitions") == 2

    play(story)


def test_what_the_controller_counts():
    async def story(live):
        await live.topic("t", 2)
        controller = "kafka_controller_kafkacontroller_"

        def counted():
            names = ("offlinepartitions", "preferredreplicaimbalance", "topicstodelete",
                     "topicsineligibletodelete")  # fmt: skip
            return [read(live, f"{controller}{name}count") for name in names]

        assert counted() == [0, 0, 0, 0]
        assert read(live, "kafka_controller_controllereventmanager_eventqueuesize") == 0
        await live.store.create("/brokers/topics/dead", b'{"version":1,"partitions":{"0":[9]}}')
        await live.until(lambda: counted() == [1, 1, 0, 0])
        await live.store.create("/admin/delete_topics/dead")
        await live.until(lambda: counted() == [0, 0, 1, 1])
        await live.broker.controller.stop()
        assert counted() == [0, 0, 0, 0]

    play(story)
