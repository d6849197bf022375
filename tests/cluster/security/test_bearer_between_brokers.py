"""Three brokers that log in to each other by OAUTHBEARER."""

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import jwt
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from control import ThreeBrokers, wait_for
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tests.certificates import Authority

KEY = ec.generate_private_key(ec.SECP256R1())
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SECRET = "hidden-secret"
JAAS = "listener.name.inside.oauthbearer.sasl.jaas.config"
LOG_INS = "kafka_server_socket_server_metrics_successful_authentication_total"
LIFETIME_S = 5
OPTIONS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "listener.name.inside.sasl.enabled.mechanisms": "OAUTHBEARER",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:ANONYMOUS",
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": "3",
}


class Handler(BaseHTTPRequestHandler):
    """The token endpoint of an identity provider."""

    def do_POST(self):
        self.server.requests.append(self.headers["Authorization"])
        now_s = time.time()
        claims = {"sub": "broker", "iat": now_s, "exp": now_s + LIFETIME_S}
        token = jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": "k"})
        self.send_response(200 if self.path == "/token" else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": token}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """An identity provider that the brokers trust, and its keys."""
    authority = Authority(tmp_path / "certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("127.0.0.1"))
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", authority.file)
    key = {**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [key]}))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def signed(provider, tmp_path, path="token"):
    return {
        JAAS: f'{MODULE} clientId="broker" clientSecret="{SECRET}";',
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "jwks.json").as_uri(),
        "sasl.oauthbearer.token.endpoint.url": f"https://127.0.0.1:{provider.server_port}/{path}",
    }


def replicates(cluster):
    cluster.create("t", (1, 2, 3))
    wait_for(lambda: len(cluster.state("t")["isr"]) == 3)


def test_tokens_of_an_identity_provider_are_renewed_before_they_expire(
    make_broker, tmp_path, provider
):
    options = {**OPTIONS, **signed(provider, tmp_path)}
    cluster = ThreeBrokers(make_broker, tmp_path, **options)
    replicates(cluster)
    leader = cluster.brokers[1]
    before = leader.metric(LOG_INS, listener="INSIDE")
    requested = len(provider.requests)

    wait_for(lambda: leader.metric(LOG_INS, listener="INSIDE") >= before + 4)
    wait_for(lambda: len(provider.requests) > requested)
    expired = "kafka_server_socket_server_metrics_expired_connections_killed_count"
    for broker in cluster.brokers.values():
        assert broker.metric(expired, listener="INSIDE") == 0
        assert broker.traces() == []
        assert SECRET not in broker.output()
    assert len(cluster.state("t")["isr"]) == 3


def test_claims_make_tokens_for_tests(make_broker, tmp_path):
    options = {
        **OPTIONS,
        JAAS: f'{MODULE} unsecuredLoginStringClaim_sub="broker";',
        "odradek.sasl.oauthbearer.unsecured.tokens": "true",
    }
    replicates(ThreeBrokers(make_broker, tmp_path, **options))


def test_a_broker_without_a_token_says_why_and_what_to_do(make_broker, tmp_path, provider):
    options = {**OPTIONS, "odradek.store.path": tmp_path / "coordination.db"}
    first, second = (
        make_broker(
            {
                **options,
                **signed(provider, tmp_path, path),
                "broker.id": number,
                "log.dirs": tmp_path / str(number),
            },
            name=f"broker-{number}",
        ).start()
        for number, path in ((1, "token"), (2, "elsewhere"))
    )
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{first.port}"})
    wait_for(lambda: len(admin.list_topics(timeout=10).brokers) == 2)
    topic = NewTopic("t", 1, replica_assignment=[[1, 2]])
    for future in admin.create_topics([topic]).values():
        future.result(30)

    line = wait_for(
        lambda: [each for each in second.output().splitlines() if " cannot log " in each]
    )

    assert "with OAUTHBEARER: sasl.oauthbearer.token.endpoint.url=https://127.0.0.1:" in line[0]
    assert "HTTP Error 401" in line[0]
    assert "until that broker accepts the token of sasl.oauthbearer.token.endpoint.url" in line[0]
    assert SECRET not in second.output()
