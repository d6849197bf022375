"""A topic's options as they are in the store, where somebody may have edited them.

An option with an invalid value has none: the others hold. But a topic whose `cleanup.policy` or
retention cannot be read keeps its records until that is repaired, because the default could delete
what was to be kept: `cleanup.policy=compcat` must not delete a compacted topic after seven days.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.config.describe import ConfigSource, DescribedOption, SynonymEntry, describe_topic
from odradek.config.option import InvalidConfigError
from odradek.config.topic import TOPIC_OPTIONS

_DECIDE_WHAT_IS_DELETED: Final = frozenset({"cleanup.policy", "retention.bytes", "retention.ms"})
_KEEP_ALL: Final[Mapping[str, str]] = {"retention.bytes": "-1", "retention.ms": "-1"}


class StoredTopicOptions(NamedTuple):
    """The stored options of a topic: those that can be read, and why the others cannot."""

    valid: dict[str, str]
    invalid: dict[str, str]  # the reasons, by name

    @property
    def in_effect(self) -> dict[str, str]:
        """The options that brokers apply: see the module."""
        if _DECIDE_WHAT_IS_DELETED.isdisjoint(self.invalid):
            return self.valid
        return {**self.valid, **_KEEP_ALL}


def read_stored(overrides: Mapping[str, str]) -> StoredTopicOptions:
    """Tell valid options from others. Unknown ones are valid: they may be another version's."""
    found = StoredTopicOptions({}, {})
    for name, text in overrides.items():
        option = TOPIC_OPTIONS.get(name)
        try:
            if option is not None:
                option.parse(text)
        except InvalidConfigError as error:
            found.invalid[name] = str(error)
        else:
            found.valid[name] = text
    return found


def describe_stored(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedOption]:
    """Describe a topic's options. One that cannot be read has the text that is stored."""
    stored = read_stored(overrides)
    entries = describe_topic(broker.topic(stored.valid), broker, names)
    return [
        _with_text(entry, overrides[entry.name]) if entry.name in stored.invalid else entry
        for entry in entries
    ]


def _with_text(entry: DescribedOption, text: str) -> DescribedOption:
    own = SynonymEntry(entry.name, text, ConfigSource.TOPIC)
    return entry._replace(value=text, source=ConfigSource.TOPIC, synonyms=(own, *entry.synonyms))
