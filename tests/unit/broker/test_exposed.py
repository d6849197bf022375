"""Addresses in the clear that other hosts reach: which they are, and what a warning says."""

import pytest

from odradek.broker.exposed import exposed
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import is_exposed


def addresses(listeners, *ports, **options):
    properties = {
        "listeners": listeners,
        "advertised.listeners": ",".join(
            f"{each.partition(':')[0]}://h:{number}"
            for number, each in enumerate(listeners.split(","), 1)
        ),
        "odradek.http.port": "-1",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    config = BrokerConfig(
        {**properties, "security.inter.broker.protocol": listeners.partition(":")[0]},
        host_name="h",
    )
    return exposed(config, ports)


@pytest.mark.parametrize(
    ("host", "is_exposed"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("127.3.2.1", False),
     ("", True), ("0.0.0.0", True), ("10.0.0.7", True), ("[::]", True), ("kafka.example", True)],
)  # fmt: skip
def test_only_the_loopback_interface_is_closed_to_other_hosts(host, is_exposed):
    assert bool(addresses(f"PLAINTEXT://{host}:9092")) == is_exposed


@pytest.mark.parametrize(
    ("protocol", "is_exposed"),
    [("PLAINTEXT", True), ("SASL_PLAINTEXT", True), ("SSL", False), ("SASL_SSL", False)],
)
def test_only_listeners_without_tls_are_in_the_clear(protocol, is_exposed):
    assert bool(addresses(f"{protocol}://0.0.0.0:9092")) == is_exposed


@pytest.mark.parametrize(
    ("listener", "expected"),
    [("PLAINTEXT://10.0.0.7:9092", True), ("SASL_PLAINTEXT://[fe80::1]:1", True),
     ("PLAINTEXT://127.0.0.1:9092", False), ("PLAINTEXT://[::1]:1", False),
     ("PLAINTEXT://localhost:1", False), ("SASL_SSL://10.0.0.7:9092", False)],
)  # fmt: skip
def test_odradek_up_warns_by_the_addresses_that_brokers_report(listener, expected):
    assert is_exposed(listener) == expected


def test_a_warning_has_one_line_with_the_bound_port_and_what_to_do():
    (one, other) = map(
        str, addresses("PLAINTEXT://0.0.0.0:0,SASL_PLAINTEXT://[::]:9093", 31000, 9093)
    )
    assert one == (
        "listener PLAINTEXT://0.0.0.0:31000 accepts clients of other hosts without encryption and "
        "without authentication: listen on 127.0.0.1, or use SASL_SSL (odradek up --secure, or "
        "docs/security.md)"
    )
    assert other.startswith("listener SASL_PLAINTEXT://[::]:9093 accepts clients of other hosts ")


def test_the_http_server_is_one_of_them_unless_it_is_off_or_on_loopback():
    loopback = "PLAINTEXT://127.0.0.1:9092"
    (found,) = addresses(loopback, odradek_http_host="10.0.0.7", odradek_http_port="8080")
    assert str(found).startswith("http://10.0.0.7:8080 shows metrics, topics, groups and decisions")
    assert not addresses(loopback, odradek_http_host="10.0.0.7")
    assert not addresses(loopback, odradek_http_port="8080")
