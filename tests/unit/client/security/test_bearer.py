"""A client requests its bearer token at an https URL, and again after most of its lifetime."""

import asyncio
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from odradek.client.security.bearer import BearerTokens
from odradek.client.settings import Security, SettingsError
from odradek.model.clock import WallMs
from odradek.security.sasl.bearer_login import unsecured_token

trustme = pytest.importorskip("trustme")

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
APP = f'{MODULE} clientId="app" clientSecret="hidden";'
LIFETIME_MS = 100_000


class Provider(HTTPServer):
    """Answers with tokens that name how many were requested before."""

    requests: list[tuple[str, bytes]]
    now_ms = 0

    def answer(self) -> tuple[int, bytes]:
        claims = {
            "unsecuredLoginStringClaim_sub": f"app-{len(self.requests)}",
            "unsecuredLoginLifetimeSeconds": str(LIFETIME_MS / 1000),
        }
        token = unsecured_token(claims, WallMs(self.now_ms))
        return 200, json.dumps({"access_token": token}).encode()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.headers["Authorization"], body))
        status, answer = self.server.answer() if self.path == "/token" else (401, b"hidden")
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """An identity provider that this process trusts."""
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = Provider(("127.0.0.1", 0), Handler)
    server.requests = []
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def settings(provider, path="token", jaas=APP):
    url = f"https://127.0.0.1:{provider.server_port}/{path}"
    return Security(
        protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", jaas_config=jaas, token_url=url
    )


def test_a_token_is_requested_again_after_most_of_its_lifetime(provider):
    tokens = BearerTokens(lambda: WallMs(provider.now_ms))
    security = settings(provider)

    async def story():
        first = await asyncio.gather(*(tokens.token(security) for _ in range(5)))
        provider.now_ms = LIFETIME_MS * 7 // 10
        kept = await tokens.token(security)
        provider.now_ms = LIFETIME_MS * 9 // 10
        return {*first, kept}, await tokens.token(security)

    (first,), second = asyncio.run(story())

    assert first != second
    assert len(provider.requests) == 2
    assert {body for _, body in provider.requests} == {b"grant_type=client_credentials"}


def test_other_credentials_get_another_token(provider):
    tokens = BearerTokens(lambda: WallMs(provider.now_ms))

    async def story():
        await tokens.token(settings(provider))
        await tokens.token(settings(provider, jaas=APP.replace("app", "other")))

    asyncio.run(story())

    assert len({credentials for credentials, _ in provider.requests}) == 2


def test_a_refusal_names_the_url_and_no_secret(provider):
    tokens = BearerTokens(lambda: WallMs(0))

    with pytest.raises(SettingsError, match=r"https://127.0.0.1:\d+/elsewhere: .*401") as error:
        asyncio.run(tokens.token(settings(provider, "elsewhere")))

    assert "hidden" not in str(error.value)


def test_claims_need_no_provider():
    jaas = f'{MODULE} unsecuredLoginStringClaim_sub="alice";'
    security = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", jaas_config=jaas)

    token = asyncio.run(BearerTokens(lambda: WallMs(0)).token(security))

    assert token.endswith(".")


def test_the_login_module_of_another_mechanism_is_refused():
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required password="hidden";'
    security = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", jaas_config=jaas)

    with pytest.raises(SettingsError, match="use OAuthBearerLoginModule") as error:
        asyncio.run(BearerTokens(lambda: WallMs(0)).token(security))

    assert "hidden" not in str(error.value)
