"""The options that a test passes to the kit."""

import pytest

from odradek.testkit import KafkaCluster, KitError


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("min.insync.replica", "no such broker option; did you mean min.insync.replicas?"),
        ("group.initial.rebalance.delay", "did you mean group.initial.rebalance.delay.ms?"),
        ("quite.something.else", "there is no such broker option$"),
        ("broker.id", "it is set by the kit: brokers are numbered from 0"),
        ("listeners", "it is set by the kit: each broker has free ports"),
        ("log.dirs", "it is set by the kit: the files are in a folder"),
    ],
)
@pytest.mark.parametrize("processes", [False, True])
def test_an_option_that_would_have_no_effect_is_refused(name, complaint, processes):
    with pytest.raises(KitError, match=complaint):
        KafkaCluster(properties={name: "1"}, processes=processes)


def test_a_value_that_an_option_does_not_allow_is_refused_before_a_broker_starts():
    with pytest.raises(KitError, match="Invalid value abc for configuration log.retention.ms"):
        KafkaCluster(properties={"log.retention.ms": "abc"})


@pytest.mark.parametrize(
    "options",
    [
        {"auto.create.topics.enable": False, "log.retention.ms": 60_000},
        {"listener.name.plaintext.connections.max.reauth.ms": "1000"},
    ],
)
def test_options_of_brokers_and_of_their_listeners_are_accepted(options):
    assert KafkaCluster(properties=options).brokers == 1
