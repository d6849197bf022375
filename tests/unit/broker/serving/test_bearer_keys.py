"""The keys of bearer tokens: read at the start, and again while the broker runs."""

import asyncio
import contextlib
import json
import logging
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

import odradek.sim.world.loop as sim
from odradek.broker.serving.bearer_keys import (
    EARLY_MS,
    BearerKeys,
    KeysError,
    KeySource,
    ThreadReader,
    read_url,
)
from odradek.security.sasl.bearer_tokens import ClaimRules
from odradek.security.sasl.oauthbearer import BearerToken
from odradek.sim.world.clock import SimulatedClock

KEYS = {kid: ec.generate_private_key(ec.SECP256R1()) for kid in ("one", "two")}
REFRESH_MS = 600_000


def jwks(*kids):
    keys = [{**json.loads(ECAlgorithm.to_jwk(KEYS[kid].public_key())), "kid": kid} for kid in kids]
    return json.dumps({"keys": keys})


def token(kid, wall_ms):
    claims = {"sub": "alice", "iat": wall_ms // 1000, "exp": wall_ms // 1000 + 100_000}
    return jwt.encode(claims, KEYS[kid], algorithm="ES256", headers={"kid": kid})


class Source:
    """A key set that changes, or cannot be read."""

    def __init__(self) -> None:
        self.text, self.reads = jwks("one"), []
        loop = asyncio.get_running_loop()
        self.clock = SimulatedClock(loop.time)
        self.keys = BearerKeys(
            KeySource("https://x/jwks", REFRESH_MS, 100, 1000),
            ClaimRules(),
            clock=self.clock,
            loop=loop,
            read=self.read,
        )

    async def read(self, url):
        assert url == "https://x/jwks"
        self.reads.append(self.clock.monotonic_ms())
        await asyncio.sleep(0.01)
        if self.text is None:
            raise KeysError(f"{url}: no route to host")
        return self.text

    def accepts(self, kid):
        return isinstance(self.keys(token(kid, self.clock.wall_ms())), BearerToken)


def play(story):
    async def main():
        source = Source()
        await source.keys.load()
        task = asyncio.create_task(source.keys.run())
        try:
            await story(source)
        finally:
            task.cancel()

    sim.run(main())


def test_keys_are_read_again():
    async def story(source):
        assert source.accepts("one")
        source.text = jwks("two")
        await asyncio.sleep(REFRESH_MS / 1000 - 1)
        assert source.accepts("one")
        await asyncio.sleep(1.1)

        assert source.accepts("two")
        assert not source.accepts("one"), "a key that was withdrawn"

    play(story)


def test_an_unknown_key_causes_a_reading_at_most_once_a_minute():
    async def story(source):
        await asyncio.sleep(EARLY_MS / 1000)
        source.text = jwks("one", "two")
        assert not source.accepts("two")
        await asyncio.sleep(0.1)
        assert source.accepts("two")

        source.text = jwks("one")
        for _ in range(100):
            source.keys(token("one", 0).replace("a", "b"))
            source.keys(token("two", 0))
        forged = jwt.encode({}, KEYS["one"], algorithm="ES256", headers={"kid": "none"})
        for _ in range(100):
            source.keys(forged)
            await asyncio.sleep(0.5)
        assert len(source.reads) == 2
        await asyncio.sleep(20)
        assert len(source.reads) == 3

    play(story)


def test_while_keys_cannot_be_read_the_former_ones_are_used(caplog):
    async def story(source):
        source.text = None
        await asyncio.sleep(REFRESH_MS / 1000 + 5)
        assert source.accepts("one")
        pauses = [b - a for a, b in zip(source.reads[1:], source.reads[2:], strict=False)]
        assert pauses[:5] == [110, 210, 410, 810, 1010]
        source.text = "{}"
        await asyncio.sleep(5)
        assert source.accepts("one")
        source.text = jwks("two")
        await asyncio.sleep(2)
        assert source.accepts("two")

    with caplog.at_level(logging.INFO, logger="odradek"):
        play(story)
    assert [each.split(":")[0] for each in caplog.messages] == [
        "the keys of bearer tokens cannot be read",
        "the keys of bearer tokens were read from https",
    ]


@pytest.mark.parametrize("text", [None, "", "{}", '{"keys": []}'])
def test_a_start_without_keys_fails(text):
    async def main():
        source = Source()
        source.text = text
        assert not source.accepts("one")
        with pytest.raises(KeysError, match="https://x/jwks: "):
            await source.keys.load()
        assert not source.accepts("one")

    sim.run(main())


# ------------------------------------------------------------------------------------ reading


def test_a_file(tmp_path):
    file = tmp_path / "the keys.json"
    file.write_text(jwks("one"))
    assert read_url(file.as_uri()) == jwks("one")
    with pytest.raises(KeysError, match="No such file"):
        read_url((tmp_path / "none").as_uri())
    file.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(KeysError, match="more than 1048576 bytes"):
        read_url(file.as_uri())


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/jwks", "ftp://x/y", "jwks.json", "data:,x", "HTTP://x", ""]
)
def test_other_urls_are_refused(url):
    with pytest.raises(KeysError, match="must be a file: or https: URL"):
        read_url(url)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/jwks":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(jwks("one").encode())
        else:
            self.send_response(302)
            self.send_header("Location", "/jwks")
            self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def https(tmp_path, monkeypatch):
    """The address of an https server that this process trusts."""
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_https_url(https):
    assert read_url(f"{https}/jwks") == jwks("one")


def test_reading_in_a_thread(https):
    async def story():
        read = ThreadReader()
        assert await read(f"{https}/jwks") == jwks("one")
        with pytest.raises(KeysError, match="302"):
            await read(f"{https}/elsewhere")

    asyncio.run(story())


def test_a_server_that_does_not_answer_delays_neither_the_broker_nor_its_end():
    answers = threading.Event()

    def slowly(url):
        assert threading.current_thread().daemon
        answers.wait()
        return "keys"

    async def story():
        read = ThreadReader(slowly, total_s=0.05)
        with pytest.raises(KeysError, match=r"u: not read within 0.05 s"):
            await read("u")
        with pytest.raises(KeysError, match="u: the former attempt has not ended"):
            await read("u")
        answers.set()
        read_again = None
        while read_again is None:
            with contextlib.suppress(KeysError):
                read_again = await read("u")
            await asyncio.sleep(0)
        assert read_again == "keys"

    asyncio.run(story())


def test_a_redirection_is_not_followed(https):
    with pytest.raises(KeysError, match="302"):
        read_url(f"{https}/elsewhere")


def test_a_certificate_that_is_not_trusted(https, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(KeysError, match="CERTIFICATE_VERIFY_FAILED"):
        read_url(f"{https}/jwks")
