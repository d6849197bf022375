"""What TLS and SCRAM cost on a broker: ours and Apache Kafka's, with the same options and loads.

Both brokers run at the same time and only one has load, so that other work on the machine affects
both. A figure over SASL_SSL is divided by the mean of those over PLAINTEXT before and after it.
"""

import json
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, cast

from rich.console import Console

from kit import ROOT, cases, raw
from kit.targets import Target

sys.path.append(str(ROOT))  # for tests.certificates

from listeners import PASSWORDS, Listeners

USER: Final = "alice"
MECHANISM: Final = "SCRAM-SHA-512"
PARTITIONS: Final = 6
LOGINS, AT_ONCE = 1_000, 50

Figures = dict[str, float]
_NUMBERS: Final = count()


class SecuredBroker:
    """A broker with a PLAINTEXT and a SASL_SSL listener."""

    start_s = 0.0

    def __init__(self, home: pathlib.Path, *, ours: bool) -> None:
        home.mkdir()
        self.name = "odradek" if ours else "kafka"
        self._listeners = Listeners(home, ours=ours)
        self.bootstrap = self._listeners.address
        host = self.bootstrap.rpartition(":")[0]
        self.secured = f"{host}:{self._listeners.ports['SASL_SSL']}"
        settings = self._listeners.security("SASL_SSL", MECHANISM, user=USER)
        self.security = json.dumps(settings)
        self.librdkafka = [
            "security.protocol=SASL_SSL",
            f"sasl.mechanisms={MECHANISM}",
            f"sasl.username={USER}",
            f"sasl.password={PASSWORDS[USER]}",
            f"ssl.ca.location={settings['ca']}",
        ]

    def pids(self) -> list[int]:
        return [self._listeners.pid]

    def end(self) -> None:
        self._listeners.stop()

    def new_topic(self) -> str:
        topic = new_name()
        raw.create_topic(self.bootstrap, topic, PARTITIONS)
        return topic


def new_name() -> str:
    """The name of a topic that does not exist, and that the user may use."""
    return f"{USER}-{next(_NUMBERS)}"


def _target(broker: SecuredBroker) -> Target:
    return cast("Target", broker)  # as much of one as the loads need


# -------------------------------------------------------------------------------------- loads


def produce(broker: SecuredBroker, seconds: float, *, secured: bool) -> Figures:
    records = int(seconds * 1_000_000)
    return _native(broker, "produce", broker.new_topic(), records, secured=secured)


def consume(broker: SecuredBroker, seconds: float, *, secured: bool) -> Figures:
    """Reads a topic that was written over PLAINTEXT."""
    records, topic = int(seconds * 1_000_000), broker.new_topic()
    _native(broker, "produce", topic, records, secured=False)
    return _native(broker, "consume", topic, records, secured=secured)


def _native(
    broker: SecuredBroker, verb: str, topic: str, records: int, *, secured: bool
) -> Figures:
    address = broker.secured if secured else broker.bootstrap
    arguments = [verb, address, topic, str(PARTITIONS), str(records)]
    arguments += [str(cases.RECORD_BYTES), "acks=1"] if verb == "produce" else []
    arguments += broker.librdkafka if secured else []
    figures = cases.measured(_target(broker), records, lambda: cases.run_kit("native", *arguments))
    return {
        "a_second": figures["records_per_s"],
        "cpu_us": figures["broker_cpu_s"] / records * 1e6,
    }


def small(broker: SecuredBroker, seconds: float, *, secured: bool) -> Figures:
    """One record a request, on 16 connections."""
    topic = broker.new_topic() if secured else new_name()
    arguments = [broker.secured if secured else broker.bootstrap, topic, "1", "16", "1"]
    arguments += [str(seconds), *([broker.security] if secured else [])]
    figures = cases.measured(
        _target(broker), None, lambda: cases.run_kit("small_requests", *arguments)
    )
    return {
        "a_second": figures["requests_per_s"],
        "cpu_us": figures["broker_cpu_s"] / figures["answered"] * 1e6,
    }


LOADS: Final[dict[str, Callable[..., Figures]]] = {
    "librdkafka produce": produce,
    "librdkafka consume": consume,
    "small requests": small,
}


# -------------------------------------------------------------------------------------- cases


@contextmanager
def both() -> Iterator[list[SecuredBroker]]:
    """Our broker and Kafka's, warm."""
    brokers: list[SecuredBroker] = []
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        try:
            brokers.append(SecuredBroker(pathlib.Path(folder) / "ours", ours=True))
            brokers.append(SecuredBroker(pathlib.Path(folder) / "kafkas", ours=False))
            yield brokers
        finally:
            for broker in brokers:
                broker.end()


def transport(rounds: int, seconds: float, say: Console) -> list[dict[str, Any]]:
    """The share of each figure that is left with TLS and SCRAM."""
    results = []
    with both() as brokers:
        for load, run in LOADS.items():
            for broker in brokers:  # a Java virtual machine has to compile the case first
                for secured in (False, True):
                    run(broker, seconds, secured=secured)
            found: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
            for number in range(rounds):
                for broker in brokers[:: -1 if number % 2 else 1]:
                    before = run(broker, seconds, secured=False)
                    secured_figures = run(broker, seconds, secured=True)
                    after = run(broker, seconds, secured=False)
                    ratio = {
                        key: value * 2 / (before[key] + after[key])
                        for key, value in secured_figures.items()
                    }
                    found[broker.name].append(ratio)
                    say.print(f"  {load}, {broker.name}: {secured_figures}, {ratio}")
            results.append({"load": load, "ratios": found})
    return results


def logins(rounds: int, seconds: float, say: Console) -> list[dict[str, Any]]:
    """A storm of TLS handshakes and log-ins, and another client on PLAINTEXT beside it."""
    found: dict[str, list[Figures]] = {}
    count_of = max(100, min(LOGINS, int(LOGINS * seconds / 3)))
    with both() as brokers:
        for broker in brokers:
            _storm(broker, count_of)
        for number in range(rounds):
            for broker in brokers[:: -1 if number % 2 else 1]:
                figures = _storm(broker, count_of)
                found.setdefault(broker.name, []).append(figures)
                say.print(f"  {count_of} log-ins, {broker.name}: {figures}")
    return [{"logins": count_of, "at_once": AT_ONCE, "figures": found}]


def _storm(broker: SecuredBroker, count_of: int) -> Figures:
    other: list[Figures] = []
    arguments = [broker.bootstrap, new_name(), "1", "1", "1", "3"]
    witness = threading.Thread(
        target=lambda: other.append(cases.run_kit("small_requests", *arguments))
    )
    quiet = cases.run_kit("small_requests", *arguments[:1], new_name(), *arguments[2:])
    witness.start()
    figures = cases.measured(
        _target(broker),
        None,
        lambda: cases.run_kit(
            "secured", broker.secured, broker.security, str(count_of), str(AT_ONCE)
        ),
    )
    witness.join()
    return {
        "logins_per_s": figures["logins_per_s"],
        "broker_cpu_ms": figures["broker_cpu_s"] / count_of * 1e3,
        "others_p99_ms": other[0]["p99_ms"],
        "others_max_ms": other[0]["max_ms"],
        "quiet_p99_ms": quiet["p99_ms"],
    }
