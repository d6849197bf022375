"""Whether a part of a file is in the page cache."""

import mmap
import os

import pytest

from odradek.log.system.resident import is_resident

PAGE = mmap.PAGESIZE


@pytest.fixture
def fd(tmp_path):
    """A file of eight pages. The third and the fourth were written; the others are a hole."""
    fd = os.open(tmp_path / "0.log", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 8 * PAGE)
    os.pwrite(fd, bytes(2 * PAGE), 2 * PAGE)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("position", "length"),
    [(2 * PAGE, 2 * PAGE), (2 * PAGE, 1), (2 * PAGE + 7, PAGE), (4 * PAGE - 1, 1)],
)
def test_pages_that_were_written_are_there(fd, position, length):
    assert is_resident(fd, position, length)


@pytest.mark.parametrize(
    ("position", "length"),
    [(0, 1), (PAGE, 2 * PAGE), (2 * PAGE - 1, 2), (3 * PAGE, PAGE + 1), (0, 8 * PAGE)],
)
def test_one_page_that_is_not_there_suffices(fd, position, length):
    assert not is_resident(fd, position, length)


def test_what_cannot_be_told_is_not_there(fd):
    read, write = os.pipe()
    assert not is_resident(read, 0, 10)
    os.close(read)
    os.close(write)
    assert not is_resident(write, 0, 10), "it is closed"
    assert not is_resident(fd, 2 * PAGE, 0)
