"""`odradek clone` on a file system that can share blocks between files: XFS in a file.

mkfs.xfs is part of Debian's package `xfsprogs`.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

from odradek.local.copies import clone
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord

MiB = 1 << 20
pytestmark = pytest.mark.skipif(
    os.environ.get("ODRADEK_CLIENTS") != "1"
    or shutil.which("mkfs.xfs") is None
    or os.geteuid() != 0,
    reason="run by `./run clients`, as root with xfsprogs",
)


@pytest.fixture
def xfs(tmp_path):
    """An empty XFS of 400 MiB."""
    image, mounted = tmp_path / "image", tmp_path / "xfs"
    with image.open("wb") as file:
        file.truncate(400 * MiB)
    mounted.mkdir()
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_copy_takes_no_space_until_it_is_written(xfs: pathlib.Path):
    original = ClusterDirectory(xfs / "original")
    segment = original.broker(0) / "data" / "t-0" / "00000000000000000000.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(os.urandom(64 * MiB))
    original.properties_file(0).write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:29092\nlog.dirs={segment.parents[1]}\n"
    )
    original.save(ClusterRecord(up=False, brokers={0: BrokerRecord()}))
    os.sync()
    free = shutil.disk_usage(xfs).free

    copied = clone(original, ClusterDirectory(xfs / "copy"))
    os.sync()

    assert copied.shared_bytes >= 64 * MiB
    assert free - shutil.disk_usage(xfs).free < 10 * MiB
    copy = xfs / "copy" / segment.relative_to(original.path)
    with copy.open("r+b") as file:
        file.write(b"changed")
    assert not segment.read_bytes().startswith(b"changed")
