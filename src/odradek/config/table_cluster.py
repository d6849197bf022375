"""Broker options: identity, coordination, listeners and sockets."""

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
        doc="The id of this broker. -1: the coordination store allocates the next id above "
            "`reserved.broker.max.id`, and `meta.properties` in each log directory stores it.",
    ),
    Option(
        "broker.id.generation.enable", BOOLEAN, True,
        doc="Whether a broker without `broker.id` gets a generated one. If false, `broker.id` has "
            "to be set.",
    ),
    Option(
        "reserved.broker.max.id", INT, 1_000, rule=at_least(0),
        doc="The largest id that may be set by hand; generated ids begin above it.",
    ),
    Option(
        "broker.rack", STRING, None,
        doc="The location of this broker (a host, a rack, a zone). Replicas of a partition are "
            "spread over racks.",
    ),
    Option(
        "zookeeper.connect", STRING, None,
        doc="The ZooKeeper servers, `host:port,host:port/chroot`. Unset: the brokers of one "
            "machine share an embedded coordination store.",
    ),
    Option(
        "zookeeper.session.timeout.ms", INT, 18_000,
        doc="After this time without a message from this broker, ZooKeeper removes its "
            "registration, and its partitions get other leaders.",
    ),
    Option(
        "zookeeper.connection.timeout.ms", INT, None,
        doc="How long a broker tries to connect to ZooKeeper at its start. Unset: "
            "`zookeeper.session.timeout.ms`.",
    ),
    Option(
        "zookeeper.max.in.flight.requests", INT, 10, rule=at_least(1),
        doc="How many requests to ZooKeeper may be in flight at a time.",
    ),
    Option(
        "zookeeper.set.acl", BOOLEAN, False,
        doc="Whether znodes get an ACL by which only brokers may change them. A broker "
            "authenticates with its certificate or with `odradek.zookeeper.digest`.",
    ),
    Option(
        "zookeeper.ssl.client.enable", BOOLEAN, False,
        doc="Whether connections to ZooKeeper use TLS.",
    ),
    Option(
        "zookeeper.ssl.truststore.location", STRING, None,
        doc="The trusted certificates for ZooKeeper's servers: a PEM file. Unset: the system's.",
    ),
    Option(
        "zookeeper.ssl.truststore.type", STRING, None,
        doc="The type of that file: PEM. Unset: taken from its name.",
    ),
    Option(
        "zookeeper.ssl.keystore.location", STRING, None,
        doc="This broker's key and certificate for ZooKeeper, in one PEM file.",
    ),
    Option(
        "zookeeper.ssl.keystore.type", STRING, None,
        doc="The type of that file: PEM. Unset: taken from its name.",
    ),
    Option(
        "zookeeper.ssl.keystore.password", PASSWORD, None,
        doc="The password of the key in that file.",
    ),
    Option(
        "zookeeper.ssl.enabled.protocols", LIST, None,
        doc="The versions of TLS that are allowed with ZooKeeper: TLSv1.2, TLSv1.3.",
    ),
    Option(
        "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS",
        doc="Whether the certificate of a ZooKeeper server must contain the host name of the "
            "connection (HTTPS), or not (empty).",
    ),
    Option(
        "inter.broker.protocol.version", STRING, "3.9-IV0", rule=VERSION,
        effect=False,
        doc="The oldest version of Kafka among the brokers of the cluster, while it is being "
            "upgraded. Only 3.0 and later are used here; older protocols are not supported.",
    ),
    # ------------------------------------------------------------------------ listeners and sockets
    Option(
        "listeners", STRING, "PLAINTEXT://127.0.0.1:9092", scope=PER_BROKER,
        doc="Where connections are accepted: `NAME://host:port`, separated by commas. An empty "
            "host or 0.0.0.0 is every interface. Unset: this broker listens on the loopback "
            "interface only; Apache Kafka listens on every interface.",
    ),
    Option(
        "advertised.listeners", STRING, None, scope=PER_BROKER,
        doc="The addresses to which clients and other brokers connect. Unset: the `listeners`, "
            "with an empty host replaced by the name of this host.",
    ),
    Option(
        "listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        scope=PER_BROKER,
        doc="The security protocol of each listener name: `NAME:PROTOCOL`, separated "
            "by commas.",
    ),
    Option(
        "inter.broker.listener.name", STRING, None,
        doc="The listener that brokers use between each other. Unset: the one of "
            "`security.inter.broker.protocol`.",
    ),
    Option(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", rule=one_of("PLAINTEXT", "SSL",
        "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The security protocol between brokers, if `inter.broker.listener.name` is not set.",
    ),
    Option(
        "control.plane.listener.name", STRING, None, effect=False,
        doc="A listener for the controller's requests only.",
    ),
    Option(
        "socket.send.buffer.bytes", INT, 102_400,
        doc="The size of the kernel's send buffer of each connection (SO_SNDBUF); -1, or not set: "
            "the kernel decides.",
    ),
    Option(
        "socket.receive.buffer.bytes", INT, 102_400,
        doc="The size of the kernel's receive buffer of each connection (SO_RCVBUF); -1, or not "
            "set: the kernel decides.",
    ),
    Option(
        "socket.request.max.bytes", INT, 104_857_600, rule=at_least(1),
        doc="The largest request that is read. A connection that announces a larger one is "
            "closed.",
    ),
    Option(
        "socket.listen.backlog.size", INT, 50, rule=at_least(1),
        doc="How many connections may wait to be accepted, for each listener; the kernel may "
            "allow fewer.",
    ),
    Option(
        "max.connections", INT, INT_MAX, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The maximum number of connections of this broker. Above it a new one is closed at "
            "once (Apache Kafka does not accept it). If the inter-broker listener is separate, a "
            "new connection there is accepted, and the longest idle connection of another "
            "listener is closed.",
    ),
    Option(
        "max.connections.per.ip", INT, INT_MAX, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="The maximum number of connections of an address; 0 allows only the addresses of "
            "`max.connections.per.ip.overrides`.",
    ),
    Option(
        "max.connections.per.ip.overrides", STRING, "", scope=CLUSTER_WIDE,
        doc="Other limits for some hosts or addresses: `host:count`, separated by commas.",
    ),
    Option(
        "max.connection.creation.rate", INT, INT_MAX, rule=at_least(0), scope=CLUSTER_WIDE,
        doc="How many connections may be made in a second, on average over `quota.window.num` "
            "windows; further ones are served later. A listener may have a rate of its own. If the "
            "inter-broker listener is separate, the broker's rate does not hold for it.",
    ),
    Option(
        "connections.max.idle.ms", LONG, 600_000,
        doc="A connection that receives nothing for this long is closed.",
    ),
    Option(
        "connection.failed.authentication.delay.ms", INT, 100, rule=at_least(0),
        doc="How long a connection that failed to authenticate waits before it is answered and "
            "closed.",
    ),
    Option(
        "connections.max.reauth.ms", LONG, 0,
        doc="How long an authentication by SASL is valid; a connection that continues without a "
            "new one is closed. 0: without limit.",
    ),
    Option(
        "queued.max.requests", INT, 500, rule=at_least(1), effect=False,
        doc="In Apache Kafka, how many requests may wait for a thread. Here requests do not wait "
            "for threads.",
    ),
    Option(
        "queued.max.request.bytes", LONG, -1,
        doc="The number of bytes of requests received and not yet handled above which "
            "the broker reads no further request from any connection; -1 sets no limit.",
    ),
    Option(
        "request.timeout.ms", INT, 30_000,
        doc="How long a request to another broker may take.",
    ),
    Option(
        "num.network.threads", INT, 3, rule=at_least(1), scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, the threads that read and write sockets. An Odradek broker has one "
            "event loop.",
    ),
    Option(
        "num.io.threads", INT, 8, rule=at_least(1), scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, the threads that serve requests. An Odradek broker has one event "
            "loop.",
    ),
    Option(
        "background.threads", INT, 10, rule=at_least(1), scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, the threads for background tasks such as deletion.",
    ),
)
