"""Key stores that are loaded, checked and replaced; live connections are in tests/cluster."""

import asyncio
import os
import pathlib
import shutil

import pytest
from tests.certificates import Authority, server_options

from odradek.broker.serving.authentication_counts import CountsByListener
from odradek.broker.serving.tls_listeners import TlsListeners, tls_options
from odradek.config.broker import BrokerConfig
from odradek.model.clock import MonotonicMs, WallMs
from odradek.model.errors import StartupError
from odradek.net.connection import Connection
from odradek.obs.log_limit import LINES_MAX, LogLimit
from odradek.security.tls.stores import TlsError

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def listeners():
    return TlsListeners(
        soon=lambda work: work(),
        wall_ms=lambda: WallMs(1_900_000_000_000),
        refused=lambda *_: None,
        counts=CountsByListener(lambda: MonotonicMs(0)),
    )


def config(options, **more):
    static = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "log.dirs": "/tmp/none",
        **options,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return BrokerConfig(static, host_name="localhost")


def subject(listeners):
    return listeners._listeners["SSL"].server.certificate


def replaced(file, other):
    """Put another file in its place, as certificate managers do."""
    new = f"{file}.new"
    shutil.copy(other, new)
    os.replace(new, file)


# ---------------------------------------------------------------------------------- the start


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ssl.keystore.location": "/nowhere.pem"}, "ssl.keystore.location=/nowhere.pem: No such"),
        ({"ssl.keystore.type": "PKCS12"}, "a PEM file: set ssl.keystore.type=PEM"),
        ({"ssl.truststore.location": "/nowhere.pem"}, "ssl.truststore.location=/nowhere.pem: No"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols=TLSv1.1: supported are"),
        ({"ssl.cipher.suites": "TLS_NONE_WITH_NONE"}, "ssl.cipher.suites=TLS_NONE_WITH_NONE"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "'RULE:x' is not a rule"),
    ],
)
def test_what_cannot_be_used_prevents_the_start(listeners, authority, change, text):
    options = server_options(authority, authority.issue(HOST)) | change
    with pytest.raises(StartupError, match="listener SSL: ") as refused:
        listeners.open(config(options))
    assert text in str(refused.value)


def test_brokers_that_would_refuse_each_other_do_not_start(listeners, authority, tmp_path):
    options = server_options(Authority(tmp_path / "other"), authority.issue(HOST))
    with pytest.raises(StartupError, match="brokers with these options cannot connect"):
        listeners.open(config(options))
    # A listener for clients alone may have a trust store for other certificates.
    listeners.open(
        config(
            options,
            listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            inter_broker_listener_name="PLAINTEXT",
        )
    )


def test_an_encrypted_key_needs_its_password(listeners, authority, tmp_path):
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    pem = pathlib.Path(authority.issue(HOST)).read_bytes()
    key = serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    file = tmp_path / "encrypted.pem"
    file.write_bytes(key + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    options = server_options(authority, str(file))
    for password in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(StartupError, match=r"ssl\.key\.password is not its password"):
            listeners.open(config(options | password))
    listeners.open(config(options | {"ssl.key.password": "secret"}))


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_a_pkcs12_key_store(listeners, authority, tmp_path, password):
    pkcs12 = pytest.importorskip("cryptography.hazmat.primitives.serialization.pkcs12")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    x509 = pytest.importorskip("cryptography.x509")
    pem = pathlib.Path(authority.issue(HOST)).read_bytes()
    data = pkcs12.serialize_key_and_certificates(
        b"broker",
        serialization.load_pem_private_key(pem, None),
        x509.load_pem_x509_certificate(pem),
        None,
        serialization.BestAvailableEncryption(b"secret"),
    )
    file = tmp_path / "broker.p12"
    file.write_bytes(data)
    options = server_options(authority, str(file)) | {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": password,
    }
    problems = []
    try:
        listeners.open(config(options))
    except StartupError as error:
        problems.append(str(error))
    assert ("Invalid password" in "".join(problems)) is (password == "wrong")


def test_key_and_certificates_as_text(listeners, authority):
    pem = pathlib.Path(authority.issue(HOST)).read_text()
    key, begin, chain = pem.partition("-----BEGIN CERTIFICATE")
    listeners.open(
        config({
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": begin + chain,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": pathlib.Path(authority.file).read_text(),
        })
    )  # fmt: skip
    assert subject(listeners).alternative_names


def test_client_certificates_of_all_listeners_are_not_requested_for_sasl(authority):
    options = config({}, ssl_client_auth="required")
    assert tls_options(options, "SSL", "SSL").client_auth == "required"
    assert tls_options(options, "SSL", "SASL_SSL").client_auth == "none"
    own = config({"listener.name.ssl.ssl.client.auth": "requested"}, ssl_client_auth="required")
    assert tls_options(own, "SSL", "SASL_SSL").client_auth == "requested"


# -------------------------------------------------------------------------------- replacement


def test_changed_files_are_used_for_new_connections(listeners, authority, caplog):
    key = authority.issue(HOST, common_name="broker", organization_unit_name="unit")
    listeners.open(config(server_options(authority, key)))
    before, context = subject(listeners), listeners.client_context("SSL")
    asyncio.run(listeners.reload())
    assert subject(listeners) is before

    other = authority.issue(
        HOST, "localhost", name="other", common_name="broker", organization_unit_name="unit"
    )
    replaced(key, other)
    asyncio.run(listeners.reload())
    assert subject(listeners) is not before
    assert listeners.client_context("SSL") is not context


@pytest.mark.parametrize("flaw", ["half", "name", "hosts", "authority", "missing"])
def test_changed_files_that_cannot_be_used_change_nothing(
    listeners, authority, tmp_path, caplog, flaw
):
    names = {"common_name": "broker", "organization_unit_name": "unit"}
    key = authority.issue(HOST, "localhost", **names)
    listeners.open(config(server_options(authority, key)))
    before = subject(listeners)
    texts = {
        "half": "no certificate",
        "name": "Keystore DistinguishedName does not match",
        "hosts": "Keystore SubjectAltNames do not match",
        "authority": "brokers with these options cannot connect to each other",
        "missing": "No such file",
    }
    if flaw == "half":
        half = tmp_path / "half.pem"
        half.write_text(pathlib.Path(key).read_text().partition("-----BEGIN CERTIFICATE")[0])
        replaced(key, half)
    elif flaw == "missing":
        pathlib.Path(key).unlink()
    else:
        others = {
            "name": lambda: authority.issue(HOST, "localhost", name="other", common_name="other"),
            "hosts": lambda: authority.issue(HOST, name="other", **names),
            "authority": lambda: Authority(tmp_path / "b").issue(HOST, "localhost", **names),
        }
        replaced(key, others[flaw]())
    for _ in range(2):
        asyncio.run(listeners.reload())
    assert subject(listeners) is before
    (line,) = [record.getMessage() for record in caplog.records]
    assert texts[flaw] in line
    assert "are read again when they change" in line

    replaced(key, authority.issue(HOST, "localhost", name="good", **names))
    asyncio.run(listeners.reload())
    assert subject(listeners) is not before


def test_other_names_are_allowed_by_options(listeners, authority):
    key = authority.issue(HOST, "localhost")
    allowed = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    listeners.open(config(server_options(authority, key) | allowed))
    before = subject(listeners)
    replaced(key, authority.issue(HOST, name="other"))
    asyncio.run(listeners.reload())
    assert subject(listeners) is not before


def test_options_are_checked_before_they_are_used(listeners, authority):
    names = {"common_name": "broker", "organization_unit_name": "unit"}
    options = config(server_options(authority, authority.issue(HOST, **names)))
    listeners.open(options)
    before = subject(listeners)
    prefix = "listener.name.ssl.ssl.keystore.location"

    def with_key(file):
        return options.with_dynamic(dynamic={prefix: file}, dynamic_default={})

    for wrong, text in (
        ("/nowhere", "No such file"),
        (authority.issue("b", name="b"), "not match"),
    ):
        with pytest.raises(TlsError, match=text):
            listeners.check(with_key(wrong))
        listeners.reconfigure(with_key(wrong))
        assert subject(listeners) is before
    good = with_key(authority.issue(HOST, name="c", **names))
    listeners.check(good)
    listeners.reconfigure(good)
    after = subject(listeners)
    assert after is not before
    listeners.reconfigure(good)
    assert subject(listeners) is after


def test_a_trust_store_is_not_added_while_the_broker_runs(listeners, authority):
    options = server_options(authority, authority.issue(HOST))
    trust = {name: options.pop(name) for name in list(options) if "truststore" in name}
    both = {"listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    started = config(options | both, inter_broker_listener_name="PLAINTEXT")
    listeners.open(started)
    dynamic = {f"listener.name.ssl.{name}": value for name, value in trust.items()}
    with pytest.raises(TlsError, match="Cannot add SSL truststore"):
        listeners.check(started.with_dynamic(dynamic=dynamic, dynamic_default={}))


# ---------------------------------------------------------------------------------- handshakes


class Socket(asyncio.Transport):
    """An accepted socket, whose peer has an address."""

    def __init__(self, port):
        super().__init__()
        self.port = port

    def get_extra_info(self, name, default=None):
        return ("192.0.2.1", self.port) if name == "peername" else default

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return False

    def close(self):
        pass


class NoHandler:
    """Reports nothing of a connection."""

    def connected(self, connection):
        pass


def test_a_storm_of_failed_handshakes_does_not_fill_the_log(listeners, authority, caplog):
    listeners.open(config(server_options(authority, authority.issue(HOST))))
    limit = LogLimit(lambda: MonotonicMs(0))  # the filter of a broker's log
    caplog.handler.addFilter(limit)

    async def storm(count):
        for number in range(count):
            connection = Connection(
                NoHandler(),
                listener="SSL",
                frame_bytes_max=1_000,
                in_flight_max=1,
                monotonic_ms=lambda: MonotonicMs(0),
                soon=lambda work: work(),
            )
            protocol = listeners.around(connection)
            protocol.connection_made(Socket(4_000 + number))
            protocol.get_buffer(-1)[:9] = b"plaintext"
            protocol.buffer_updated(9)

    try:
        asyncio.run(storm(500))
        lines = [record.getMessage() for record in caplog.records]
        limit.flush(ends=True)
    finally:
        caplog.handler.removeFilter(limit)
    assert len(lines) == LINES_MAX
    assert lines[0].startswith("closed 192.0.2.1:4000 on listener SSL: the client does not use TLS")
    assert caplog.messages[-1].startswith(f"{500 - LINES_MAX} more lines like this")
    assert listeners.failed["SSL"] == 500
