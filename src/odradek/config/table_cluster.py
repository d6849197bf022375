"""Broker options: who a broker is, and how it is reached."""

from typing import Final

from odradek.config.option import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    PASSWORD,
    PER_BROKER,
    STRING,
    VERSION,
    Option,
    at_least,
    one_of,
)

# fmt: off
OPTIONS: Final = (
    # ----------------------------------------------------------------------- identity, coordination
    Option(
        "broker.id", INT, -1,
        doc="The number of this broker in the cluster. -1: the coordination store hands out the "
            "next one above `reserved.broker.max.id`, and `meta.properties` in each log "
            "directory keeps it.",
    ),
    Option(
        "broker.id.generation.enable", BOOLEAN, True,
        doc="Whether a broker without `broker.id` is given one. Where it is off, `broker.id` "
            "has to be set.",
    ),
    Option(
        "reserved.broker.max.id", INT, 1_000, rule=at_least(0),
        doc="The largest number that may be given by hand; those handed out begin above it.",
    ),
    Option(
        "broker.rack", STRING, None,
        doc="Where this broker stands (a host, a rack, a zone). Replicas of a partition are "
            "spread over racks.",
    ),
    Option(
        "zookeeper.connect", STRING, None,
        doc="The ZooKeeper servers, `host:port,host:port/chroot`. Unset: the brokers of one "
            "machine share an embedded coordination store.",
    ),
    Option(
        "zookeeper.session.timeout.ms", INT, 18_000,
        doc="For how long ZooKeeper may hear nothing of this broker before its registration is "
            "gone and its partitions get other leaders.",
    ),
    Option(
        "zookeeper.connection.timeout.ms", INT, None,
        doc="For how long a start may try to reach ZooKeeper. Unset: "
            "`zookeeper.session.timeout.ms`.",
    ),
    Option(
        "zookeeper.max.in.flight.requests", INT, 10, rule=at_least(1),
        doc="How many requests to ZooKeeper may be unanswered at a time.",
    ),
    Option(
        "zookeeper.set.acl", BOOLEAN, False,
        doc="Whether the znodes are written so that only brokers may change them. A broker is "
            "known by its certificate or by `odradek.zookeeper.digest`.",
    ),
    Option(
        "zookeeper.ssl.client.enable", BOOLEAN, False,
        doc="Whether ZooKeeper is reached by TLS.",
    ),
    Option(
        "zookeeper.ssl.truststore.location", STRING, None,
        doc="The certificates by which ZooKeeper's servers are recognised: a PEM file. Unset: "
            "the system's.",
    ),
    Option(
        "zookeeper.ssl.truststore.type", STRING, None,
        doc="The type of that file: PEM. Unset: by its name.",
    ),
    Option(
        "zookeeper.ssl.keystore.location", STRING, None,
        doc="This broker's key and certificate for ZooKeeper, in one PEM file.",
    ),
    Option(
        "zookeeper.ssl.keystore.type", STRING, None,
        doc="The type of that file: PEM. Unset: by its name.",
    ),
    Option(
        "zookeeper.ssl.keystore.password", PASSWORD, None,
        doc="The password of the key in that file.",
    ),
    Option(
        "zookeeper.ssl.enabled.protocols", LIST, None,
        doc="The versions of TLS that may be spoken with ZooKeeper: TLSv1.2, TLSv1.3.",
    ),
    Option(
        "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS",
        doc="Whether the certificate of a ZooKeeper server has to bear the name by which it was "
            "reached (HTTPS), or not (empty).",
    ),
    Option(
        "inter.broker.protocol.version", STRING, "3.9-IV0", rule=VERSION,
        effect=False,
        doc="The oldest version of Kafka among the brokers of the cluster, while it is being "
            "upgraded. Only 3.0 and later mean something here; nothing older is spoken.",
    ),
    # ------------------------------------------------------------------------ listeners and sockets
    Option(
        "listeners", STRING, "PLAINTEXT://127.0.0.1:9092", scope=PER_BROKER,
        doc="Where connections are accepted: `NAME://host:port`, separated by commas. An empty "
            "host or 0.0.0.0 is every interface. Unset, this broker listens on the loopback "
            "interface alone; Apache Kafka would listen everywhere.",
    ),
    Option(
        "advertised.listeners", STRING, None, scope=PER_BROKER,
        doc="What clients and other brokers are told to connect to. Unset: the `listeners`, "
            "with an empty host replaced by the name of this host.",
    ),
    Option(
        "listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        scope=PER_BROKER,
        doc="Which security protocol each listener name stands for: `NAME:PROTOCOL`, separated "
            "by commas.",
    ),
    Option(
        "inter.broker.listener.name", STRING, None,
        doc="The listener by which brokers reach each other. Unset: the one of "
            "`security.inter.broker.protocol`.",
    ),
    Option(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", rule=one_of("PLAINTEXT", "SSL",
        "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The security protocol between brokers, where `inter.broker.listener.name` does not "
            "say it.",
    ),
    Option(
        "control.plane.listener.name", STRING, None, effect=False,
        doc="A listener for the controller's requests alone.",
    ),
    Option(
        "socket.send.buffer.bytes", INT, 102_400,
        doc="The size of the kernel's send buffer of each connection (SO_SNDBUF); -1, or not to "
            "set it at all, leaves it to the kernel.",
    ),
    Option(
        "socket.receive.buffer.bytes", INT, 102_400,
        doc="The size of the kernel's receive buffer of each connection (SO_RCVBUF); -1, or not "
            "to set it at all, leaves it to the kernel.",
    ),
    Option(
        "socket.request.max.bytes", INT, 104_857_600, rule=at_least(1),
        doc="The largest request that is read. A peer that announces a larger one is cut off.",
    ),
    Option(
        "socket.listen.backlog.size", INT, 50, rule=at_least(1),
        doc="How many connections may wait for being accepted, for each listener; the kernel "
            "may allow fewer.",
    ),
    Option(
        "max.connections", INT, INT_MAX, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How many connections this broker has at most. Above it a new one is closed at once "
            "(Apache Kafka leaves it unaccepted). On the brokers' listener, if there are others, "
            "it is let in, and the connection that was silent longest on another listener goes.",
    ),
    Option(
        "max.connections.per.ip", INT, INT_MAX, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How many connections an address may have; 0 leaves only those of "
            "`max.connections.per.ip.overrides`.",
    ),
    Option(
        "max.connections.per.ip.overrides", STRING, "", scope=CLUSTER_WIDE,
        doc="Other limits for some hosts or addresses: `host:count`, separated by commas.",
    ),
    Option(
        "max.connection.creation.rate", INT, INT_MAX, rule=at_least(0), scope=CLUSTER_WIDE,
        effect=False,
        doc="How many connections may be made in a second; those above it are accepted late.",
    ),
    Option(
        "connections.max.idle.ms", LONG, 600_000,
        doc="A connection on which nothing was heard for this long is closed.",
    ),
    Option(
        "connection.failed.authentication.delay.ms", INT, 100, rule=at_least(0), effect=False,
        doc="For how long a connection that failed to authenticate is kept waiting before it is "
            "closed.",
    ),
    Option(
        "connections.max.reauth.ms", LONG, 0, effect=False,
        doc="For how long an authentication by SASL is good; a peer that goes on without a new "
            "one is cut off. 0: for ever.",
    ),
    Option(
        "queued.max.requests", INT, 500, rule=at_least(1), effect=False,
        doc="In Apache Kafka, how many requests wait for a thread. Here no request waits for "
            "one.",
    ),
    Option(
        "queued.max.request.bytes", LONG, -1,
        doc="How many bytes of requests may be in the broker, received and not yet handled, before "
            "it reads no further request from any connection; -1 sets no limit.",
    ),
    Option(
        "request.timeout.ms", INT, 30_000,
        doc="How long a request to another broker may take.",
    ),
    Option(
        "num.network.threads", INT, 3, rule=at_least(1), scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, the threads that read and write sockets. A broker here has one "
            "event loop.",
    ),
    Option(
        "num.io.threads", INT, 8, rule=at_least(1), scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, the threads that serve requests. A broker here has one event "
            "loop.",
    ),
    Option(
        "background.threads", INT, 10, rule=at_least(1), scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, the threads for deletion and the like.",
    ),
)
