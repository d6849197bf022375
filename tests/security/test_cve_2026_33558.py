"""CVE-2026-33558: passwords and tokens were in the log at DEBUG, in errors and in answers.

Those for ZooKeeper, too: CVE-2026-24308, its client logged them.

A broker with every mechanism, at the finest level of every logger. What it logs, answers, measures
and reports has none of the secrets, in none of their forms.
"""

import asyncio
import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tests.unit.broker.live import play
from tests.unit.broker.test_server import refused

from odradek.broker.reports import report_routes
from odradek.broker.viewer import Operator
from odradek.client.security.protocol import AuthenticationError, authenticate
from odradek.client.settings import Security
from odradek.obs.exposition import text_pieces
from odradek.security.sasl.bearer_tokens import ClaimRules, JwksTokens
from odradek.security.sasl.scram import derive
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

PORT = 9093
PACKAGE = "org.apache.kafka.common.security"
PASSWORDS = {name: f"{name}-pa55word" for name in ("plain", "broker", "scram", "wrong", "dynamic")}
SALT = b"the-salt-of-alice"
SALTED = hashlib.pbkdf2_hmac("sha256", PASSWORDS["scram"].encode(), SALT, 4096)
CREDENTIAL = derive("SCRAM-SHA-256", SALT, SALTED, 4096)
KEY = ec.generate_private_key(ec.SECP256R1())
OPTIONS = {
    "listeners": "PLAINTEXT://b0:9092,SECURE://b0:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.secure.plain.sasl.jaas.config": (
        f'{PACKAGE}.plain.PlainLoginModule required username="broker" '
        f'password="{PASSWORDS["broker"]}" user_alice="{PASSWORDS["plain"]}";'
    ),
    "ssl.keystore.password": PASSWORDS["dynamic"],
    "delegation.token.secret.key": PASSWORDS["dynamic"],
    "zookeeper.ssl.keystore.password": PASSWORDS["dynamic"],
}


def forms(secret: bytes):
    """The forms in which a text may have a secret."""
    yield base64.b64encode(secret).decode()
    yield secret.hex()
    yield repr(secret)[2:-1]


SECRETS = [
    form
    for secret in (
        *(password.encode() for password in PASSWORDS.values()),
        SALTED,
        CREDENTIAL.stored_key,
        CREDENTIAL.server_key,
        hmac.digest(SALTED, b"Client Key", "sha256"),
    )
    for form in forms(secret)
]


def must_not_have_secrets(text):
    assert [secret for secret in SECRETS if secret in text] == []


async def log_in(live, mechanism, user, password):
    """Log in. Returns the error; None if the broker accepts."""
    peer = live.peer(PORT)
    await peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1)

    async def send(token):
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code:
            raise AuthenticationError(answer.error_message)
        return bytes(answer.auth_bytes)

    jaas = f'x.PlainLoginModule required username="{user}" password="{password}";'
    security = Security(protocol="SASL_PLAINTEXT", mechanism=mechanism, jaas_config=jaas)
    try:
        await authenticate(security, send)
    except AuthenticationError as error:
        return str(error)
    return None


async def everything(live):
    """Log in rightly and wrongly, and set passwords. Returns what was answered."""
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=SALT, salted_password=SALTED
    )
    for iterations in (4096, 1):
        upsertion.iterations = iterations
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        yield await live.peer().ask(request)
    await asyncio.sleep(0.5)
    yield await live.peer().ask(DescribeUserScramCredentialsRequest(users=None))
    for mechanism, password in (("PLAIN", "plain"), ("SCRAM-SHA-256", "scram")):
        assert await log_in(live, mechanism, "alice", PASSWORDS[password]) is None
        yield await log_in(live, mechanism, "alice", PASSWORDS["wrong"])
        yield await log_in(live, mechanism, "nobody", PASSWORDS["wrong"])
    for name in ("0", ""):
        resource = DescribeConfigsResource(resource_type=4, resource_name=name)
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=True
        )
        yield await live.peer().ask(request)
        config = AlterableConfig(
            name="listener.name.secure.ssl.keystore.password",
            config_operation=0,
            value=PASSWORDS["dynamic"],
        )
        change = AlterConfigsResource(resource_type=4, resource_name=name, configs=[config])
        yield await live.peer().ask(IncrementalAlterConfigsRequest(resources=[change]))


def test_nothing_that_a_broker_logs_answers_measures_or_reports_has_a_secret(caplog):
    async def story(live):
        answers = [repr(answer) async for answer in everything(live)]
        must_not_have_secrets("\n".join(answers))
        must_not_have_secrets(b"".join(text_pieces(live.broker.metrics)).decode())
        for name, route in report_routes(live.broker, Operator()).items():
            must_not_have_secrets(f"{name}: {route({})!r}")
        must_not_have_secrets(json.dumps(live.broker.incidents.as_json()))
        must_not_have_secrets(repr(live.broker.config))

    with caplog.at_level(1):
        play(story, **OPTIONS)
    assert "authentication failed: wrong user name or password for 'alice'" in caplog.text
    must_not_have_secrets(caplog.text)


@pytest.mark.parametrize(
    "text",
    [
        f'x.PlainLoginModule required user_a="{PASSWORDS["plain"]}"',
        f'x.PlainLoginModule required user_a="{PASSWORDS["plain"]};',
        f'x.PlainLoginModule user_a="{PASSWORDS["plain"]}";',
        f'x.Other required user_a="{PASSWORDS["plain"]}";',
        f'x.PlainLoginModule required "{PASSWORDS["plain"]}" user_a="x";',
    ],
)
def test_nor_has_the_reason_why_a_broker_does_not_start(text, caplog):
    async def story(live):
        name = "listener.name.secure.plain.sasl.jaas.config"
        must_not_have_secrets(await refused(live, **{name: text}))

    with caplog.at_level(1):
        play(story, **OPTIONS)
    must_not_have_secrets(caplog.text)


def test_nor_has_the_reason_why_a_token_is_refused():
    key = {**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}
    keys = JwksTokens(json.dumps({"keys": [key]}), ClaimRules(), lambda: 1_700_000_000_000)
    claims = {"sub": "alice", "iat": 1, "exp": 2, "jti": PASSWORDS["plain"]}
    token = jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": "k"})
    for given in (token, token[:-4] + "AAAA", token.replace(".", "", 1), PASSWORDS["plain"]):
        refusal = repr(keys(given))
        must_not_have_secrets(refusal)
        assert [part for part in token.split(".") if part in refusal] == []
