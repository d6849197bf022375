"""Two brokers, our tool for delegation tokens, and clients that log in with tokens."""

import asyncio
import re
import subprocess
import sys

import pytest
from control import wait_for

from odradek.client.admin.topics import describe_cluster
from odradek.client.cluster import Cluster
from odradek.client.security.protocol import AuthenticationError
from odradek.client.settings import ClientSettings

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{PACKAGE}.plain.PlainLoginModule required username="{{0}}" password="{{0}}";'
TOKEN = f'{PACKAGE}.scram.ScramLoginModule required username="{{}}" password="{{}}" tokenauth=true;'
OPTIONS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{PACKAGE}.plain.PlainLoginModule required user_a="a" user_b="b" user_x="x";'
    ),
    "delegation.token.secret.key": "s3cret",
}
HMAC = re.compile(r"[A-Za-z0-9+/]{86}==")


@pytest.fixture
def brokers(make_broker, tmp_path):
    """Two brokers with one store."""
    options = {**OPTIONS, "odradek.store.path": tmp_path / "coordination.db"}
    made = [make_broker({"broker.id": n, **options}, name=f"broker-{n}") for n in (1, 2)]
    for broker in made:
        broker.start()
    yield made
    assert [broker.traces() for broker in made] == [[], []]
    assert "s3cret" not in "".join(broker.output() for broker in made)


class Tool:
    """`kafka-delegation-tokens`, for a user of PLAIN."""

    def __init__(self, home) -> None:
        self.home = home
        self.hmacs: set[str] = set()

    def run(self, broker, user, *words) -> str:
        """What it prints."""
        config = self.home / f"{user}.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.jaas.config={PLAIN.format(user)}\n"
        )
        done = subprocess.run(
            [
                *(sys.executable, "-m", "odradek", "delegation-tokens"),
                *("--bootstrap-server", f"127.0.0.1:{broker.ports[1]}"),
                *("--command-config", str(config), *words),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.hmacs |= set(HMAC.findall(done.stdout))
        return done.stdout + done.stderr

    def create(self, broker, user, *words) -> tuple[str, str]:
        """The id and the HMAC of a new token."""
        printed = self.run(broker, user, "--create", "--max-life-time-period", "-1", *words)
        (token_id,) = re.findall(r"with tokenId : (\S+)", printed)
        (mac,) = HMAC.findall(printed)
        return token_id, mac


def accepts(broker, token_id, mac, mechanism="SCRAM-SHA-256"):
    """Whether a broker accepts a client with this token."""

    async def work():
        settings = ClientSettings.from_properties(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.ports[1]}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": TOKEN.format(token_id, mac),
            },
            client_id="bearer",
            kind="test",
        )
        async with await Cluster.connect(settings, wait_ms=0) as cluster:
            return bool(await describe_cluster(cluster))

    try:
        return asyncio.run(work())
    except AuthenticationError:
        return False


def test_a_token_of_one_broker_is_accepted_by_the_other_until_it_is_expired(brokers, tmp_path):
    tool = Tool(tmp_path)
    one, other = brokers
    token = tool.create(one, "a", "--renewer-principal", "User:b")

    assert accepts(one, *token)
    wait_for(lambda: accepts(other, *token, "SCRAM-SHA-512"), within_s=1)
    renewed = tool.run(other, "b", "--renew", "--hmac", token[1], "--renew-time-period", "60000")
    assert "Completed renew operation. New expiry date : " in renewed
    expired = tool.run(other, "b", "--expire", "--hmac", token[1], "--expiry-time-period", "-1")
    assert "Completed expire operation. New expiry date : " in expired
    assert not accepts(other, *token)
    wait_for(lambda: not accepts(one, *token), within_s=1)
    for broker in brokers:
        assert not any(mac in broker.output() for mac in tool.hmacs)


def test_tokens_outlive_a_restart_of_all_brokers(brokers, tmp_path):
    token = Tool(tmp_path).create(brokers[0], "a")
    for broker in brokers:
        broker.kill()
    for broker in brokers:
        broker.start()

    assert all(accepts(broker, *token) for broker in brokers)


# What Kafka 3.9.2's tool prints on Kafka's broker; ids, HMACs and times differ.
RECORDED = """\
Calling create token operation with renewers :[User:b, User:c] , max-life-time-period :-1
Created delegation token with tokenId : ID

TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS        \
          ISSUEDATE       EXPIRYDATE      MAXDATE        \n
ID HMAC User:a          User:a          [User:b, User:c]          TIME TIME TIME
Calling renew token operation with hmac :HMAC , renew-time-period :60000
Completed renew operation. New expiry date : TIME
Calling renew token operation with hmac :HMAC , renew-time-period :-1
org.apache.kafka.common.errors.DelegationTokenOwnerMismatchException: Specified Principal is not \
valid Owner/Renewer.
Calling describe token operation for owners: [User:b]
Total number of tokens : 1
TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS        \
          ISSUEDATE       EXPIRYDATE      MAXDATE        \n
ID HMAC User:a          User:a          [User:b, User:c]          TIME TIME TIME
Calling create token operation with renewers :[Group:g] , max-life-time-period :-1
org.apache.kafka.common.errors.InvalidPrincipalTypeException: Supplied principalType is not \
supported.
Calling expire token operation with hmac :HMAC , expire-time-period :-1
Completed expire operation. New expiry date : TIME
Calling expire token operation with hmac :HMAC , expire-time-period :-1
org.apache.kafka.common.errors.DelegationTokenNotFoundException: Delegation Token is not found on \
server.
"""


def test_the_tool_prints_what_kafkas_prints(make_broker, tmp_path):
    broker = make_broker({**OPTIONS, "broker.id": 1}).start()
    tool = Tool(tmp_path)
    renewers = [word for name in "bc" for word in ("--renewer-principal", f"User:{name}")]
    lifetime = ["--max-life-time-period", "-1"]
    printed = tool.run(broker, "a", "--create", *lifetime, *renewers)
    (mac,) = HMAC.findall(printed)
    hmac = ["--hmac", mac]
    printed += tool.run(broker, "b", "--renew", *hmac, "--renew-time-period", "60000")
    printed += tool.run(broker, "x", "--renew", *hmac, "--renew-time-period", "-1")
    printed += tool.run(broker, "b", "--describe", "--owner-principal", "User:b")
    printed += tool.run(broker, "a", "--create", *lifetime, "--renewer-principal", "Group:g")
    for _ in range(2):
        printed += tool.run(broker, "a", "--expire", *hmac, "--expiry-time-period", "-1")

    printed = HMAC.sub("HMAC", printed)
    printed = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d\b", "TIME", printed)
    printed = re.sub(r"(tokenId : )\S+|^[\w-]{22}(?= HMAC)", r"\1ID", printed, flags=re.MULTILINE)
    assert printed == RECORDED
