"""Broker options outside KafkaConfig: the authorizer's, replication throttles, and our own.

Kafka's tools set the throttles on running brokers; its authorizer reads its own keys from
`server.properties`. DescribeConfigs lists both only where they are set. Options that begin
with `odradek.` do not exist in Apache Kafka.
"""

from typing import Final

from odradek.config.option import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    STRING,
    Option,
    at_least,
    between,
    one_of,
)

# fmt: off
OPTIONS: Final = (
    # ---------------------------------------------------------------------------- the authorizer
    Option(
        "super.users", STRING, "", internal=True,
        doc="Principals for which every request is allowed: `User:name`, separated by semicolons.",
    ),
    Option(
        "allow.everyone.if.no.acl.found", BOOLEAN, False, internal=True,
        doc="Whether every client may use a resource that has no ACL.",
    ),
    # -------------------------------------------------------------------------------- throttles
    Option(
        "leader.replication.throttled.rate", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE, internal=True,
        doc="The maximum bytes per second that this broker sends to throttled followers, for the "
            "partitions in `leader.replication.throttled.replicas`.",
    ),
    Option(
        "follower.replication.throttled.rate", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE, internal=True,
        doc="The maximum bytes per second that this broker fetches, for the partitions in "
            "`follower.replication.throttled.replicas`.",
    ),
    Option(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE, internal=True,
        doc="The maximum bytes per second for moves between this broker's log directories.",
    ),
    # -------------------------------------------------------------------------------------- ours
    Option(
        "odradek.store.path", STRING, None,
        doc="The file of the coordination store that the brokers of one machine share, if "
            "`zookeeper.connect` is not set.",
    ),
    Option(
        "odradek.zookeeper.digest", PASSWORD, None,
        doc="The credentials of this broker for ZooKeeper's `digest` scheme, as `user:password`. "
            "`zookeeper.set.acl` needs them if there is no certificate.",
    ),
    Option(
        "odradek.http.host", STRING, "127.0.0.1",
        doc="The address at which `/metrics` and `/health` are served.",
    ),
    Option(
        "odradek.http.token.file", STRING, None,
        doc="The file with the token that HTTP requests for reports, and for metrics with names, "
            "have to carry (`Authorization: Bearer`) where an authorizer is configured or every "
            "listener has SASL. If there is none, the broker draws a token. Unset: `http.token` in "
            "the first of `log.dirs`.",
    ),
    Option(
        "odradek.http.port", INT, 0, rule=between(-1, 65_535),
        doc="The port of `/metrics` and `/health`. 0: any free port; -1: they are not served.",
    ),
    Option(
        "odradek.http.allowed.hosts", LIST, (),
        doc="Host names that HTTP requests may use, besides addresses and `localhost`. Others are "
            "refused, so that a web page cannot read the endpoints through a host name of its own "
            "(DNS rebinding).",
    ),
    Option(
        "odradek.connection.responses.max.bytes", INT, 1 << 20, rule=at_least(0),
        scope=CLUSTER_WIDE,
        doc="How many bytes of responses may wait on one connection behind a response that is not "
            "ready. Above it, further requests of the connection wait, too. A fetch behind such a "
            "response is executed when its response is next, and records above 1 MiB are read "
            "from the log as the client takes them. A change applies to new connections.",
    ),
    Option(
        "odradek.connections.memory.max.bytes", LONG, 1 << 30, rule=at_least(1 << 20),
        scope=CLUSTER_WIDE,
        doc="The memory limit for requests and responses of all connections together. Above it, "
            "the connections without progress for the longest time are closed.",
    ),
    Option(
        "odradek.metadata.hold.ms", INT, 300, rule=at_least(0),
        doc="How long a Metadata or FindCoordinator response may wait for the new leader of a "
            "partition, when this broker has lost its connection to the old one, or the controller "
            "has sent it a newer leader epoch than its metadata has. Apache Kafka answers with the "
            "old leader at once, and clients wait for their next request. Above 0 a Metadata "
            "response that names topics also names a broker for five seconds after its end, and a "
            "fetch that waits is answered when another request of its connection follows. 0: "
            "responses are as Kafka's.",
    ),
    Option(
        "odradek.unauthenticated.memory.max.bytes", LONG, 1 << 28, rule=at_least(1 << 20),
        scope=CLUSTER_WIDE,
        doc="The memory limit for all connections together that are not authenticated yet, or "
            "whose TLS handshake is not complete. Each counts 64 KiB, and what it takes above "
            "that; on a listener with ssl.client.auth another 100 KiB. At the limit the "
            "connections that were accepted first are closed: of the address that takes most, if "
            "that is more than a 64th of the limit, else of all.",
    ),
    Option(
        "odradek.unauthenticated.timeout.ms", INT, 30_000, rule=at_least(1),
        scope=CLUSTER_WIDE,
        doc="How long a client of a SASL listener may take from its connection to its "
            "authentication; after that the connection is closed. It is checked every five "
            "seconds. Apache Kafka has `connections.max.idle.ms` alone.",
    ),
    Option(
        "odradek.sasl.oauthbearer.unsecured.tokens", BOOLEAN, False,
        doc="Whether OAUTHBEARER accepts tokens without a signature, so that every client may use "
            "every name: for tests only.",
    ),
    Option(
        "odradek.flush.before.ack", BOOLEAN, False,
        doc="Whether records are flushed before they are acknowledged. This is safe if all "
            "brokers lose power at once, and slow.",
    ),
    Option(
        "odradek.transaction.version.max", INT, 2, rule=between(1, 2),
        doc="The highest version of transactions that clients may use. Version 2 (KIP-890: each "
            "transaction has an epoch of its own) is available while every broker of the cluster "
            "is an Odradek broker. The controller's value applies.",
    ),
    Option(
        "odradek.controller.events.max.bytes", LONG, 0, rule=at_least(0),
        doc="While this broker is the controller, it records each event of its state machine in "
            "`controller-events-<controller epoch>.jsonl` in the first of `log.dirs`, up to so "
            "many bytes for each term. 0: nothing is recorded. The files of two terms are kept.",
    ),
    Option(
        "log.validate.records", STRING, "full", rule=one_of("batch", "full"),
        doc="What a leader checks in produced batches: every record, decompressed, as Apache "
            "Kafka does (`full`); or each batch with its checksum, and its records only if that "
            "is needed or costs nothing (`batch`).",
    ),
)
