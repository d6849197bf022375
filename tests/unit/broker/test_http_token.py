"""Who has to have the token of the HTTP port, and the file that it is in."""

import os
import stat
import threading

import pytest

from odradek.broker.http_token import headers, is_required, server_token, token_file
from odradek.config.broker import BrokerConfig
from odradek.model.errors import StartupError

AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
SASL = {
    "listeners": "IN://h:1,OUT://h:2",
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_SSL",
    "inter.broker.listener.name": "IN",
}


def configured(tmp_path, **options):
    return BrokerConfig(
        {"broker.id": "1", "log.dirs": f"{tmp_path},{tmp_path}/b", **options}, host_name="h"
    )


def test_a_token_is_required_where_a_listener_would_not_show_all_to_everybody(tmp_path):
    of_both = {**SASL, "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:PLAINTEXT"}

    assert is_required(configured(tmp_path, **AUTHORIZER))
    assert is_required(configured(tmp_path, **SASL))
    assert not is_required(configured(tmp_path))
    assert not is_required(configured(tmp_path, **of_both))
    assert is_required(configured(tmp_path, **of_both, **AUTHORIZER))
    assert server_token(configured(tmp_path)) is None
    assert os.listdir(tmp_path) == []


def test_a_token_is_drawn_once_and_only_its_owner_reads_it(tmp_path):
    config = configured(tmp_path, **AUTHORIZER)
    token = server_token(config)
    file = tmp_path / "http.token"

    assert len(token) >= 40
    assert server_token(config) == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["http.token"]
    assert token_file({"log.dirs": f" {tmp_path} ,/b"}) == str(file)
    assert headers(str(file)) == {"Authorization": f"Bearer {token.decode()}"}
    file.unlink()
    assert server_token(config) != token


def test_brokers_that_draw_a_token_for_one_file_together_have_the_same(tmp_path):
    file = tmp_path / "shared"
    config = configured(tmp_path, **AUTHORIZER, **{"odradek.http.token.file": str(file)})
    found, barrier = [], threading.Barrier(8)

    def draw():
        barrier.wait()
        found.append(server_token(config))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {file.read_bytes().strip()}
    assert len(found) == 8


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (b"0123456789abcdef", 0o644, "every user may read it; chmod 600"),
        (b"0123456789abcdef", 0o602, "every user may read it"),
        (b"0123456789abcde", 0o600, "must be 16 to 512 letters"),
        (b"", 0o600, "must be 16 to 512 letters"),
        (b"0123456789 abcdef", 0o600, "must be 16 to 512 letters"),
        (b"a" * 513, 0o600, "must be 16 to 512 letters"),
    ],
)
def test_a_file_that_cannot_be_used_prevents_the_start(tmp_path, text, mode, why):
    file = tmp_path / "http.token"
    file.write_bytes(text)
    file.chmod(mode)

    with pytest.raises(StartupError, match=why) as error:
        server_token(configured(tmp_path, **AUTHORIZER))
    assert f"odradek.http.token.file={file}" in str(error.value)
    assert "0123456789" not in str(error.value)


def test_a_group_may_read_it(tmp_path):
    file = tmp_path / "http.token"
    file.write_bytes(b"0123456789abcdef\n")
    file.chmod(0o640)

    assert server_token(configured(tmp_path, **AUTHORIZER)) == b"0123456789abcdef"


def test_a_named_file_must_be_writable_and_without_the_usual_one_no_name_is_shown(tmp_path, caplog):
    named = {"odradek.http.token.file": str(tmp_path / "no" / "token")}
    with pytest.raises(StartupError, match="No such file"):
        server_token(configured(tmp_path, **AUTHORIZER, **named))

    config = configured(tmp_path / "no", **AUTHORIZER)
    assert server_token(config) != server_token(config)
    assert "no token for the HTTP port" in caplog.text


@pytest.mark.parametrize(
    "text", [None, b"", b"short", b"with\nline 0123456789abcdef", b"\xff" * 20]
)
def test_a_reader_without_a_token_sends_none(tmp_path, text):
    file = tmp_path / "http.token"
    if text is not None:
        file.write_bytes(text)

    assert headers(str(file)) == {}
    assert headers(None) == {}
    assert token_file({}) is None
