"""The scenario `administer`: a topic from creation to deletion, by a client's admin API.

Create it with a config, see it, read the config, alter it, add partitions, write ten records into
partition 0, look up an offset by time, delete the records before an offset, delete the topic.
The plan has the arguments; a program reports what its client returned, under these keys:

    brokers       ids of the cluster's brokers
    created       the topic's partitions after creation
    config        retention.ms as described
    altered       retention.ms as described after the change
    extended      the topic's partitions after more were asked for
    offset_at     partition 0's offset for the plan's timestamp
    earliest      partition 0's first offset after the deletion of records
    latest        partition 0's end offset
    listed        whether the topic was listed before its deletion
    listed_after  whether it was listed after its deletion

A cluster may take a moment to show a change; programs poll for ten seconds.
"""

import json
import time
from typing import Any, Final

RECORDS: Final = 10
DELETED_BEFORE: Final = 4
ASKED_FOR: Final = 6
EXPECTED: Final[dict[str, Any]] = {
    "created": 2,
    "config": "3600000",
    "altered": "7200000",
    "extended": 4,
    "offset_at": ASKED_FOR,
    "earliest": DELETED_BEFORE,
    "latest": RECORDS,
    "listed": True,
    "listed_after": False,
}


def plan(topic: str) -> str:
    """The JSON that a program is given."""
    first_ms = int(time.time() * 1000) - 3_600_000 // 2
    return json.dumps(
        {
            "topic": topic,
            "partitions": EXPECTED["created"],
            "retention": EXPECTED["config"],
            "altered": EXPECTED["altered"],
            "extended": EXPECTED["extended"],
            "timestamps": [first_ms + n * 1000 for n in range(RECORDS)],
            # Between two records: the first record that is not earlier is the result.
            "lookup": first_ms + ASKED_FOR * 1000 - 1,
            "delete_before": DELETED_BEFORE,
        }
    )
