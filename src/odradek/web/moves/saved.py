"""The file of a plan, written before its first batch.

It is a reassignment JSON of the replicas as they were, which `kafka-reassign-partitions` executes
to roll back, with one more entry for this page: the target, the pace, and what the plan is for. The
newest file of a cluster is the plan that the page continues or rolls back; its name ends in
`.done.json` when the plan was executed to its end.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.model.clock import WallMs
from odradek.plan.execute import MovePace
from odradek.plan.movement import Assignment, MovementPlan, PlanError
from odradek.plan.reassignment import parse_reassignment, reassignment

_OWN: Final = "odradek"  # the entry that Kafka's tool ignores
_DONE: Final = ".done.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan that was begun; `before` and `after` have only the partitions that change."""

    path: str
    is_done: bool
    title: str
    begun_ms: int
    pace: MovePace
    before: Assignment
    after: Assignment
    sizes: Mapping[str, int]  # by the partition's name


def moves_directory(directory: pathlib.Path | None) -> pathlib.Path:
    """Where the files are: with a cluster on this machine beside it, else in the user's state."""
    if directory is not None:
        return directory / "moves"
    base = os.environ.get("XDG_STATE_HOME") or str(pathlib.Path.home() / ".local" / "state")
    return pathlib.Path(base) / "odradek" / "moves"


def save_plan(
    folder: pathlib.Path, cluster_id: str | None, title: str, plan: MovementPlan, pace: MovePace,
    begun_ms: WallMs,
) -> pathlib.Path:  # fmt: skip
    """Write the file of a plan, to the disk before this returns.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    changed = plan.changed
    tree = reassignment(plan.before, changed)
    tree[_OWN] = {
        "title": title,
        "begun_ms": begun_ms,
        "pace": pace._asdict(),
        "after": reassignment(plan.after, changed)["partitions"],
        "sizes": {str(partition): plan.sizes.get(partition, 0) for partition in changed},
    }
    path = folder / f"{_prefix(cluster_id)}{begun_ms:015}.json"
    _write(path, tree)
    return path


def save_pace(path: pathlib.Path, pace: MovePace) -> None:
    """Write another pace into the file of a plan: with it the plan is continued.

    Raises:
        OSError, ValueError, KeyError: it cannot be read or written.
    """
    tree = json.loads(path.read_text())
    tree[_OWN]["pace"] = pace._asdict()
    _write(path, tree)


def _write(path: pathlib.Path, tree: object) -> None:
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(tree, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def mark_done(path: pathlib.Path) -> None:
    """Record in the name of its file that a plan was executed to its end."""
    path.rename(path.with_name(path.name.removesuffix(".json") + _DONE))


def load_newest(folder: pathlib.Path, cluster_id: str | None) -> SavedPlan | None:
    """The plan that was begun last; None if there is none.

    Raises:
        PlanError: its file cannot be read.
    """
    paths = sorted(folder.glob(f"{_prefix(cluster_id)}*.json"))
    if not paths:
        return None
    try:
        tree: Any = json.loads(paths[-1].read_text())
        own = tree[_OWN]
        return SavedPlan(
            path=str(paths[-1]),
            is_done=paths[-1].name.endswith(_DONE),
            title=str(own["title"]),
            begun_ms=int(own["begun_ms"]),
            pace=MovePace(**own["pace"]),
            before=parse_reassignment(tree),
            after=parse_reassignment({"partitions": own["after"]}),
            sizes=dict(own["sizes"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{paths[-1]} cannot be read: {error!r}") from None


def newest_path(folder: pathlib.Path, cluster_id: str | None) -> str | None:
    """The path of the newest file, without reading it."""
    return max(map(str, folder.glob(f"{_prefix(cluster_id)}*.json")), default=None)


def _prefix(cluster_id: str | None) -> str:
    name = "".join(c if c.isalnum() or c in "_-" else "_" for c in cluster_id or "cluster")
    return f"{name}."
