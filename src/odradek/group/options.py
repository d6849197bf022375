"""The broker options of the group coordinator."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class GroupOptions:
    """The same for all groups of a broker; defaults are Kafka's."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    size_max: int = 0x7FFFFFFF
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_chars_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
