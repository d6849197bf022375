"""The scenario `transact`: the transactions of one producer, as an application uses it.

    1  writes `first` to `out`, commits
    2  writes `lost` to `out`, has them sent, aborts
    3  writes `records` to `in` outside of transactions (the program itself, by another producer);
       reads them as a group, writes each with `+` appended to `out`, adds the offsets to the
       transaction, commits
    4  the same again with `lost` and offset 0, and aborts
    5  begins, writes `fenced`; a second producer of the same id begins, and the first tries to
       commit

The plan names topics, group, id and values; a program reports what it saw, under these keys:

    committed     values in `out`, read with isolation.level=read_committed
    all           how many records a read_uncommitted reader sees there, those of 5 left out
    position      the group's committed offset in `in`, partition 0
    fenced        whether the first producer was refused at the end
"""

import json
from typing import Any, Final

FIRST: Final = ["a", "b", "c"]
LOST: Final = ["x", "y"]
RECORDS: Final = [f"r{n}" for n in range(5)]
EXPECTED: Final[dict[str, Any]] = {
    "committed": [*FIRST, *(f"{value}+" for value in RECORDS)],
    "all": len(FIRST) + 2 * len(LOST) + len(RECORDS),
    "position": len(RECORDS),
    "fenced": True,
}


def plan(name: str) -> str:
    """The JSON that a program is given; all names begin with this."""
    return json.dumps(
        {
            "in": f"{name}-in",
            "out": f"{name}-out",
            "group": f"{name}-group",
            "id": f"{name}-id",
            "first": FIRST,
            "lost": LOST,
            "records": RECORDS,
            "fenced": "fenced",
        }
    )
