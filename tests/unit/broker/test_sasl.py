"""SASL listeners of a whole broker: who logs in, by the options and by the credentials stored."""

import asyncio
import base64
import hashlib
import json
import logging
import re

import pytest
from tests.unit.broker.live import play
from tests.unit.broker.test_server import refused

from odradek.client.security.protocol import AuthenticationError, authenticate
from odradek.client.settings import Security
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    encode_config,
    encode_config_change,
)
from odradek.coord.memory import MemoryStore
from odradek.coord.store import Create, SetData
from odradek.model.errors import ErrorCode
from odradek.net.unauthenticated import CONNECTION_BYTES
from odradek.security.sasl.scram import derive
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

PORT = 9093
PACKAGE = "org.apache.kafka.common.security"
PLAIN_USERS = f'{PACKAGE}.plain.PlainLoginModule required user_alice="alice-secret";'
OPTIONS = {
    "listeners": "PLAINTEXT://b0:9092,SECURE://b0:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.secure.plain.sasl.jaas.config": PLAIN_USERS,
}
KEY = "listener.name.secure.gssapi.sasl.jaas.config"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


async def log_in(live, mechanism, user="alice", password="alice-secret", *, owner=None):
    """Log in as our client does, with the delegation token of an owner, if it is named.

    Raises:
        AuthenticationError: the broker refuses.
    """
    peer = live.peer(PORT)
    shake = await peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert shake.error_code == 0

    async def send(token):
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code:
            raise AuthenticationError(answer.error_message)
        return bytes(answer.auth_bytes)

    jaas = (
        f'{PACKAGE}.scram.ScramLoginModule required username="{user}" password="{password}"'
        f"{' tokenauth=true' if owner else ''};"
    )
    security = Security(protocol="SASL_PLAINTEXT", mechanism=mechanism, jaas_config=jaas)
    await authenticate(security, send)
    assert peer.connection.session.principal == f"User:{owner or user}"
    assert (await peer.ask(DescribeClusterRequest(), 1)).error_code == 0
    return peer


async def is_refused(live, mechanism, user="alice", password="alice-secret"):
    with pytest.raises(AuthenticationError, match="invalid credentials with SASL mechanism"):
        await log_in(live, mechanism, user, password)
    return True


def credential(mechanism, password):
    algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b"salt", 4096)
    return derive(mechanism, b"salt", salted, 4096)


async def set_password(live, mechanism, password, user="alice"):
    algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b"pepper", 4096)
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=NUMBERS[mechanism],
        iterations=4096,
        salt=b"pepper",
        salted_password=salted,
    )
    await altered(live, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def altered(live, request):
    response = await live.peer().ask(request)
    assert [result.error_code for result in response.results] == [0]
    await asyncio.sleep(0.5)  # simulated: the notification


async def stored(live, user, options, *, is_new=True):
    """What Apache Kafka's `kafka-configs --zookeeper` writes."""
    entity = ConfigEntity((("users", user),))
    store = MemoryStore(live.tree)
    await store.open()
    if is_new:
        await store.create(entity.path, encode_config(options), make_parents=True)
    else:
        await store.multi([SetData(entity.path, encode_config(options))])
    notice = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
    await store.multi([Create(notice, encode_config_change(entity), sequential=True)])
    await store.close()
    await asyncio.sleep(0.5)


async def challenge_for(live, user):
    """Salt and iterations that the broker tells a client which logs in by SCRAM."""
    peer = live.peer(PORT)
    await peer.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    first = SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=abc".encode())
    return bytes((await peer.ask(first, 2)).auth_bytes).partition(b",")[2]


def test_an_unknown_user_gets_the_same_salt_after_a_restart():
    async def story(live):
        challenge = await challenge_for(live, "nobody")
        assert re.fullmatch(rb"s=[^,]+,i=4096", challenge)
        assert await challenge_for(live, "nobody2") != challenge

        await live.restart()
        assert await challenge_for(live, "nobody") == challenge

    play(story, **OPTIONS)


def test_users_of_plain_are_options_of_the_listener():
    async def story(live):
        await log_in(live, "PLAIN")
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            await log_in(live, "PLAIN", password="wrong")
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            await log_in(live, "PLAIN", user="bob")

    play(story, **OPTIONS)


@pytest.mark.parametrize("mechanism", NUMBERS)
def test_a_scram_user_is_made_changed_and_deleted(mechanism):
    async def story(live):
        assert await is_refused(live, mechanism)
        await set_password(live, mechanism, "alice-secret")
        before = await log_in(live, mechanism)
        assert await is_refused(live, mechanism, password="wrong")

        await set_password(live, mechanism, "another")
        assert await is_refused(live, mechanism)
        await log_in(live, mechanism, password="another")
        assert (await before.ask(DescribeClusterRequest(), 1)).error_code == 0

        deletion = ScramCredentialDeletion(name="alice", mechanism=NUMBERS[mechanism])
        await altered(live, AlterUserScramCredentialsRequest(deletions=[deletion]))
        assert await is_refused(live, mechanism, password="another")

    play(story, **OPTIONS)


@pytest.mark.parametrize("mechanism", sorted(NUMBERS))
def test_an_unknown_user_gets_the_same_salt_also_after_a_restart(mechanism):
    salts = []

    async def first(live):
        peer = live.peer(PORT)
        await peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=nobody,r=abc"), 2)
        salts.append(re.search(rb",s=([^,]+)", bytes(answer.auth_bytes))[1])

    async def story(live):
        await first(live)
        await first(live)
        await live.restart()
        await first(live)

    play(story, **OPTIONS)
    assert salts == [salts[0]] * 3


def test_a_user_has_a_credential_for_each_mechanism():
    async def story(live):
        await set_password(live, "SCRAM-SHA-512", "alice-secret")

        await log_in(live, "SCRAM-SHA-512")
        assert await is_refused(live, "SCRAM-SHA-256")

    play(story, **OPTIONS)


def test_users_that_kafkas_tool_stores_log_in_also_after_a_restart():
    async def story(live):
        text = credential("SCRAM-SHA-256", "x").text()
        await stored(live, "mr. x/y", {"SCRAM-SHA-256": text, "producer_byte_rate": "1000000"})
        await log_in(live, "SCRAM-SHA-256", "mr. x/y", "x")

        await live.restart()
        await log_in(live, "SCRAM-SHA-256", "mr. x/y", "x")
        await stored(live, "mr. x/y", {"producer_byte_rate": "1000000"}, is_new=False)
        assert await is_refused(live, "SCRAM-SHA-256", "mr. x/y", "x")

    play(story, **OPTIONS)


def test_a_stored_credential_that_is_invalid_refuses_its_user_alone(caplog):
    async def story(live):
        await stored(live, "bob", {"SCRAM-SHA-256": "salt=c2VjcmV0,iterations=4096"})
        await set_password(live, "SCRAM-SHA-256", "alice-secret")

        assert await is_refused(live, "SCRAM-SHA-256", "bob")
        await log_in(live, "SCRAM-SHA-256")

    play(story, **OPTIONS)
    assert "user 'bob' cannot log in: the SCRAM-SHA-256 credential is not salt" in caplog.text
    assert "c2VjcmV0" not in caplog.text


def test_the_other_listener_stays_open_and_its_frames_go_to_the_server():
    async def story(live):
        peer = live.peer()
        assert (await peer.ask(DescribeClusterRequest(), 1)).error_code == 0
        assert peer.connection._handler is live.broker.server
        shake = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert shake.error_code == ErrorCode.ILLEGAL_SASL_STATE

    play(story, **OPTIONS)


def test_a_session_has_the_lifetime_of_its_listener_and_mechanism():
    options = {
        "connections.max.reauth.ms": "50000",
        "listener.name.secure.connections.max.reauth.ms": "40000",
        "listener.name.secure.plain.connections.max.reauth.ms": "3000",
    }

    async def story(live):
        peer = live.peer(PORT)
        await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")
        assert (await peer.ask(token, 2)).session_lifetime_ms == 3000
        await set_password(live, "SCRAM-SHA-256", "alice-secret")
        peer = await log_in(live, "SCRAM-SHA-256")
        assert peer.connection in live.broker.authentication._states

    play(story, **OPTIONS, **options)


@pytest.mark.parametrize("signature", ["", "c2ln"])
def test_tokens_without_a_signature_by_the_option_that_says_so(signature, caplog):
    def part(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    async def story(live):
        peer = live.peer(PORT)
        await peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        now_s = live.clock.wall_ms() // 1000
        claims = part({"sub": "anybody", "iat": now_s, "exp": now_s + 100})
        token = f"{part({'alg': 'none'})}.{claims}.{signature}"
        message = f"n,,\1auth=Bearer {token}\1\1".encode()
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert bool(answer.auth_bytes) is bool(signature), "an error of RFC 7628"
        name = "ANONYMOUS" if signature else "anybody"
        assert peer.connection.session.principal == f"User:{name}"

    options = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "odradek.sasl.oauthbearer.unsecured.tokens": "true",
    }
    play(story, **{**OPTIONS, **options})
    assert "listener SECURE accepts bearer tokens without a signature" in caplog.text


def test_log_ins_are_metrics_by_listener():
    async def story(live):
        await log_in(live, "PLAIN")
        assert await is_refused(live, "SCRAM-SHA-256")
        await live.until(lambda: len(live.broker.server.unauthenticated) == 0)
        live.peer(PORT)
        metrics = live.broker.metrics

        def of(name):
            return dict(metrics.read_gauges[f"kafka_server_socket_server_metrics_{name}"]())

        assert of("successful_authentication_total") == {("SECURE",): 1}
        assert of("failed_authentication_total") == {("SECURE",): 1}
        assert of("failed_authentication_rate").keys() == {("SECURE",)}
        assert 0 < of("successful_authentication_rate")["SECURE",] <= 1
        assert of("reauthentication_latency_max") == {}, "there was none"
        assert metrics.read_gauge["odradek_connections_unauthenticated"]() == 1
        assert metrics.read_gauge["odradek_connections_unauthenticated_bytes"]() == CONNECTION_BYTES

    play(story, **OPTIONS)


# -------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            "listener.name.secure.gssapi.sasl.jaas.config is not set; GSSAPI has the broker's key",
        ),
        (
            {"sasl.enabled.mechanisms": "GSSAPI", KEY: f'{KRB5} keyTab="k" principal="kafka@R";'},
            f"{KEY} needs keyTab, and a principal of the form kafka/host@REALM",
        ),
        (
            {
                "sasl.enabled.mechanisms": "GSSAPI",
                KEY: f'{KRB5} keyTab="k" principal="kafka/h@R";',
                "sasl.kerberos.service.name": "other",
            },
            "kafka/h@R: sasl.kerberos.service.name is other",
        ),
        (
            {
                "sasl.enabled.mechanisms": "GSSAPI",
                KEY: f'{KRB5} keyTab="k" principal="kafka/h@R";',
                "sasl.kerberos.principal.to.local.rules": "RULE:x",
            },
            "listener SECURE: GSSAPI: 'RULE:x': must be DEFAULT or RULE",
        ),
        (
            {"listener.name.secure.sasl.enabled.mechanisms": "PLAIN,PLAYN"},
            (
                "listener SECURE: sasl.enabled.mechanisms=PLAIN,PLAYN: PLAYN is not available "
                "here; set listener.name.secure.sasl.enabled.mechanisms to some of PLAIN"
            ),
        ),
        ({"sasl.enabled.mechanisms": ""}, "it names no mechanism"),
        (
            {"listener.name.secure.plain.sasl.jaas.config": f"{PACKAGE}.X required a"},
            "listener.name.secure.plain.sasl.jaas.config: sasl.jaas.config: after 0 options",
        ),
        (
            {
                "listener.name.secure.plain.sasl.jaas.config": (
                    f'{PACKAGE}.scram.ScramLoginModule required user_a="hidden";'
                )
            },
            "ScramLoginModule cannot be used for PLAIN: use PlainLoginModule",
        ),
        (
            {
                "listener.name.secure.plain.sasl.jaas.config": (
                    f'{PACKAGE}.plain.PlainLoginModule required username="a" password="hidden";'
                )
            },
            'has no user: add user_NAME="PASSWORD" for each',
        ),
        (
            {"listener.name.secure.plain.sasl.server.callback.handler.class": "com.example.X"},
            "com.example.X: classes of Java are not loaded here",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_prevents_the_start_and_says_what_to_do(options, reason, caplog):
    async def story(live):
        found = await refused(live, **options)
        assert reason in found
        assert "hidden" not in found

    with caplog.at_level(logging.DEBUG):
        play(story, **OPTIONS)
    assert "hidden" not in caplog.text


BETWEEN_BROKERS = {
    "inter.broker.listener.name": "SECURE",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
            (
                "sasl.mechanism.inter.broker.protocol=GSSAPI: brokers connect to each other over "
                "listener SECURE, whose mechanisms are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512: set it"
            ),
        ),
        ({}, "plain.sasl.jaas.config has no username and no password: brokers log in to each"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "scram-sha-256.sasl.jaas.config is not set; brokers log in to each other by its user",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_brokers_need_a_user_name_and_a_password_for_each_other(options, reason):
    async def story(live):
        assert reason in await refused(live, **{**BETWEEN_BROKERS, **options})

    play(story, **OPTIONS)


BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
BEARER_OPTION = "listener.name.secure.oauthbearer.sasl.jaas.config"
BETWEEN_BY_BEARER = {
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "odradek.sasl.oauthbearer.unsecured.tokens": "true",
}
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLAIM = "unsecuredLoginStringClaim_sub"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, f"{BEARER_OPTION} is not set; brokers log in to each other by the token of"),
        ({BEARER_OPTION: f"{BEARER};"}, f"{BEARER_OPTION}: the login module has no option {CLAIM}"),
        (
            {BEARER_OPTION: f'{BEARER} clientId="a";', TOKEN_URL: "https://idp/token"},
            "the login module has no option clientSecret; set it, or",
        ),
        (
            {BEARER_OPTION: f'{BEARER} {CLAIM}="a";', TOKEN_URL: "file:///token"},
            f"{TOKEN_URL} and claims in {BEARER_OPTION} are set: remove one",
        ),
        (
            {BEARER_OPTION: f"{BEARER};", TOKEN_URL: "ldap://idp/token"},
            f"{TOKEN_URL}=ldap://idp/token: must be an https: or a file: URL",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_brokers_need_a_bearer_token_for_each_other(options, reason):
    async def story(live):
        assert reason in await refused(live, **{**BETWEEN_BROKERS, **BETWEEN_BY_BEARER, **options})

    play(story, **OPTIONS)


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        (f'{KRB5} keyTab="k" principal="kafka/h@R";', "sasl.kerberos.service.name is not set"),
        (f'{KRB5} principal="kafka/h@R" serviceName="kafka";', f"{KEY} needs useKeyTab=true"),
    ],
)
def test_brokers_need_a_key_for_each_other(jaas, reason):
    async def story(live):
        options = {
            **BETWEEN_BROKERS,
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.enabled.mechanisms": "GSSAPI",
            KEY: jaas,
        }
        assert reason in await refused(live, **options)

    play(story, **OPTIONS)


@pytest.mark.parametrize(("user", "is_warned"), [("broker", False), ("someone", True)])
def test_the_principal_of_brokers_needs_cluster_action(user, is_warned, caplog):
    async def story(live):
        jaas = PLAIN_USERS.replace("required", f'required username="{user}" password="x"')
        options = {
            **BETWEEN_BROKERS,
            "listener.name.secure.plain.sasl.jaas.config": jaas,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker",
        }
        await live.broker.stop()
        live.broker = live.make(**options)
        await live.start()

    play(story, **OPTIONS)
    assert ("the brokers of the cluster are User:someone to each other" in caplog.text) is is_warned


def test_a_class_that_makes_principals_prevents_the_start():
    async def story(live):
        found = await refused(live, **{"principal.builder.class": "com.example.Builder"})
        assert "principal.builder.class=com.example.Builder: classes of Java are not" in found

    play(story)


def test_plain_needs_its_users():
    async def story(live):
        found = await refused(live, **{"sasl.enabled.mechanisms": "PLAIN"})
        assert (
            "listener.name.secure.plain.sasl.jaas.config is not set; PLAIN has its users" in found
        )
        assert 'user_alice="..."' in found

    options = {name: value for name, value in OPTIONS.items() if "jaas" not in name}
    play(story, **{**options, "sasl.enabled.mechanisms": "SCRAM-SHA-256"})
