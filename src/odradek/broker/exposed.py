"""What a broker shows to other hosts in the clear: listeners without TLS, and its HTTP server."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.broker.http_token import is_required
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import reaches_other_hosts

HTTP: Final = "HTTP"
HTTP_TOKEN: Final = "HTTP with a token"
_IN_THE_CLEAR: Final = {
    "PLAINTEXT": "without encryption and without authentication",
    "SASL_PLAINTEXT": "without encryption: everybody in between reads records and PLAIN passwords",
}


class ExposedAddress(NamedTuple):
    """An address that other hosts reach: its name, its protocol and host:port."""

    name: str
    protocol: str
    address: str

    def __str__(self) -> str:
        """A warning of one line, with what to do."""
        if self.protocol == HTTP:
            return (
                f"http://{self.address} shows metrics, topics, groups and decisions to other hosts "
                "without authentication: set odradek.http.host=127.0.0.1"
            )
        if self.protocol == HTTP_TOKEN:
            return (
                f"http://{self.address} shows metrics to other hosts without authentication, and "
                "everybody in between reads the token for the rest: set "
                "odradek.http.host=127.0.0.1"
            )
        return (
            f"listener {self.name}://{self.address} accepts clients of other hosts "
            f"{_IN_THE_CLEAR[self.protocol]}: listen on 127.0.0.1, or use SASL_SSL (odradek up "
            "--secure, or docs/security.md)"
        )


def exposed(config: BrokerConfig, ports: Sequence[int] = ()) -> list[ExposedAddress]:
    """The addresses in the clear that other hosts reach; `ports` are those of bound listeners."""
    actual = dict(zip(config.listeners, ports, strict=False))
    found = [
        ExposedAddress(
            point.listener,
            point.security_protocol,
            f"{_bracketed(point.host)}:{actual.get(point, point.port)}",
        )
        for point in config.listeners
        if point.security_protocol in _IN_THE_CLEAR and reaches_other_hosts(point.host)
    ]
    host = config.odradek_http_host
    if config.odradek_http_port >= 0 and reaches_other_hosts(host):
        port = f":{config.odradek_http_port}" if config.odradek_http_port else ""
        protocol = HTTP_TOKEN if is_required(config) else HTTP
        found.append(ExposedAddress("http", protocol, _bracketed(host) + port))
    return found


def _bracketed(host: str) -> str:
    host = host or "0.0.0.0"
    return f"[{host}]" if ":" in host else host
