"""Delegation tokens in a cluster of Apache Kafka's brokers and ours: both kinds share them.

Tokens are created, renewed and expired with Kafka's own tool (Java's AdminClient, which chooses the
broker of a request itself), and Java's client logs in to each broker with them.
"""

import pathlib
import re
from collections.abc import Iterator

import apache
import pytest
from mixed import OurBroker, until
from tool_stories import JavaTools

pytestmark = pytest.mark.jvm

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{PACKAGE}.plain.PlainLoginModule required username="{{0}}" password="{{0}}";'
SCRAM = f"{PACKAGE}.scram.ScramLoginModule required;"
TOKEN = (
    f'{PACKAGE}.scram.ScramLoginModule required username="{{}}" password="{{}}" tokenauth="true";'
)
KINDS = ("theirs", "ours")
OPTIONS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{PACKAGE}.plain.PlainLoginModule required user_a="a" user_b="b";'
    ),
    "listener.name.clients.scram-sha-256.sasl.jaas.config": SCRAM,
    "listener.name.clients.scram-sha-512.sasl.jaas.config": SCRAM,
    "delegation.token.secret.key": "s3cret",
    "inter.broker.protocol.version": "3.9",
}
HMAC = re.compile(r"[A-Za-z0-9+/]{86}==")


class TwoKinds:
    """One broker of each kind, each with a listener with SASL, and Kafka's tools."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.zookeeper = apache.ZooKeeper(home / "zookeeper")
        ports = {kind: apache.free_port() for kind in KINDS}
        self.addresses = {kind: f"{apache.HOST}:{port}" for kind, port in ports.items()}
        self.tools = JavaTools(home)
        self.theirs = apache.Broker(
            home / "theirs",
            self.zookeeper.address,
            broker_id=1,
            properties=OPTIONS,
            listeners=[f"CLIENTS://{self.addresses['theirs']}"],
        )
        inside = apache.free_port()
        self.ours = OurBroker(
            home / "ours",
            self.zookeeper.address,
            2,
            OPTIONS
            | {
                "listeners": f"PLAINTEXT://{apache.HOST}:{inside},"
                f"CLIENTS://{self.addresses['ours']}"
            },
        )
        self.ours.port = inside

    def start(self) -> None:
        self.theirs.wait()
        self.ours.start()

    def close(self) -> None:
        self.tools.close()
        self.ours.end()
        self.theirs.stop()
        self.zookeeper.stop()

    def run(self, at: str, tool: str, mechanism: str, jaas: str, *words: str) -> tuple[str, str]:
        """Kafka's tool at the broker of a kind: exit code and output."""
        config = self.home / "client.properties"
        config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={jaas}\nrequest.timeout.ms=10000\n"
        )
        connection = ["--bootstrap-server", self.addresses[at], "--command-config", str(config)]
        code, out, err = self.tools.run(tool, [*connection, *words])
        return code, out + err

    def tokens(self, at: str, user: str, *words: str) -> tuple[str, str]:
        return self.run(at, "delegation-tokens", "PLAIN", PLAIN.format(user), *words)

    def created(self, at: str) -> tuple[str, str]:
        """The id and the HMAC of a new token of user a, which b may renew."""
        code, out = self.tokens(
            at, "a", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:b"
        )
        assert code == "0", out
        return re.findall(r"with tokenId : (\S+)", out)[0], HMAC.findall(out)[0]

    def accepts(self, at: str, mechanism: str, token: tuple[str, str]) -> bool:
        """Whether Java's client can log in with a token."""
        code, out = self.run(at, "topics", mechanism, TOKEN.format(*token), "--list")
        assert code == "0" or "SaslAuthenticationException" in out, out
        return code == "0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoKinds]:
    made = TwoKinds(tmp_path_factory.mktemp("tokens"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("by", KINDS)
def test_both_kinds_accept_and_refuse_the_same_tokens(
    cluster: TwoKinds, by: str, mechanism: str
) -> None:
    token = cluster.created(by)
    hmac = ("--hmac", token[1])

    for kind in KINDS:
        until(f"{kind} accepts it", lambda kind=kind: cluster.accepts(kind, mechanism, token))
    code, out = cluster.tokens(by, "b", "--renew", *hmac, "--renew-time-period", "60000")
    assert (code, "Completed renew operation" in out) == ("0", True), out
    code, out = cluster.tokens(by, "a", "--describe", "--owner-principal", "User:a")
    assert (code, token[1] in out) == ("0", True), out
    code, out = cluster.tokens(by, "a", "--expire", *hmac, "--expiry-time-period", "-1")
    assert (code, "Completed expire operation" in out) == ("0", True), out
    for kind in KINDS:
        until(f"{kind} refuses it", lambda kind=kind: not cluster.accepts(kind, mechanism, token))


def test_with_a_token_java_creates_no_other(cluster: TwoKinds) -> None:
    token = cluster.created("ours")
    until("ours accepts it", lambda: cluster.accepts("ours", "SCRAM-SHA-256", token))
    code, out = cluster.run(
        "ours", "delegation-tokens", "SCRAM-SHA-256", TOKEN.format(*token),
        "--create", "--max-life-time-period", "-1",
    )  # fmt: skip

    assert code == "1"
    assert "UnsupportedByAuthenticationException" in out
