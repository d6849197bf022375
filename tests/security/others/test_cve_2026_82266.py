"""CVE-2026-82266 (Redpanda): the admin API was open on all interfaces, with all rights."""

import pytest
from tests.unit.broker.test_http import asked, get

from odradek.broker.http import json_response
from odradek.config.broker import BrokerConfig


def test_the_http_server_is_on_the_loopback_interface_unless_told_otherwise():
    assert BrokerConfig({"broker.id": "1"}, host_name="h").odradek_http_host == "127.0.0.1"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_changes_nothing(method):
    assert asked(get("/", method=method)).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:80"])
def test_a_web_page_cannot_read_it_through_a_name_of_its_own(host):
    answer = asked(get("/", host=host), {"/": lambda query: json_response({"secret": 1})})

    assert answer.startswith(b"HTTP/1.1 421 ")
    assert b"secret" not in answer


def test_no_other_origin_may_read_it():
    assert b"access-control" not in asked(get("/")).lower()
