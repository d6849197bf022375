"""CVE-2024-12254: writelines of asyncio's transports ignored flow control."""

import pathlib

import odradek


def test_nothing_calls_it():
    (folder,) = odradek.__path__
    calling = [
        str(path)
        for path in pathlib.Path(folder).rglob("*.py")
        if ".writelines(" in path.read_text(encoding="utf-8")
    ]

    assert calling == []
