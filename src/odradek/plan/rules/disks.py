"""The doctor's rules on disks: log directories and their logs, and the embedded store."""

import math
from collections.abc import Iterator
from typing import Final

from odradek.model.command import flag
from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence, sentence
from odradek.plan.facts import ClusterFacts, Finding, Report, Severity, named
from odradek.plan.quantities import counted

# Texts of errors: of the operating system, and of SQLite.
_FULL: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "database or disk is full",
)
_MISSING: Final = "No such file or directory"
_SET_ASIDE: Final = "set-aside"
_TRUNCATION: Final = "truncation"
_GiB: Final = 1 << 30
_DAY_MS: Final = 86_400_000
_FULL_BYTES: Final = 1 << 20  # with less left, the next write may fail


def repair(reason: str) -> str:
    """What to do about a disk before its broker is restarted, from the text of an error."""
    if any(text in reason for text in _FULL):
        return (
            "make room there (free space, a larger disk or quota, no limit on the size of files), "
            "then "
        )
    if _MISSING in reason:
        return (
            "mount or restore that directory (with an empty one the broker copies everything from "
            "the other replicas), then "
        )
    return ""


def _directories(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, report in sorted(facts.reports.items()):
        for directory in report["log_dirs"]:
            if directory["is_offline"]:
                yield _offline(facts, broker, directory)
                continue
            total, usable = directory["total_bytes"], directory["usable_bytes"]
            if not total:
                continue
            percent = 100 * (total - usable) / total
            if percent >= facts.disk_percent:
                limit = str(math.floor(facts.disk_percent))
                since = facts.since(directory.get("full_since_ms", {}).get(limit))
                yield Finding(
                    Severity.WARNING,
                    "disk",
                    f"broker {broker}, {directory['path']}",
                    f"its disk is {percent:.0f} % full{since and f', above {limit} %{since}'}: "
                    f"{usable / _GiB:.1f} of {total / _GiB:.1f} GiB are left; when it is "
                    "full the directory goes offline",
                    _keep_less(facts, directory),
                    broker,
                )


def _cuts(facts: ClusterFacts) -> Iterator[Finding]:
    found: dict[tuple[int, str, bool], list[Report]] = {}
    for broker, report in sorted(facts.reports.items()):
        for cut in report.get("cuts", ()):
            if facts.wall_ms - cut["at_ms"] <= _DAY_MS and cut["kind"] != _SET_ASIDE:
                found.setdefault((broker, cut["kind"], cut["has_committed"]), []).append(cut)
    for (broker, kind, has_committed), cuts in found.items():
        last = cuts[-1]
        partitions = {TopicPartition(cut["topic"], cut["partition"]) for cut in cuts}
        committed = (
            f"; those below the high watermark {last['high_watermark']} were committed"
            if has_committed
            else "; no record that is known to be committed is among them"
        )
        yield Finding(
            Severity.WARNING if has_committed else Severity.NOTE,
            "cut",
            f"broker {broker}, {named(partitions)}",
            f"its logs lost {sum(cut['bytes'] for cut in cuts)} bytes ({kind})"
            f"{facts.since(cuts[0]['at_ms'])}; at {facts.clock(last['at_ms'])} {last['topic']}-"
            f"{last['partition']} lost {last['span']}: {last['why']}{committed}",
            _after_cut(facts, broker, kind, partitions, last),
        )


def _after_cut(
    facts: ClusterFacts, broker: int, kind: str, partitions: set[TopicPartition], last: Report
) -> Sentence:
    """A follower copies what it lost, unless its leader lost it before (a truncation)."""
    leaders = {p: held.leader for p, held in facts.picture.partitions.items() if p in partitions}
    lost = [p for p, leader in leaders.items() if kind == _TRUNCATION or leader in (broker, -1)]
    see = facts.caller.why("topic", last["topic"], *flag("--partition", last["partition"]))
    if not lost:
        return sentence(
            f"nothing has to be done: broker {broker} copies from the leader what was committed; "
            "see: ",
            see,
        )
    return sentence(
        f"no other replica gives back the lost records of {named(lost)}: if they are needed, "
        "restore the log directory from a backup; see: ",
        see,
    )


def _set_aside(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, report in sorted(facts.reports.items()):
        for directory in report["log_dirs"]:
            count = directory.get("set_aside", 0)
            if not count:
                continue
            why = [
                f"; {cut['path']}{facts.since(cut['at_ms'])}: {cut['why']}"
                for cut in report.get("cuts", ())
                if cut["kind"] == _SET_ASIDE and cut["path"].startswith(f"{directory['path']}/")
            ]
            yield Finding(
                Severity.NOTE,
                "set-aside",
                f"broker {broker}, {directory['path']}",
                f"{counted(count, 'log')} there {'is' if count == 1 else 'are'} set aside (the "
                f"names end in -stray): nothing reads them{''.join(why[-1:])}",
                sentence("delete these directories when their records are not needed any more"),
            )


def _offline(facts: ClusterFacts, broker: int, directory: Report) -> Finding:
    held = [
        partition
        for partition, replicas in facts.picture.partitions.items()
        if broker in replicas.brokers and broker not in replicas.in_sync
    ]
    why = directory["why"]
    return Finding(
        Severity.CRITICAL,
        "log-dir",
        f"broker {broker}, {directory['path']}",
        f"this log directory is offline{facts.since(directory['since_ms'])}"
        f"{f': {why}' if why else ''}; the broker serves from its other directories"
        f"{f', and {named(held)} are out of sync here' if held else ''}",
        sentence(repair(why) or "repair the disk, then ", facts.caller.restart(broker)),
        broker,
    )


def _cleaner(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, report in sorted(facts.reports.items()):
        cleaner = report["cleaner"]
        if not cleaner["is_enabled"] and cleaner["compacted_logs"]:
            yield Finding(
                Severity.WARNING,
                "cleaner",
                f"broker {broker}",
                f"log.cleaner.enable is false{facts.since(report['began_ms'])}: "
                f"{cleaner['compacted_logs']} compacted logs, such as __consumer_offsets, grow "
                "without bound",
                sentence(
                    f"set log.cleaner.enable=true in server.properties of broker {broker}; then ",
                    facts.caller.restart(broker),
                ),
                broker,
            )
        for given_up in cleaner["given_up"]:
            yield Finding(
                Severity.WARNING,
                "cleaner",
                f"broker {broker}, {given_up['partition']}",
                f"the cleaner has stopped cleaning it{facts.since(given_up['since_ms'])}, and it "
                f"grows without bound: {given_up['why']}",
                sentence(
                    facts.caller.restart(broker),
                    " makes it try again; if the log is damaged, stop the broker, move the "
                    "partition's directory away and start it: it copies the log from the leader",
                ),
                broker,
            )


def _stores(facts: ClusterFacts) -> dict[str, Report]:
    """The disks of the embedded stores, by the file: several brokers of a machine share one."""
    reported = (report.get("store", {}).get("disk") for report in facts.reports.values())
    return {disk["path"]: disk for disk in reported if disk is not None}


def _is_full(disk: Report) -> bool:
    return bool(disk["usable_bytes"] < _FULL_BYTES)


def _keep_less(facts: ClusterFacts, directory: Report) -> Sentence:
    """How to make room on the disk of a log directory that is still online."""
    full = [path for path, disk in sorted(_stores(facts).items()) if _is_full(disk)]
    if _is_full(directory):
        # DeleteRecords and retention write to the directory, too: it would go offline.
        return sentence(
            "free space on that disk at once: delete files that are not the cluster's, or make "
            "the disk larger; no command of the cluster makes room there now"
        )
    if full:
        return sentence(
            f"free space where the embedded store is ({', '.join(full)}): until then "
            "kafka-configs, kafka-topics and kafka-reassign-partitions fail, because they write "
            "to it; this does not, and deletes the oldest records: ",
            facts.caller.kafka("kafka-delete-records", *flag("--offset-json-file", "FILE")),
        )
    return sentence(
        "free space, or keep less: ",
        facts.caller.set_option("topics", "TOPIC", "retention.bytes=N"),
        "; or move replicas away with kafka-reassign-partitions",
    )


def _store_disks(facts: ClusterFacts) -> Iterator[Finding]:
    """The disk of the embedded store; where it is that of a log directory, only if it is full."""
    shared = {
        (directory["total_bytes"], directory["usable_bytes"])
        for report in facts.reports.values()
        for directory in report["log_dirs"]
    }
    for path, disk in sorted(_stores(facts).items()):
        total, usable = disk["total_bytes"], disk["usable_bytes"]
        if not total or 100 * (total - usable) / total < facts.disk_percent:
            continue
        if not _is_full(disk) and (total, usable) in shared:
            continue  # reported with the log directory
        yield Finding(
            Severity.CRITICAL if _is_full(disk) else Severity.WARNING,
            "disk",
            f"the embedded store, {path}",
            (
                f"its disk is full, with {usable} bytes left: nothing can be stored, so no leader "
                "is elected, no ISR changes, and no topic, option, ACL or user can be created or "
                "changed"
                if _is_full(disk)
                else f"its disk is {100 * (total - usable) / total:.0f} % full: "
                f"{usable / _GiB:.1f} of {total / _GiB:.1f} GiB are left; when it is full, nothing "
                "can be stored: no leader is elected, and no ISR, topic or option changes"
            ),
            sentence(
                "free space on that disk: delete files that are not the cluster's, or make the "
                "disk larger; the brokers continue by themselves"
            ),
        )


DISK_RULES: Final = (_directories, _store_disks, _cuts, _set_aside, _cleaner)
