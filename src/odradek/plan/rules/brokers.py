"""The doctor's rules on single brokers: processes, addresses, options, refused clients."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from odradek.model.command import command
from odradek.model.sentence import Sentence, Words, joined, sentence
from odradek.plan.commands import brokers, some
from odradek.plan.denied import lacking
from odradek.plan.facts import (
    CERTIFICATE_MS,
    RECENT_MS,
    Address,
    ClusterFacts,
    Finding,
    Severity,
    named,
)
from odradek.plan.quantities import counted, times
from odradek.plan.rules.disks import DISK_RULES, repair

_DAY_MS: Final = 86_400_000
_FLAPPING: Final = 3  # changes of the controller within RECENT_MS
_FLAPPING_MS: Final = 600_000
_TRANSIENT_MIN: Final = 10  # refusals of a client that an election may explain


def _crashed(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, reason in sorted(facts.caller.ends.items()):
        yield Finding(
            Severity.CRITICAL,
            "crashed",
            f"broker {broker}",
            f"its process has ended by itself{facts.since(facts.went_ms(broker))}: {reason}",
            sentence(repair(reason), facts.caller.bring_back(broker)),
        )


def _unreachable(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, why in sorted(facts.unreachable.items()):
        address = facts.addresses.get(broker)
        if address is not None and address.problem is not None:
            continue  # its own finding
        at = facts.answers_at.get(broker)
        if at is not None and address is not None and facts.caller.local.get(broker) != "paused":
            yield _advertised(facts, broker, at, f"{address.host}:{address.port}", why)
            continue
        state = facts.caller.process(broker)
        yield Finding(
            Severity.CRITICAL,
            "unreachable",
            f"broker {broker}",
            (
                f"it does not run: {state}"
                if facts.caller.local.get(broker) in ("stopped", "killed", "starting")
                else f"it is registered and does not answer"
                f"{facts.since(facts.silent_ms(broker))}: {state or why}"
            ),
            facts.caller.bring_back(broker)
            if broker in facts.caller.local
            else sentence(
                "see on its host whether its process runs and is not paused, and whether this host "
                f"reaches {_reached(address)}; advertised.listeners of broker {broker} has to "
                "name an address that clients reach"
            ),
        )


def _reached(address: Address | None) -> str:
    return "it" if address is None else f"{address.host}:{address.port}"


def _advertised(facts: ClusterFacts, broker: int, at: str, advertised: str, why: str) -> Finding:
    return Finding(
        Severity.CRITICAL,
        "advertised",
        f"broker {broker}",
        f"it answers at {at}, but advertised.listeners directs clients to {advertised}"
        f"{_started(facts, broker)}, where nothing answers ({why}): clients and other brokers "
        "cannot reach it",
        sentence(
            f"set advertised.listeners of broker {broker} in its server.properties to an address "
            f"that clients reach, such as {at}; then ",
            facts.caller.restart(broker),
        ),
    )


def _started(facts: ClusterFacts, broker: int) -> str:
    """Since when its read-only options are in effect: since it started."""
    report = facts.reports.get(broker)
    return facts.since(report["began_ms"] if report is not None else None)


def _addresses(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, address in sorted(facts.addresses.items()):
        if address.problem is None:
            continue
        at = facts.answers_at.get(broker)
        yield Finding(
            Severity.CRITICAL,
            "unresolvable",
            f"broker {broker}",
            f"advertised.listeners directs clients to {address.host}:{address.port}"
            f"{_started(facts, broker)}, and that name cannot be resolved here: {address.problem}"
            + (f"; the broker itself answers at {at}" if at else ""),
            sentence(
                f"set advertised.listeners of broker {broker} in its server.properties to a name "
                "that clients resolve; then ",
                facts.caller.restart(broker),
            ),
        )


# ---------------------------------------------------------------------------- options and clients


def _options(facts: ClusterFacts) -> Iterator[Finding]:
    found: dict[str, list[int]] = {}
    similar: dict[str, str] = {}
    for broker, report in sorted(facts.reports.items()):
        for option in report["unknown_options"]:
            found.setdefault(option["name"], []).append(broker)
            similar[option["name"]] = "".join(option["similar"])
    for name, ids in found.items():
        meant = f"; {similar[name]} may be meant" if similar[name] else ""
        began_ms = min(facts.reports[broker]["began_ms"] for broker in ids)
        yield Finding(
            Severity.WARNING,
            "unknown-option",
            name,
            f"this option is set on {brokers(ids)}{facts.since(began_ms)}, and there is no such "
            f"option: it has no effect{meant}",
            sentence(
                f"correct or remove it in server.properties of {brokers(ids)}; then ",
                joined(facts.caller.restart(broker) for broker in ids),
            ),
        )


def _exposed(facts: ClusterFacts) -> Iterator[Finding]:
    found: dict[str, dict[int, str]] = {}
    for broker, report in sorted(facts.reports.items()):
        for each in report.get("exposed", ()):
            found.setdefault(each["protocol"], {})[broker] = f"{each['name']}://{each['address']}"
    for protocol, addresses in found.items():
        began_ms = min(facts.reports[broker]["began_ms"] for broker in addresses)
        yield Finding(
            Severity.WARNING,
            "in-the-clear",
            f"{brokers(addresses)}, {protocol}",
            f"other hosts reach {some(list(addresses.values()))}{facts.since(began_ms)}: "
            f"{_EXPOSED[protocol]}",
            _close(facts, addresses, protocol),
        )


def _close(facts: ClusterFacts, ids: Iterable[int], protocol: str) -> Sentence:
    if protocol not in (_HTTP, _HTTP_TOKEN) and all(broker in facts.caller.local for broker in ids):
        options = facts.caller.options
        down = command("odradek", "down", *options)
        secure = command("odradek", "up", "--secure", *options)
        local = command("odradek", "up", "--host", "127.0.0.1", *options)
        local_only = sentence("or, for clients of this host only: ", down)
        return joined((down, secure, local_only, local))
    how = (
        "odradek.http.host=127.0.0.1"
        if protocol in (_HTTP, _HTTP_TOKEN)
        else "listeners to 127.0.0.1, or to SASL_SSL with keys and users (docs/security.md),"
    )
    restarts = joined(facts.caller.restart(broker) for broker in ids)
    return sentence(f"set {how} in server.properties; then ", restarts)


_HTTP: Final = "HTTP"
_HTTP_TOKEN: Final = "HTTP with a token"
_EXPOSED: Final = {
    "PLAINTEXT": (
        "nothing is encrypted, and every client may do what User:ANONYMOUS may, without a password"
    ),
    "SASL_PLAINTEXT": "records, and passwords of PLAIN, cross the network in the clear",
    _HTTP: "metrics, topics, groups and decisions are shown without authentication",
    _HTTP_TOKEN: (
        "metrics are shown without authentication, and who reads the network reads the token for "
        "the rest"
    ),
}


def _certificates(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, expires_ms in sorted(facts.certificates.items()):
        days = (expires_ms - facts.wall_ms) // _DAY_MS
        if expires_ms - facts.wall_ms < CERTIFICATE_MS:
            yield Finding(
                Severity.WARNING,
                "certificate",
                f"broker {broker}",
                f"its TLS certificate expires in {counted(days, 'day')}, at "
                f"{facts.clock(expires_ms)}: from then on no client and no other "
                "broker can connect to it",
                sentence(facts.caller.restart(broker), ", which renews it")
                if broker in facts.caller.local
                else sentence(
                    f"replace the certificate in ssl.keystore.location of broker {broker}"
                ),
            )


def _refusals(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, report in sorted(facts.reports.items()):
        for refusal in report["refusals"]:
            what, count = refusal["what"], refusal["count"]
            advice = _advice(what)
            lacks = lacking(refusal, facts.caller)
            if lacks is not None:
                what = lacks.what
                advice = sentence("if it is to be allowed: ", lacks.advice)
            if facts.wall_ms - refusal["last_ms"] > RECENT_MS:
                continue
            if what.startswith(_BY_A_BROKER):
                yield _refused_by_a_broker(facts, broker, refusal)
                continue
            if advice is None:
                continue
            if "NOT_LEADER" in what and count < _TRANSIENT_MIN:
                continue  # one election causes a few of them
            software = refusal["software"]
            known = "" if software.startswith("unknown") else f", {software}"
            yield Finding(
                Severity.WARNING,
                "refused",
                f"client {refusal['client_id'] or '(without client.id)'}",
                f"broker {broker} refused it {times(count)}{facts.since(refusal['first_ms'])}, the "
                f"last time at {facts.clock(refusal['last_ms'])} (from {refusal['host']}{known}): "
                f"{what}",
                advice,
                broker,
            )


# What a broker records that another one refuses.
_BY_A_BROKER: Final = "the broker at "


def _refused_by_a_broker(facts: ClusterFacts, broker: int, refusal: Mapping[str, Any]) -> Finding:
    return Finding(
        Severity.CRITICAL,
        "log-in",
        f"broker {broker}",
        f"{refusal['what']}: {times(refusal['count'])}{facts.since(refusal['first_ms'])}, the last "
        f"time at {facts.clock(refusal['last_ms'])}; nothing is replicated from there",
        sentence(
            "make user name and password the same in the sasl.jaas.config of the brokers' "
            "listener, here and there; for SCRAM, set the password with kafka-configs"
        ),
        broker,
    )


def _advice(what: str) -> Sentence | None:
    """What to do about a refusal; None if another rule reports it or the client is not at fault."""
    for text, advice in _ADVICE:
        if text in what:
            return sentence(advice)
    return None


_ADVICE: Final[tuple[tuple[str, Words], ...]] = (
    (
        "authentication failed: mechanism",
        (
            "set sasl.mechanism of the client to one that is enabled, or add it to "
            "sasl.enabled.mechanisms of the listener"
        ),
    ),
    (
        "authentication failed: there is no user",
        sentence(
            "correct the user name of the client, or make the user: ",
            command(
                *("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "NAME"),
                *("--add-config", "SCRAM-SHA-512=[password=...]"),
            ),
            " (for its mechanism)",
        ),
    ),
    (
        "authentication failed",
        "correct user name and password, or the token, in the client's sasl.jaas.config",
    ),
    (
        "has expired",
        (
            "use a client that authenticates again (KIP-368), or raise connections.max.reauth.ms "
            "of the listener"
        ),
    ),
    (
        "before authentication",
        "the listener needs SASL: set security.protocol of the client to that of the listener",
    ),
    (
        "the client uses TLS",
        (
            "set security.protocol of the client to that of the listener, or connect to a listener "
            "with TLS"
        ),
    ),
    ("; served are", "use a version of the client that supports one of these versions"),
    ("no such API here", "the client uses an API of a newer Kafka: do not use that feature"),
    ("is not served", "the client uses an API that is not served here"),
    (
        "MESSAGE_TOO_LARGE",
        (
            "raise max.message.bytes of the topic with kafka-configs, or lower batch.size and "
            "max.request.size of the producer"
        ),
    ),
    ("RECORD_LIST_TOO_LARGE", "raise segment.bytes of the topic, or lower batch.size"),
    (
        "frame of",
        (
            "lower max.request.size of the client, or raise socket.request.max.bytes; an absurd "
            "number is another protocol (TLS, HTTP) on this port"
        ),
    ),
    (
        "NOT_LEADER_OR_FOLLOWER",
        (
            "its metadata is out of date: it does not refresh it, or is connected to another "
            "broker than its metadata has (see advertised.listeners); restart the client"
        ),
    ),
    (
        "INVALID_RECORD",
        "the topic does not accept its records: a key is missing, or a timestamp is out of bounds",
    ),
    ("CORRUPT_MESSAGE", "the client, or something in between, damages batches"),
)


def _controllers(facts: ClusterFacts) -> Iterator[Finding]:
    began = [
        (e["at_ms"], e.get("by"))
        for e in facts.journal
        if e["verdict"] is None
        and e["says"].startswith("controller epoch ")
        and e["says"].endswith(" begins")
        and e["at_ms"] > facts.wall_ms - _FLAPPING_MS
    ]
    if len(began) <= _FLAPPING:
        return
    counts = Counter(by for _, by in began if by is not None)
    yield Finding(
        Severity.WARNING,
        "controller",
        f"{len(began)} controllers",
        f"the controller changed {len(began) - 1} times since {facts.clock(began[0][0])}, last at "
        f"{facts.clock(began[-1][0])} "
        f"({', '.join(f'broker {b} {times(n)}' for b, n in sorted(counts.items()))}): each change "
        "delays elections and new topics; brokers lose their sessions or are restarted",
        sentence(
            "see in the logs of these brokers why: sessions that end "
            "(zookeeper.session.timeout.ms, a host without CPU or with long pauses), or a "
            "supervisor that restarts them"
        ),
    )


def _emptied(facts: ClusterFacts) -> Iterator[Finding]:
    latest = {
        e["broker"]: e
        for e in facts.journal
        if e["verdict"] == "BROKER_EMPTY" and e["at_ms"] > facts.wall_ms - RECENT_MS
    }
    for broker, entry in sorted(latest.items()):
        missing = [
            partition
            for partition, held in facts.picture.partitions.items()
            if broker in held.brokers and broker not in held.in_sync
        ]
        copied = (
            f"{named(missing)} are still copied from their leaders"
            if missing
            else "all of them are copied from their leaders again"
        )
        yield Finding(
            Severity.WARNING,
            "emptied",
            f"broker {broker}",
            f"it restarted with empty log directories{facts.since(entry['at_ms'])} "
            f"({entry['detail']}): {copied}; records that no other replica had are lost",
            sentence(
                "check that the right disk is mounted at log.dirs of that broker; if it was "
                "replaced on purpose, do nothing: its replicas join the ISRs by themselves"
            ),
        )


BROKER_RULES: Final = (
    _crashed,
    _unreachable,
    _addresses,
    *DISK_RULES,
    _options,
    _exposed,
    _certificates,
    _refusals,
    _controllers,
    _emptied,
)
