"""The doctor's rules on what somebody has written into the coordination store."""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.model.command import command, flag
from odradek.model.sentence import sentence
from odradek.plan.facts import ClusterFacts, Finding, Severity


def _invalid_options(facts: ClusterFacts) -> Iterator[Finding]:
    found: dict[str, Mapping[str, str]] = {}
    for _, report in sorted(facts.reports.items()):
        found |= report.get("invalid_topic_options", {})
    for topic, options in sorted(found.items()):
        yield Finding(
            Severity.WARNING,
            "invalid-option",
            topic,
            f"{'; '.join(options.values())}: somebody stored that, and it has no effect. While "
            "cleanup.policy or a retention cannot be read, all records of the topic are kept",
            sentence(
                "delete it, or set a valid value: ",
                command(
                    "kafka-configs", "--alter", *flag("--topic", topic),
                    "--delete-config", ",".join(options),
                ),
            ),
        )  # fmt: skip


def _unreadable(facts: ClusterFacts) -> Iterator[Finding]:
    for name, problem in facts.unreadable_topics.items():
        yield Finding(
            Severity.WARNING,
            "unreadable-topic",
            name,
            f"its znode cannot be read, so no broker serves it: {problem}",
            sentence(
                "write its znode as it was, or delete the topic: ",
                command("kafka-topics", "--delete", *flag("--topic", name)),
            ),
        )


STORE_RULES: Final = (_invalid_options, _unreadable)
