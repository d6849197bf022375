"""Listeners: `NAME://host:port,...`, their security protocols, and what is advertised.

    listeners              where connections are accepted; an empty host is every interface
    advertised.listeners   what the broker registers, for clients and other brokers

Port 0 means any free port, which is known once the listener is bound.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Final

from odradek.config.option import InvalidConfigError
from odradek.model.cluster import EndPoint

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_END_POINT: Final = r"([^:/]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)"


def parse_protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: the security protocol of each listener name.

    Raises:
        InvalidConfigError: an entry is not NAME:PROTOCOL.
    """
    protocols: dict[str, str] = {}
    for entry in _entries(text):
        name, _, protocol = (word.strip().upper() for word in entry.rpartition(":"))
        if not name:
            raise InvalidConfigError(
                f"listener.security.protocol.map: {entry!r} must have the form NAME:PROTOCOL"
            )
        if protocol not in SECURITY_PROTOCOLS:
            raise InvalidConfigError(
                f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map"
            )
        protocols[name] = protocol
    return protocols


def parse_listeners(text: str, protocols: Mapping[str, str]) -> tuple[EndPoint, ...]:
    """The end points of a list of listeners.

    Raises:
        InvalidConfigError: an entry is not a listener, has no security protocol, or a name occurs
            twice.
    """
    end_points = tuple(_end_point(entry, text, protocols) for entry in _entries(text))
    names = [end_point.listener for end_point in end_points]
    if len(set(names)) < len(names):
        raise InvalidConfigError(f"Each listener must have a different name, listeners: {text}")
    return end_points


def check_ports(end_points: Sequence[EndPoint], text: str) -> None:
    """Refuse two listeners on one port, unless one is bound to IPv4 and the other to IPv6.

    Raises:
        InvalidConfigError: in Kafka's words.
    """
    families: dict[int, list[bool]] = {}
    for end_point in end_points:
        if end_point.port:
            families.setdefault(end_point.port, []).append(":" in end_point.host)
    for speak_ipv6 in families.values():
        if len(speak_ipv6) > 1 and sorted(speak_ipv6) != [False, True]:
            raise InvalidConfigError(f"Each listener must have a different port, listeners: {text}")


def advertised(
    text: str | None,
    bound: Sequence[EndPoint],
    protocols: Mapping[str, str],
    *,
    host_name: str,
) -> tuple[EndPoint, ...]:
    """The advertised end points: `advertised.listeners`, or else the listeners themselves.

    Raises:
        InvalidConfigError: in Kafka's words; an address that other hosts cannot reach, a listener
            that is not in `listeners`, or none at all.
    """
    advertised_points = bound if text is None else parse_listeners(text, protocols)
    if not advertised_points:
        raise InvalidConfigError("There must be at least one broker advertised listener.")
    if any(end_point.host == "0.0.0.0" for end_point in advertised_points):
        raise InvalidConfigError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
            "Use a routable IP address."
        )
    names, bound_names = (
        [e.listener for e in end_points] for end_points in (advertised_points, bound)
    )
    if not set(names) <= set(bound_names):
        raise InvalidConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners. Found {','.join(names)}. The valid options based on the current "
            f"configuration are {','.join(bound_names)}"
        )
    return tuple(
        replace(end_point, host=host_name) if end_point.host in ("", "::") else end_point
        for end_point in advertised_points
    )


def reaches_other_hosts(host: str) -> bool:
    """Whether a listener on this address accepts connections from other hosts.

    A name other than localhost is taken for such an address, because it is not resolved here.
    """
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host.lower() != "localhost"


def is_exposed(listener: str) -> bool:
    """Whether `PROTOCOL://host:port` has no TLS and accepts connections from other hosts."""
    protocol, _, address = listener.partition("://")
    host = address.rpartition(":")[0].strip("[]")
    return protocol in ("PLAINTEXT", "SASL_PLAINTEXT") and reaches_other_hosts(host)


def parse_connection_limits(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: `host:count`, separated by commas.

    Raises:
        InvalidConfigError: an entry of another form.
    """
    limits = {}
    for entry in _entries(text):
        host, _, count = entry.rpartition(":")
        if not host or not count.strip().isdecimal():
            raise InvalidConfigError(
                f"max.connections.per.ip.overrides: {entry!r} must have the form host:count"
            )
        limits[host.strip()] = int(count)
    return limits


def _end_point(entry: str, text: str, protocols: Mapping[str, str]) -> EndPoint:
    match = re.fullmatch(_END_POINT, entry)
    if match is None or int(match[3]) > 65_535:
        raise InvalidConfigError(
            f"Error creating broker listeners from '{text}': "
            f"Unable to parse {entry} to a broker endpoint"
        )
    name = match[1].upper()
    if name not in protocols:
        raise InvalidConfigError(
            f"Error creating broker listeners from '{text}': "
            f"No security protocol defined for listener {name}"
        )
    return EndPoint(
        listener=name, security_protocol=protocols[name], host=match[2], port=int(match[3])
    )


def _entries(text: str) -> list[str]:
    return [entry for entry in (word.strip() for word in text.split(",")) if entry]
