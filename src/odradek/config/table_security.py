"""Broker options: encryption, authentication, authorisation, quotas."""

from typing import Final

from odradek.config.option import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    PER_BROKER,
    STRING,
    Option,
    at_least,
    one_of,
)

# fmt: off
OPTIONS: Final = (
    # ------------------------------------------------------------------------------------- security
    Option(
        "authorizer.class.name", STRING, "",
        doc="The class that authorizes requests: `kafka.security.authorizer.AclAuthorizer` uses "
            "the ACLs in the coordination store; empty: every request is allowed.",
    ),
    Option(
        "principal.builder.class", CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        scope=PER_BROKER, effect=False,
        doc="In Apache Kafka, the class that determines the principal of a connection. Any other "
            "than Kafka's default prevents the start.",
    ),
    Option(
        "ssl.client.auth", STRING, "none", rule=one_of("required", "requested", "none"),
        scope=PER_BROKER,
        doc="Whether clients must present a certificate (`required`), may present one "
            "(`requested`), or need none (`none`).",
    ),
    Option(
        "ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), scope=PER_BROKER,
        doc="The versions of TLS that are allowed.",
    ),
    Option(
        "ssl.protocol", STRING, "TLSv1.3", scope=PER_BROKER, effect=False,
        doc="The version of TLS that is preferred.",
    ),
    Option(
        "ssl.cipher.suites", LIST, (), scope=PER_BROKER,
        doc="The cipher suites that are accepted; empty: the TLS library decides.",
    ),
    Option(
        "ssl.endpoint.identification.algorithm", STRING, "https", scope=PER_BROKER,
        doc="Whether a broker that connects to another checks the host name in its certificate "
            "(`https`), or not (empty).",
    ),
    Option(
        "ssl.keystore.type", STRING, "JKS", scope=PER_BROKER,
        doc="The format of `ssl.keystore.location`: PEM, PKCS12 or JKS.",
    ),
    Option(
        "ssl.keystore.location", STRING, None, scope=PER_BROKER,
        doc="The file with this broker's private key and its certificates.",
    ),
    Option(
        "ssl.keystore.password", PASSWORD, None, scope=PER_BROKER,
        doc="The password of `ssl.keystore.location`.",
    ),
    Option(
        "ssl.key.password", PASSWORD, None, scope=PER_BROKER,
        doc="The password of the private key in the keystore or in `ssl.keystore.key`.",
    ),
    Option(
        "ssl.keystore.key", PASSWORD, None, scope=PER_BROKER,
        doc="The private key itself, as PEM text.",
    ),
    Option(
        "ssl.keystore.certificate.chain", PASSWORD, None, scope=PER_BROKER,
        doc="This broker's certificates, as PEM text, its own first.",
    ),
    Option(
        "ssl.truststore.type", STRING, "JKS", scope=PER_BROKER,
        doc="The format of `ssl.truststore.location`: PEM, PKCS12 or JKS.",
    ),
    Option(
        "ssl.truststore.location", STRING, None, scope=PER_BROKER,
        doc="The file with the trusted certificates.",
    ),
    Option(
        "ssl.truststore.password", PASSWORD, None, scope=PER_BROKER,
        doc="The password of `ssl.truststore.location`.",
    ),
    Option(
        "ssl.truststore.certificates", PASSWORD, None, scope=PER_BROKER,
        doc="The trusted certificates, as PEM text.",
    ),
    Option(
        "ssl.allow.dn.changes", BOOLEAN, False,
        doc="Whether a key store may be replaced by one for another name while the broker runs.",
    ),
    Option(
        "ssl.allow.san.changes", BOOLEAN, False,
        doc="Whether a key store may be replaced by one that has not all alternative names of the "
            "former one while the broker runs.",
    ),
    Option(
        "ssl.principal.mapping.rules", STRING, "DEFAULT",
        doc="The rules that turn the name in a client's certificate into its principal: "
            "`RULE:pattern/replacement/[LU]`, the first that matches, or `DEFAULT` for the whole "
            "name.",
    ),
    Option(
        "sasl.enabled.mechanisms", LIST, ("GSSAPI",), scope=PER_BROKER,
        doc="The SASL mechanisms that clients of SASL listeners may use. A change applies after a "
            "restart.",
    ),
    Option(
        "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", scope=PER_BROKER,
        doc="The SASL mechanism by which brokers log in to each other. User name and password, or "
            "keytab, are in the `sasl.jaas.config` of the brokers' listener and this mechanism.",
    ),
    Option(
        "sasl.jaas.config", PASSWORD, None, scope=PER_BROKER,
        doc="Login modules and their options in JAAS form. On a broker, set it for each listener "
            "and mechanism: `listener.name.NAME.MECHANISM.sasl.jaas.config`.",
    ),
    Option(
        "sasl.server.max.receive.size", INT, 524_288,
        doc="The largest SASL message that is read before a peer has authenticated.",
    ),
    Option(
        "sasl.oauthbearer.jwks.endpoint.url", STRING, None,
        doc="The keys that sign bearer tokens, as a JSON Web Key Set: an `https:` or a `file:` "
            "URL. Without keys a listener with OAUTHBEARER prevents the start.",
    ),
    Option(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000,
        doc="How often the keys are read again. They are also read, at most once a minute, when "
            "a token names a key that is not among them.",
    ),
    Option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100,
        doc="The pause after a first failure to read the keys again. The former keys are used "
            "meanwhile.",
    ),
    Option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000,
        doc="The longest pause between two attempts to read the keys again.",
    ),
    Option(
        "sasl.oauthbearer.token.endpoint.url", STRING, None,
        doc="Where this broker gets the bearer token with which it logs in to others: a `file:` "
            "URL, or the `https:` URL of an identity provider, which gets `clientId`, "
            "`clientSecret` and `scope` of the `sasl.jaas.config`.",
    ),
    Option(
        "sasl.oauthbearer.expected.audience", LIST, None,
        doc="The audiences; a bearer token must name one of them.",
    ),
    Option(
        "sasl.oauthbearer.expected.issuer", STRING, None,
        doc="The issuer that a bearer token must name.",
    ),
    Option(
        "sasl.oauthbearer.clock.skew.seconds", INT, 30,
        doc="The maximum difference between the clocks of this broker and of the token's issuer.",
    ),
    Option(
        "sasl.oauthbearer.scope.claim.name", STRING, "scope",
        doc="The claim of a bearer token that holds its scopes.",
    ),
    Option(
        "sasl.oauthbearer.sub.claim.name", STRING, "sub",
        doc="The claim of a bearer token that holds its subject.",
    ),
    Option(
        "sasl.kerberos.service.name", STRING, None, scope=PER_BROKER,
        doc="The first part of the brokers' Kerberos principal: `kafka` in `kafka/host@REALM`.",
    ),
    Option(
        "sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), scope=PER_BROKER,
        doc="The rules that turn the Kerberos principal of a client into a user name, in Kafka's "
            "form (`RULE:...`): the first that applies, or `DEFAULT` for the first part of a "
            "principal of the broker's own realm.",
    ),
    Option(
        "delegation.token.secret.key", PASSWORD, None,
        doc="The secret from which the passwords of delegation tokens are computed; the same on "
            "all brokers. Unset: there are no delegation tokens.",
    ),
    Option(
        "delegation.token.master.key", PASSWORD, None,
        doc="The former name of `delegation.token.secret.key`, which goes first if both are set.",
    ),
    Option(
        "delegation.token.max.lifetime.ms", LONG, 604_800_000, rule=at_least(1),
        doc="How long a delegation token can be renewed, at most.",
    ),
    Option(
        "delegation.token.expiry.time.ms", LONG, 86_400_000, rule=at_least(1),
        doc="How long a delegation token is valid between two renewals.",
    ),
    Option(
        "delegation.token.expiry.check.interval.ms", LONG, 3_600_000, rule=at_least(1),
        doc="How often the controller removes expired delegation tokens.",
    ),
    Option(
        "password.encoder.secret", PASSWORD, None,
        doc="The secret that encrypts dynamically set passwords in the coordination store. "
            "Without it no password can be set dynamically.",
    ),
    Option(
        "password.encoder.old.secret", PASSWORD, None,
        doc="The former `password.encoder.secret`, while it is being changed.",
    ),
    # --------------------------------------------------------------------------- quotas and metrics
    Option(
        "quota.window.num", INT, 11, rule=at_least(1),
        doc="The number of windows over which the rate of a client's quota is averaged.",
    ),
    Option(
        "quota.window.size.seconds", INT, 1, rule=at_least(1),
        doc="The length of one window.",
    ),
    Option(
        "replication.quota.window.num", INT, 11, rule=at_least(1),
        doc="The number of windows over which the rate of throttled replication is averaged.",
    ),
    Option(
        "replication.quota.window.size.seconds", INT, 1, rule=at_least(1),
        doc="The length of one window.",
    ),
    Option(
        "alter.log.dirs.replication.quota.window.num", INT, 11, rule=at_least(1),
        doc="The number of windows over which the rate of moves between log directories is "
            "averaged.",
    ),
    Option(
        "alter.log.dirs.replication.quota.window.size.seconds", INT, 1, rule=at_least(1),
        doc="The length of one window.",
    ),
    Option(
        "controller.quota.window.num", INT, 11, rule=at_least(1),
        doc="The number of windows over which the rate of a client's changes to topics is "
            "averaged.",
    ),
    Option(
        "controller.quota.window.size.seconds", INT, 1, rule=at_least(1),
        doc="The length of one window.",
    ),
    Option(
        "metric.reporters", LIST, (), scope=CLUSTER_WIDE, effect=False,
        doc="In Apache Kafka, classes that receive each metric. Here metrics are at `/metrics`.",
    ),
    Option(
        "metrics.num.samples", INT, 2, rule=at_least(1), effect=False,
        doc="The number of samples from which Apache Kafka computes a metric.",
    ),
    Option(
        "metrics.sample.window.ms", LONG, 30_000, rule=at_least(1), effect=False,
        doc="The length of one sample in Apache Kafka.",
    ),
)
