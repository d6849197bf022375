"""Where a cluster's directory was when its record was written, and the paths in its files.

Properties files contain absolute paths, because a broker may be started from anywhere, by Apache
Kafka too. So a directory that has been moved has paths of its former place until the next start
rewrites them; readers translate them meanwhile.

A rename keeps device and inode. A directory with other ones was copied, if the directory at the
recorded path has a record with the same id, or else moved from another file system or put back from
a backup.
"""

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

RECORD: Final = "cluster.json"
# What may stand before and after a path in a value: separators of lists and quotes.
_BEFORE: Final = r"(?<![^\s,;:=\"'])"
_AFTER: Final = r"(?=[/\s,;:\"']|$)"


class DirectoryPlace(NamedTuple):
    """A directory: its path, and `device:inode`, which no other existing directory has."""

    path: str
    identity: str


def place_of(path: pathlib.Path) -> DirectoryPlace | None:
    """The place of a directory; None if there is none, or it cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return DirectoryPlace(str(path), f"{status.st_dev}:{status.st_ino}")


def original_of(path: pathlib.Path, recorded: DirectoryPlace, cluster: str) -> pathlib.Path | None:
    """The directory of which the one at `path` is a copy; None if it is none.

    `recorded` is where the record says that the directory is, `cluster` the id in the record.
    """
    here, there = place_of(path), place_of(pathlib.Path(recorded.path))
    if here is None or there is None:
        return None
    if here.identity in {recorded.identity, there.identity}:
        return None
    try:
        other = json.loads((pathlib.Path(recorded.path) / RECORD).read_text())
        return pathlib.Path(recorded.path) if other["id"] == cluster else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def former_of(path: pathlib.Path, recorded: DirectoryPlace) -> pathlib.Path | None:
    """The path that the directory's files still contain; None if it is `path` or leads to it."""
    there = place_of(pathlib.Path(recorded.path))
    here = place_of(path)
    if there is not None and here is not None and there.identity == here.identity:
        return None
    return pathlib.Path(recorded.path)


def moved_text(text: str, places: Mapping[pathlib.Path, pathlib.Path]) -> str:
    """A text with other paths in the place of these and of those below them.

    It may be applied twice, also where the new path is below the former one.
    """
    for old, new in places.items():
        below = str(new)[len(str(old)) :] if new.is_relative_to(old) and new != old else ""
        unless_moved = f"(?!{re.escape(below)}{_AFTER})" if below else ""
        whole = _BEFORE + re.escape(str(old)) + unless_moved + _AFTER
        text = re.sub(whole, str(new).replace("\\", r"\\"), text)
    return text


def moved_options(
    options: Mapping[str, str], places: Mapping[pathlib.Path, pathlib.Path]
) -> dict[str, str]:
    """The options with other paths."""
    return {name: moved_text(value, places) for name, value in options.items()}
