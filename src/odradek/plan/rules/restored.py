"""The doctor's rules on what was put back from a backup: the store, or log directories."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.model.sentence import sentence
from odradek.plan.commands import some
from odradek.plan.facts import ClusterFacts, Finding, Severity

_DAY_MS: Final = 86_400_000


def _ages(facts: ClusterFacts) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """What each broker found when it compared the store with its disks."""
    for broker, report in sorted(facts.reports.items()):
        age = report.get("store_age")
        if age is not None:
            yield broker, age


def _restored(facts: ClusterFacts) -> Iterator[Finding]:
    found = [age["restored"] for _, age in _ages(facts) if age["restored"] is not None]
    newest = max(found, key=lambda each: int(each["at_ms"]), default=None)
    if newest is None or facts.wall_ms - newest["at_ms"] > _DAY_MS:
        return
    yield Finding(
        Severity.WARNING,
        "store-restored",
        "the coordination store",
        f"it was put back to an earlier state, as broker {newest['broker']} found at "
        f"{facts.clock(newest['at_ms'])} ({newest['proof']}). Leader epochs and producer ids were "
        "raised above those given out since, and committed records are kept; topics, partitions, "
        "options, ACLs and users of after the backup are missing",
        sentence(
            "make again what is missing; what there is: ",
            facts.caller.kafka("kafka-topics", "--describe"),
            "; this is reported for a day",
        ),
    )


def _refused_roles(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, age in _ages(facts):
        refused = age["refused_roles"]
        if not refused:
            continue
        first = refused[0]
        yield Finding(
            Severity.CRITICAL,
            "refused-role",
            f"broker {broker}, {some([each['partition'] for each in refused])}",
            f"it refuses to lead or follow: the controller's leader epoch of {first['partition']} "
            f"is {first['leader_epoch']}, and the log has {first['log_epoch']} already, so the "
            "coordination store is older than the log",
            sentence(
                "broker ",
                str(broker),
                " raises the store within a minute; if this stays: ",
                facts.caller.restart(broker),
            ),
            broker,
        )


def _disks_behind(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, age in _ages(facts):
        if age["disks_behind"]:
            yield Finding(
                Severity.WARNING,
                "disks-restored",
                f"broker {broker}",
                f"{_older(age)} before it started (the counter is {age['disks_behind']} behind the "
                "stored one): it copies what they lack, and leads only partitions of which no "
                "other in-sync replica may have more; records of partitions with one replica are "
                "lost",
                sentence(
                    "do not put back log directories: an empty one is copied as well; how far it "
                    "is, and what waits: ",
                    facts.caller.why("broker", str(broker)),
                ),
                broker,
            )


def _older(age: Mapping[str, Any]) -> str:
    directories = age.get("older_directories")
    named = f"its log directories ({', '.join(directories)})" if directories else "its logs"
    return f"{named} were put back to an earlier copy"


RESTORED_RULES: Final = (_restored, _refused_roles, _disks_behind)
