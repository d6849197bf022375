"""The tables of options against those of Apache Kafka 3.9.2, with the intended differences."""

import pathlib
import typing

import pytest

from odradek.config.broker import ATTRIBUTES, BROKER_OPTIONS, BrokerOptions
from odradek.config.option import Type
from odradek.config.topic import SYNONYMS, TOPIC_OPTIONS, TopicConfig

HERE = pathlib.Path(__file__).parent
# Unset, our broker listens on the loopback interface only.
OUR_DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


def rows(name):
    for line in (HERE / name).read_text().splitlines():
        if not line.startswith("#"):
            yield line.split("\t")


def test_every_option_of_a_3_9_broker_is_declared_as_there():
    theirs = {row[0]: tuple(row[1:]) for row in rows("kafka_3_9_broker.tsv")}
    ours = {
        name: (
            option.type.name,
            "null" if option.default is None else option.render(option.default),
            option.scope.value,
            str(option.internal).lower(),
        )
        for name, option in BROKER_OPTIONS.items()
    }
    theirs |= {
        name: (theirs[name][0], default, *theirs[name][2:])
        for name, default in OUR_DEFAULTS.items()
    }

    assert len(theirs) == 329
    assert {name: ours.get(name) for name in theirs} == theirs
    assert sorted(ours.keys() - theirs.keys()) == [
        "allow.everyone.if.no.acl.found",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.validate.records",
        "odradek.connection.responses.max.bytes",
        "odradek.connections.memory.max.bytes",
        "odradek.controller.events.max.bytes",
        "odradek.flush.before.ack",
        "odradek.http.allowed.hosts",
        "odradek.http.host",
        "odradek.http.port",
        "odradek.http.token.file",
        "odradek.metadata.hold.ms",
        "odradek.sasl.oauthbearer.unsecured.tokens",
        "odradek.store.path",
        "odradek.transaction.version.max",
        "odradek.unauthenticated.memory.max.bytes",
        "odradek.unauthenticated.timeout.ms",
        "odradek.zookeeper.digest",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "super.users",
    ]


def test_every_option_of_a_3_9_topic_is_declared_as_there():
    theirs = {row[0]: tuple(row[1:3]) for row in rows("kafka_3_9_topic.tsv")}

    assert len(theirs) == 36
    assert {
        name: (option.type.name, option.render(option.default))
        for name, option in TOPIC_OPTIONS.items()
    } == theirs


def test_a_topics_option_inherits_from_the_same_options_of_the_broker_as_in_kafka():
    theirs = {
        row[0]: [tuple(word.split("/")) for word in row[3].split()]
        for row in rows("kafka_3_9_topic.tsv")
    }

    assert {
        name: [(synonym.name, str(synonym.factor)) for synonym in SYNONYMS.get(name, ())]
        for name in TOPIC_OPTIONS
    } == theirs


def test_a_default_is_a_value_that_the_option_allows():
    with_default = [
        option
        for option in (*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values())
        if option.default is not None and not option.is_sensitive
    ]
    for option in with_default:
        assert option.parse(option.render(option.default) or "") == option.default, option.name


PYTHON_TYPES = {
    Type.BOOLEAN: bool,
    Type.INT: int,
    Type.SHORT: int,
    Type.LONG: int,
    Type.DOUBLE: float,
    Type.STRING: str,
    Type.LIST: tuple[str, ...],
    Type.CLASS: str,
    Type.PASSWORD: str,
}


@pytest.mark.parametrize(
    ("declared", "options"), [(BrokerOptions, BROKER_OPTIONS), (TopicConfig, TOPIC_OPTIONS)]
)
def test_an_attribute_has_the_type_of_its_option(declared, options):
    computed = {"cleanup_policy", "overrides", "values"}
    for name, annotation in typing.get_type_hints(declared).items():
        if name in computed:
            continue
        option = options[name.replace("_", ".")]
        expected = PYTHON_TYPES[option.type]
        if option.default is None:
            expected = expected | None
        assert annotation == expected, name


# What BrokerConfig derives from several options.
COMPUTED_FROM = {
    "advertised.listeners",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "max.connections.per.ip.overrides",
    "security.inter.broker.protocol",
    "zookeeper.connection.timeout.ms",
}

# What is read for each listener: `wiring/authentication.py`, `serving/tls_listeners.py`.
READ_FOR_LISTENERS = {
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "password.encoder.old.secret",
    "password.encoder.secret",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "odradek.sasl.oauthbearer.unsecured.tokens",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.server.max.receive.size",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
}


def test_an_option_has_an_effect_exactly_where_code_can_read_it():
    through_topics = {
        synonym.name
        for name, synonyms in SYNONYMS.items()
        if TOPIC_OPTIONS[name].effect
        for synonym in synonyms
    }
    reachable = {key for _, key in ATTRIBUTES} | COMPUTED_FROM | through_topics
    reachable |= READ_FOR_LISTENERS

    assert {name for name, option in BROKER_OPTIONS.items() if option.effect} == reachable


def test_a_topics_option_has_an_effect_where_the_brokers_option_has():
    pairs = {(name, each.name) for name, synonyms in SYNONYMS.items() for each in synonyms}
    pairs.remove(("flush.ms", "log.flush.scheduler.interval.ms"))  # has an effect of its own
    for name, synonym in pairs:
        assert BROKER_OPTIONS[synonym].effect is TOPIC_OPTIONS[name].effect, name


def test_every_option_with_an_effect_is_documented():
    for option in (*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values()):
        assert option.doc.endswith(".") or not option.effect, option.name
