"""Broker options that are not in Kafka's own table of them: plug-ins', throttles', and ours.

Kafka's tools set the throttles on running brokers; its authorizer reads its own keys out of
`server.properties`. DescribeConfigs lists both only where they are set. What begins with
`odradek.` exists only here.
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
        "super.users", STRING, "", effect=False, internal=True,
        doc="Principals that may everything: `User:name`, separated by semicolons.",
    ),
    Option(
        "allow.everyone.if.no.acl.found", BOOLEAN, False, effect=False, internal=True,
        doc="Whether a resource that no ACL speaks of is open to everybody.",
    ),
    # -------------------------------------------------------------------------------- throttles
    Option(
        "leader.replication.throttled.rate", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE, internal=True,
        doc="How many bytes a second this broker sends at most to throttled followers, for the "
            "partitions in `leader.replication.throttled.replicas`.",
    ),
    Option(
        "follower.replication.throttled.rate", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE, internal=True,
        doc="How many bytes a second this broker fetches at most, for the partitions in "
            "`follower.replication.throttled.replicas`.",
    ),
    Option(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, rule=at_least(0),
        scope=CLUSTER_WIDE, internal=True,
        doc="How many bytes a second moves between this broker's log directories take at most.",
    ),
    # -------------------------------------------------------------------------------------- ours
    Option(
        "odradek.store.path", STRING, None,
        doc="The file of the coordination store that the brokers of one machine share, where "
            "`zookeeper.connect` is not set.",
    ),
    Option(
        "odradek.zookeeper.digest", PASSWORD, None,
        doc="Who this broker is to ZooKeeper, as `user:password`, for its `digest` scheme. For "
            "`zookeeper.set.acl` where no certificate says it.",
    ),
    Option(
        "odradek.http.host", STRING, "127.0.0.1",
        doc="The address at which `/metrics` and `/health` are served.",
    ),
    Option(
        "odradek.http.port", INT, 0, rule=between(-1, 65_535),
        doc="The port of `/metrics` and `/health`. 0: any that is free; -1: they are not served.",
    ),
    Option(
        "odradek.http.allowed.hosts", LIST, (),
        doc="Names by which browsers and collectors may ask for it, besides addresses and "
            "`localhost`. Others are refused, so that no web page can read it through a name of "
            "its own.",
    ),
    Option(
        "odradek.connection.responses.max.bytes", INT, 1 << 20, rule=at_least(0),
        scope=CLUSTER_WIDE,
        doc="How many bytes of responses may wait for one connection, behind one that is not "
            "ready, before its further requests wait, too. A fetch behind such a response is not "
            "executed before its turn, and records above 1 MiB are read from the log as the client "
            "takes them. Counts for connections that are opened from then on.",
    ),
    Option(
        "odradek.connections.memory.max.bytes", LONG, 1 << 30, rule=at_least(1 << 20),
        scope=CLUSTER_WIDE,
        doc="How much memory requests and responses of all connections may take together. Above it "
            "those connections are closed of which nothing was received or taken for longest.",
    ),
    Option(
        "odradek.flush.before.ack", BOOLEAN, False,
        doc="Whether records are forced to disk before they are acknowledged: safe when the "
            "power fails on all brokers at once, and slow.",
    ),
    Option(
        "odradek.transaction.version.max", INT, 2, rule=between(1, 2),
        doc="Up to which version of transactions clients are offered. 2 (KIP-890: each "
            "transaction has an epoch of its own) is offered while every broker of the cluster is "
            "one of Odradek's; the controller's value counts.",
    ),
    Option(
        "log.validate.records", STRING, "full", rule=one_of("batch", "full"),
        doc="What a leader checks of what producers send: every record, decompressed, as Apache "
            "Kafka does (`full`), or each batch with its checksum, and its records where that is "
            "needed or costs nothing (`batch`).",
    ),
)
