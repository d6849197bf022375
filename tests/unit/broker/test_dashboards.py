"""What published dashboards ask for is exported, or it is known why not."""

import json
import pathlib
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.broker.coordinators.test_group_shell import commit, coordinated
from tests.unit.broker.dashboards import DASHBOARDS
from tests.unit.broker.live import fetch, play, produce

from odradek.broker.coordinators.leader_ends import LeaderEnds
from odradek.model.partition import TopicPartition
from odradek.obs.exposition import text_pieces
from odradek.obs.metric_names import COUNTERS, GAUGES, LABELLED_COUNTERS, LABELLED_GAUGES, SUMMARIES
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_NAME = re.compile(r"\b(?:kafka|jvm|process|kubelet|container)_\w+")
# A broker without ZooKeeper has none of these.
ZOOKEEPER = {"kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"} | {
    f"kafka_server_sessionexpirelistener_zookeeper{what}"
    for what in ("disconnects", "syncconnects", "expires")
}


def scraped(live):
    text = b"".join(text_pieces(live.broker.metrics)).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def samples():
    """What a broker exports that leads and follows partitions, and has clients and a group."""
    found = {}

    async def story(live):
        peer = await coordinated(live)
        await live.order("u", leader=2, replicas=(0, 2))
        await peer.ask(produce(live.batch(b"a", b"b", b"c")))
        await peer.ask(produce({("no such topic", 0): live.batch(b"a")}))
        await peer.ask(fetch({("t", 0): 0}))
        await peer.ask(commit(1))
        found.update(scraped(live))

    play(story)
    return found


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_a_dashboard_has_data_or_it_is_known_why_not(dashboard, samples):
    exported = {name for name, *_ in samples}
    for expression, template in dashboard.relabelled:
        made = re.sub(r"\$\{(\d)\}", r"\\\1", template)
        exported |= {
            re.sub(expression, made, name) for name in exported if re.fullmatch(expression, name)
        }
    asked = {name for text in dashboard.expressions for name in _NAME.findall(text)}

    missing = asked - exported

    assert missing == dashboard.without_data.keys()


DEPLOY = pathlib.Path(__file__).parents[3] / "deploy"
# Exported where certificates expire, or ZooKeeper is used.
ELSEWHERE = {"odradek_tls_certificate_expiry_seconds"}


@pytest.mark.parametrize("file", ["grafana/odradek.json", "prometheus/alerts.yml"])
def test_our_own_dashboard_and_alert_rules_ask_for_what_is_exported(file, samples):
    exported = {name for name, *_ in samples}
    asked = set(re.findall(r"\b(?:kafka|odradek|process)_\w+", (DEPLOY / file).read_text()))
    assert asked - exported == ELSEWHERE & asked
    assert len(asked) > 15


def test_each_panel_of_our_dashboard_has_a_place_of_its_own():
    panels = json.loads((DEPLOY / "grafana/odradek.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_the_documentation_has_the_relabelling_that_a_dashboard_needs(dashboard):
    page = (DEPLOY.parent / "docs" / "metrics.md").read_text()
    for expression, template in dashboard.relabelled:
        assert f"regex: '{expression}'" in page
        assert f"replacement: '{template}'" in page
    assert dashboard.name.partition(" (")[0] in page


def test_labels_that_dashboards_use_are_those_of_the_jmx_exporter_s_rules(samples):
    labels = {}
    for name, *pairs in samples:
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    quantile = ("quantile", "0.99")
    phase = "kafka_network_requestmetrics_remotetimems"
    for request in ("Produce", "Fetch", "FetchConsumer"):
        assert (phase, quantile, ("request", request)) in samples
    assert labels["kafka_server_fetcherlagmetrics_consumerlag"] == {
        "clientId",
        "topic",
        "partition",
    }
    assert labels["kafka_server_socket_server_metrics_connection_count"] == {
        "listener",
        "networkProcessor",
    }
    errors = "kafka_network_requestmetrics_errors_total"
    refused = (errors, ("error", "UNKNOWN_TOPIC_OR_PARTITION"), ("request", "Produce"))
    assert samples[refused] == 1


def test_every_metric_of_the_tables_is_registered(samples):
    del samples

    async def story(live):
        metrics = live.broker.metrics
        registered = (
            metrics.read_gauge.keys() | metrics.read_gauges.keys() | metrics.read_counter.keys()
            | metrics.read_counters.keys() | metrics.summaries.keys()
        )  # fmt: skip
        tables = (
            GAUGES.keys() | LABELLED_GAUGES.keys() | COUNTERS.keys() | LABELLED_COUNTERS.keys()
            | SUMMARIES.keys()
        )  # fmt: skip
        assert tables - registered == ZOOKEEPER

    play(story)


def test_the_lag_of_a_group_is_that_to_the_high_watermark(samples):
    of_group = ("consumergroup", "g"), ("partition", "0"), ("topic", "t")
    assert samples["kafka_consumergroup_current_offset", *of_group] == 1
    assert samples["kafka_consumergroup_lag", *of_group] == 2
    summed = of_group[0], of_group[2]
    assert samples["kafka_consumergroup_lag_sum", *summed] == 2
    assert samples["kafka_consumergroup_members", of_group[0]] == 0
    assert samples["kafka_topic_partition_current_offset", *of_group[1:]] == 3
    assert samples["kafka_topic_partitions", ("topic", "t")] == 2


def test_high_watermarks_of_partitions_on_other_brokers_are_asked_for_at_most_every_ten_seconds():
    asked = []

    async def ask(leader, request):
        asked.append((leader, [topic.name for topic in request.topics]))
        answer = ListOffsetsPartitionResponse(partition_index=0, offset=70)
        topic = ListOffsetsTopicResponse(name=request.topics[0].name, partitions=[answer])
        return ListOffsetsResponse(topics=[topic])

    async def story(live):
        await live.topic("t")
        ends = LeaderEnds(ask, live.broker.metadata, live.broker.tasks)
        wanted = TopicPartition("t", 0)
        assert ends.of(wanted) is None
        ends.want([wanted, TopicPartition("unknown", 0)])
        ends.want([wanted])
        await live.until(lambda: ends.of(wanted) == 70)
        ends.want([wanted])
        assert asked == [(0, ["t"])]

    play(story)


def test_a_broker_that_does_not_answer_leaves_its_partitions_out():
    async def ask(_leader, _request):
        raise ConnectionError("no")

    async def story(live):
        await live.topic("t")
        ends = LeaderEnds(ask, live.broker.metadata, live.broker.tasks)
        ends.want([TopicPartition("t", 0)])
        await live.until(lambda: not ends.is_asking)
        assert ends.of(TopicPartition("t", 0)) is None

    play(story)
