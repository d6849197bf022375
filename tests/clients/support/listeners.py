"""A broker with a listener for each security protocol, its users and ACLs, and their clients.

The broker is Odradek's, or Apache Kafka 3.9's with the same options: so the tests themselves are
checked. Clients of the PLAINTEXT listener are super users.
"""

import json
import os
import pathlib
import time
from unittest import mock

import apache
import jwt
import raw
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from mixed import OurBroker
from tests.certificates import PASSED, Authority, server_options

PACKAGE = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Listeners by name, with their protocols. The last two have certificates that clients must refuse.
LISTENERS = {
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
}
PASSWORDS = {"alice": "a,=b c", "bob": "bob-secret"}
# What alice and bob may do with topics whose names begin so.
RIGHTS = {
    ("alice", "alice-"): (AclOperation.ALL,),
    ("bob", "write-"): (AclOperation.CREATE, AclOperation.DESCRIBE),
    ("bob", "read-"): (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE),
}


class Listeners:
    """The broker, and what its clients need."""

    def __init__(self, home: pathlib.Path, *, ours: bool) -> None:
        self._home = home
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._authority = Authority(home / "certificates")
        self.ports = {name: apache.free_port() for name in LISTENERS}
        self._zookeeper = None if ours else apache.ZooKeeper(home / "zookeeper")
        options = self._options()
        make = self._of_odradek if self._zookeeper is None else self._of_kafka
        self._broker: OurBroker | apache.Broker = make(options)
        self.address = self._broker.address
        try:
            # librdkafka's AdminClient does not look for a controller again for minutes if the
            # first Metadata responses name none. Kafka's broker answers Metadata before its
            # controller has sent it the cluster.
            raw.wait_for_brokers(self.address, 1, timeout_s=60)
            self._add_users()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process of the broker."""
        return self._broker.pid

    def stop(self) -> None:
        self._broker.stop()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def security(self, listener: str, how: str | None, *, user: str = "alice") -> dict[str, str]:
        """How this user connects (see rounds.py): by a mechanism, "certificate" or None."""
        settings = {"protocol": LISTENERS[listener]}
        if settings["protocol"].endswith("SSL"):
            settings["ca"] = self._authority.file
        if how == "certificate":
            issued = self._authority.issue_for_java(
                f"{user}@example.org", name=user, common_name=user
            )
            settings["certificate"] = issued
        elif how == "OAUTHBEARER":
            settings |= {"mechanism": how, "token": self.token(user)}
        elif how is not None:
            settings |= {"mechanism": how, "user": user, "password": PASSWORDS[user]}
        return settings

    def token(self, user: str, audience: str = "kafka") -> str:
        """The file with a signed token."""
        now_s = int(time.time())
        claims = {"sub": user, "iat": now_s, "exp": now_s + 600, "aud": audience}
        file = self._home / f"{user}-{audience}.jwt"
        file.write_text(jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "k"}))
        return str(file)

    def _addresses(self) -> list[str]:
        return [f"{name}://{apache.HOST}:{port}" for name, port in self.ports.items()]

    def _key_set(self) -> str:
        """The URL of the keys that verify tokens."""
        file = self._home / "jwks.json"
        key = {**json.loads(ECAlgorithm.to_jwk(self._key.public_key())), "kid": "k"}
        file.write_text(json.dumps({"keys": [key]}))
        return file.as_uri()

    def _options(self) -> dict[str, str]:
        """The options that both kinds of brokers have."""
        issue = self._authority.issue_for_java
        keys = {"elsewhere": "elsewhere.example.org", "expired": apache.HOST}
        protocols = [f"{name}:{protocol}" for name, protocol in LISTENERS.items()]
        options = {
            "listener.security.protocol.map": ",".join(["PLAINTEXT:PLAINTEXT", *protocols]),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
            "listener.name.ssl.ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.expected.audience": "kafka",
            **server_options(self._authority, issue(apache.HOST)),
        }
        before = {"elsewhere": {}, "expired": PASSED}
        for listener, host in keys.items():
            store = issue(host, name=listener, **before[listener])
            options[f"listener.name.{listener}.ssl.keystore.location"] = store
            options[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        for listener in ("sasl_plaintext", "sasl_ssl"):
            jaas = f"{PACKAGE}.plain.PlainLoginModule required {users};"
            options[f"listener.name.{listener}.plain.sasl.jaas.config"] = jaas
        return options

    def _of_odradek(self, options: dict[str, str]) -> OurBroker:
        options |= {
            "odradek.store.path": str(self._home / "coordination.db"),
            "min.insync.replicas": "1",
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "sasl.oauthbearer.jwks.endpoint.url": self._key_set(),
        }
        broker = OurBroker(self._home / "broker", None, 0, options, self._addresses())
        broker.start()
        return broker

    def _of_kafka(self, options: dict[str, str]) -> apache.Broker:
        """Kafka's JAAS modules and its handler of tokens have to be named."""
        assert self._zookeeper is not None
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                module = f"{PACKAGE}.scram.ScramLoginModule required;"
                options[f"{prefix}.{mechanism}.sasl.jaas.config"] = module
            bearer = f"{PACKAGE}.oauthbearer.OAuthBearer"
            options |= {
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{bearer}LoginModule required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
                    f"{bearer}ValidatorCallbackHandler"
                ),
                f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self._key_set(),
            }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._key_set()}"
        with mock.patch.dict(os.environ, {"JAVA_TOOL_OPTIONS": allowed}):
            broker = apache.Broker(
                self._home / "broker", self._zookeeper.address,
                properties=options, listeners=self._addresses(), heap="512M",
            )  # fmt: skip
        broker.wait()
        return broker

    def _add_users(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        users = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), word.encode())
            for user, word in PASSWORDS.items()
            for mechanism in mechanisms
        ]
        acls = [
            binding(ResourceType.TOPIC, prefix, ResourcePatternType.PREFIXED, user, operation)
            for (user, prefix), operations in RIGHTS.items()
            for operation in operations
        ]
        # librdkafka's consumers are in a group, and look for its coordinator.
        acls += [
            binding(ResourceType.GROUP, "*", ResourcePatternType.LITERAL, user, AclOperation.READ)
            for user in PASSWORDS
        ]
        futures = [*admin.alter_user_scram_credentials(users).values()]
        futures += admin.create_acls(acls).values()
        for future in futures:
            future.result(60)


def binding(
    kind: ResourceType,
    name: str,
    pattern: ResourcePatternType,
    user: str,
    operation: AclOperation,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
