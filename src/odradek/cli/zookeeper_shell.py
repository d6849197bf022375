"""`zookeeper-shell`: the coordination store looked at, and changed, node by node.

    zookeeper-shell 127.0.0.1:2181 ls /brokers/ids
    zookeeper-shell odradek-data get /controller

The first argument says where the store is: ZooKeeper's `host:port[/chroot]`, or the directory of
a cluster of `odradek up`, whose embedded store is spoken to likewise. Without a command they are
read from stdin, one a line, until `quit`. Output follows ZooKeeper 3.8's shell without a terminal.
"""

import asyncio
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from odradek.cli.store import opened_store
from odradek.coord.store import (
    ANY_VERSION,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
    Store,
    StoreError,
)
from odradek.model.errors import OdradekError

_USAGE: Final = (
    "USAGE: zookeeper-shell zookeeper_host:port[/path] | directory "
    "[-zk-tls-config-file file] [args...]"
)
_HELP: Final = """\
\tcreate [-s] [-e] path [data]
\tdelete [-v version] path
\tdeleteall path
\tget [-s] path
\tgetAllChildrenNumber path
\thelp
\tls [-s] [-R] path
\tquit
\tset [-s] [-v version] path data
\tstat path"""


def main(arguments: Sequence[str]) -> int:
    """Run the tool. Returns the exit code."""
    words = list(arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if words else 1
    where = words.pop(0)
    if words[:1] == ["-zk-tls-config-file"]:
        print("-zk-tls-config-file: this shell speaks to ZooKeeper in the clear", file=sys.stderr)
        return 1
    return asyncio.run(_session(where, words))


async def _session(where: str, words: Sequence[str]) -> int:
    print(f"Connecting to {where}", flush=True)
    async with opened_store(where) as store:
        shell = Shell(store)
        if words:
            _event("SyncConnected")
            return 0 if await shell.run(list(words)) else 1
        print("Welcome to ZooKeeper!\nJLine support is disabled")
        _event("SyncConnected")
        while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            try:
                command = shlex.split(line)
            except ValueError as error:
                print(error, file=sys.stderr)
                continue
            if command[:1] == ["quit"]:
                break
            if command:
                await shell.run(command)
            sys.stdout.flush()
    _event("Closed")
    return 0


def _event(state: str) -> None:
    print(f"\nWATCHER::\n\nWatchedEvent state:{state} type:None path:null", flush=True)


class UsageMismatchError(OdradekError):
    """A command without what it needs."""


class Shell:
    """The commands, on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._commands: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "ls": self._ls,
            "get": self._get,
            "stat": self._stat,
            "create": self._create,
            "set": self._set,
            "delete": self._delete,
            "deleteall": self._delete_all,
            "getAllChildrenNumber": self._count,
            "help": self._help,
        }

    async def run(self, command: list[str]) -> bool:
        """Run one command; whether it worked. What is wrong is told on stderr."""
        name, *arguments = command
        if name not in self._commands:
            print(f"Command not found: Command not found {name}", file=sys.stderr)
            return False
        sys.stdout.flush()
        try:
            await self._commands[name](arguments)
        except NoNodeError:
            print(f"Node does not exist: {_path(arguments)}", file=sys.stderr)
        except NodeExistsError:
            print(f"Node already exists: {_path(arguments)}", file=sys.stderr)
        except NotEmptyError:
            print(f"Node not empty: {_path(arguments)}", file=sys.stderr)
        except BadVersionError:
            print(f"version No is not valid : {_path(arguments)}", file=sys.stderr)
        except (StoreError, UsageMismatchError) as error:
            print(error, file=sys.stderr)
        else:
            return True
        return False

    # ------------------------------------------------------------------------------- reading

    async def _ls(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("ls", arguments, "-s -R", 1)
        if "-R" in flags:
            for each in await self._below(path):
                print(each)
            return
        names = await self._store.children(path)
        print(f"[{', '.join(names)}]")
        if "-s" in flags:
            _print_stat(await self._need(path))

    async def _get(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("get", arguments, "-s", 1)
        data, stat = await self._store.get(path)
        print("null" if data is None else data.decode("utf-8", "replace"))
        if "-s" in flags:
            _print_stat(stat)

    async def _stat(self, arguments: list[str]) -> None:
        _, (path,) = _parsed("stat", arguments, "", 1)
        _print_stat(await self._need(path))

    async def _count(self, arguments: list[str]) -> None:
        _, (path,) = _parsed("getAllChildrenNumber", arguments, "", 1)
        print(len(await self._below(path)) - 1)

    async def _help(self, _arguments: list[str]) -> None:
        print(_HELP)

    async def _need(self, path: str) -> Stat:
        stat = await self._store.exists(path)
        if stat is None:
            raise NoNodeError(path)
        return stat

    async def _below(self, path: str) -> list[str]:
        """A node and all below it, the node first."""
        found = [path]
        for name in await self._store.children(path):
            found += await self._below(f"{path.rstrip('/')}/{name}")
        return found

    # ------------------------------------------------------------------------------- writing

    async def _create(self, arguments: list[str]) -> None:
        flags, words = _parsed("create", arguments, "-s -e", 1, 2)
        data = words[1].encode() if len(words) > 1 else None
        made = await self._store.create(
            words[0], data, ephemeral="-e" in flags, sequential="-s" in flags
        )
        print(f"Created {made}")

    async def _set(self, arguments: list[str]) -> None:
        flags, (path, data) = _parsed("set", arguments, "-s -v", 2)
        stat = await self._store.set_data(path, data.encode(), _version(flags))
        if "-s" in flags:
            _print_stat(stat)

    async def _delete(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("delete", arguments, "-v", 1)
        await self._store.delete(path, _version(flags))

    async def _delete_all(self, arguments: list[str]) -> None:
        _, (path,) = _parsed("deleteall", arguments, "", 1)
        for each in reversed(await self._below(path)):
            await self._store.delete(each)


def _path(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if word.startswith("/")), "")


def _version(flags: dict[str, str]) -> int:
    return int(flags["-v"]) if "-v" in flags else ANY_VERSION


def _parsed(
    name: str, arguments: Sequence[str], known: str, least: int, most: int | None = None
) -> tuple[dict[str, str], list[str]]:
    """Flags (`-v` with its value) and the other words, of which there must be so many.

    Raises:
        UsageMismatchError: a flag there is not, or too few or too many words.
    """
    flags: dict[str, str] = {}
    words: list[str] = []
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        if not word.startswith("-"):
            words.append(word)
        elif word not in known.split():
            raise UsageMismatchError(f"{name}: Unrecognized option: {word}")
        elif word == "-v":
            flags[word] = queue.pop(0) if queue else ""
            if not flags[word].lstrip("-").isdecimal():
                raise UsageMismatchError(f"{name}: -v {flags[word]}: must be a number")
        else:
            flags[word] = ""
    if not least <= len(words) <= (most or least):
        raise UsageMismatchError(f"{name}: {len(words)} arguments; help shows how it is done")
    for word in words[:1]:
        if not word.startswith("/"):
            raise UsageMismatchError("Path must start with / character")
    return flags, words


def _print_stat(stat: Stat) -> None:
    def moment(time_ms: int) -> str:
        return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(time_ms / 1000))

    for line in (
        f"cZxid = {stat.created_id:#x}",
        f"ctime = {moment(stat.created_ms)}",
        f"mZxid = {stat.modified_id:#x}",
        f"mtime = {moment(stat.modified_ms)}",
        f"cversion = {stat.children_version}",
        f"dataVersion = {stat.version}",
        f"ephemeralOwner = {stat.ephemeral_owner:#x}",
        f"dataLength = {stat.data_length}",
        f"numChildren = {stat.children_count}",
    ):
        print(line)
