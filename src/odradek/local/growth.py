"""More brokers for a cluster on this machine.

A broker that is added gets the options of broker 0, with an id, ports, files and a rack of its own.
"""

import pathlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from odradek.local.directory import ClusterDirectory, LocalError, replace_text
from odradek.local.options import amend, options_of
from odradek.local.place import moved_options
from odradek.local.startable import is_free

_LISTENERS, _ADVERTISED = "listeners", "advertised.listeners"
_HTTP_PORT, _RACK = "odradek.http.port", "broker.rack"
_PORT: Final = re.compile(r":(\d+)(?=\s*(?:,|$))")
_EVERY_INTERFACE: Final = "0.0.0.0"
_PORT_MAX: Final = 65_535


class UnusedPorts:
    """Ports that no process and no broker of the cluster uses."""

    def __init__(self, brokers: Iterable[Mapping[str, str]]) -> None:
        self._taken = {
            int(port)
            for options in brokers
            for name in (_LISTENERS, _HTTP_PORT)
            for port in _PORT.findall(f":{options.get(name, '')}")
        }

    def after(self, port: int) -> int:
        """The next one.

        Raises:
            LocalError: there is none.
        """
        for candidate in range(port + 1, _PORT_MAX + 1):
            if candidate not in self._taken and is_free(_EVERY_INTERFACE, candidate):
                self._taken.add(candidate)
                return candidate
        raise LocalError(f"no port above {port} is free")


# ------------------------------------------------------------------------------- another broker


def write_added(directory: ClusterDirectory, broker_ids: Iterable[int], rack: str | None) -> None:
    """Write the properties files of brokers that are added.

    `rack`: None for the rack with the fewest brokers, if the brokers have racks.

    Raises:
        LocalError: broker 0 has an option that another broker cannot take over.
    """
    there = all_options(directory)
    first = directory.properties_file(0)
    # The file of a secure broker has the brokers' password.
    is_secret = not first.stat().st_mode & 0o077
    for broker_id in broker_ids:
        options = moved_options(
            there[0],
            {
                directory.broker(0): directory.broker(broker_id),
                directory.secrets / "broker-0.pem": directory.secrets / f"broker-{broker_id}.pem",
            },
        )
        shared = set(words_of(options.get("log.dirs"))) & set(words_of(there[0].get("log.dirs")))
        if shared:
            raise LocalError(
                f"{first} has log.dirs={there[0]['log.dirs']}: brokers cannot share "
                f"{min(shared)}, which is not below {directory.broker(0)}"
            )
        ports = UnusedPorts(there.values())
        options |= with_other_ports(options, ports.after, first)
        options["broker.id"] = str(broker_id)
        if rack is not None or _RACK in options:
            options[_RACK] = rack or _smallest_rack(there.values())
        file = directory.properties_file(broker_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, amend(first.read_text(), options), is_secret=is_secret)
        there[broker_id] = options


def all_options(directory: ClusterDirectory) -> dict[int, dict[str, str]]:
    return {broker_id: options_of(directory, broker_id) for broker_id in directory.expect().brokers}


def with_other_ports(
    options: Mapping[str, str], choose: Callable[[int], int], file: pathlib.Path
) -> dict[str, str]:
    """The options that name ports, with those that `choose` gives for the former ones."""
    chosen: dict[str, str] = {"0": "0"}

    def other(match: re.Match[str]) -> str:
        former = match[1]
        if former not in chosen:
            chosen[former] = str(choose(int(former)))
        return f":{chosen[former]}"

    changed = {
        name: _PORT.sub(other, f":{options[name]}")[1:]
        for name in (_LISTENERS, _HTTP_PORT)
        if name in options
    }
    advertised = options.get(_ADVERTISED, "")
    unknown = set(_PORT.findall(advertised)) - set(chosen)
    if unknown:
        raise LocalError(
            f"{file} has {_ADVERTISED}={advertised}: port {min(unknown)} is not one of the "
            f"broker's {_LISTENERS}, so that of another broker is not known; remove the option"
        )
    return changed | ({_ADVERTISED: _PORT.sub(other, advertised)} if advertised else {})


def _smallest_rack(brokers: Iterable[Mapping[str, str]]) -> str:
    counts = Counter(options[_RACK] for options in brokers if _RACK in options)
    return min(counts, key=lambda rack: (counts[rack], rack))


def words_of(value: str | None) -> list[str]:
    return [word.strip() for word in (value or "").split(",") if word.strip()]
