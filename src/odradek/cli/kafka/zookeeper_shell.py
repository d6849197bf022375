"""`zookeeper-shell`: shows and changes znodes of the coordination store.

    zookeeper-shell 127.0.0.1:2181 ls /brokers/ids
    zookeeper-shell odradek-data get /controller

The first argument names the store: ZooKeeper's `host:port[/chroot]`, or the directory of a cluster
of `odradek up` for its embedded store. Without a command on the command line commands are read from
stdin, one a line, until `quit`, and watches (`-w`) that fire meanwhile are printed. The output is
that of ZooKeeper 3.8's shell without a terminal.
"""

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from odradek.cli.connect import properties_of
from odradek.cli.failures import ToolError, java_text
from odradek.cli.store import opened_store
from odradek.coord.store import (
    ANY_VERSION,
    Access,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
    Store,
    StoreError,
    Watcher,
)
from odradek.model.errors import OdradekError

if TYPE_CHECKING:
    from odradek.coord.zookeeper import ZooKeeperStore
    from odradek.coord.zookeeper_admin import ZooKeeperAdmin

USAGE: Final = (
    "USAGE: zookeeper-shell zookeeper_host:port[/path] | directory "
    "[-zk-tls-config-file file] [args...]"
)
_WORD: Final = re.compile(r"""([^"'\s]\S*|"[^"]*"|'[^']*')""", re.ASCII)
_UNKNOWN_COMMAND: Final = 127
_ANY: Final = 99  # as many words as one likes
_UNRECOGNIZED: Final = "org.apache.commons.cli.UnrecognizedOptionException"
# Of each command: flags, the least and most other words, and the usage that ZooKeeper prints.
SYNTAX: Final[Mapping[str, tuple[str, int, int, str]]] = {
    "config": ("-c -w -s", 0, _ANY, "config [-c] [-w] [-s]"),
    "create": ("-s -e", 1, 2, "create [-s] [-e] [-c] [-t ttl] path [data] [acl]"),
    "delete": ("-v", 1, 1, "delete [-v version] path"),
    "deleteall": ("", 1, 1, "deleteall path [-b batch size]"),
    "get": ("-s -w", 1, 1, "get [-s] [-w] path"),
    "getAcl": ("-s", 1, 1, "getAcl [-s] path"),
    "getAllChildrenNumber": ("", 1, 1, "getAllChildrenNumber path"),
    "getEphemerals": ("", 0, 1, "getEphemerals path"),
    "help": ("", 0, _ANY, "help"),
    "ls": ("-s -w -R", 1, 1, "ls [-s] [-w] [-R] path"),
    "setAcl": ("-s -v -R", 2, 2, "setAcl [-s] [-v version] [-R] path acl"),
    "sync": ("", 1, 1, "sync path"),
    "whoami": ("", 0, _ANY, "whoami"),
    "set": ("-s -v", 2, 2, "set [-s] [-v version] path data"),
    "stat": ("-w", 1, 1, "stat [-w] path"),
    "version": ("", 0, 0, "version"),
}
_HELP: Final = """\
\tconfig [-c] [-s]
\tcreate [-s] [-e] path [data]
\tdelete [-v version] path
\tdeleteall path
\tget [-s] [-w] path
\tgetAcl [-s] path
\tgetAllChildrenNumber path
\thelp
\tls [-s] [-w] [-R] path
\tquit
\tset [-s] [-v version] path data
\tsetAcl [-s] [-v version] [-R] path acl
\tstat [-w] path
\tsync path
\twhoami"""
# Errors of ZooKeeper that the shell reports in its own words.
_REPORTED: Final = {
    "NoAuthError": "Insufficient permission : {}",
    "InvalidACLError": "Acl is not valid : {}",
}


def main(arguments: Sequence[str]) -> int:
    words = list(arguments)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if words else 1
    where = words.pop(0)
    tls = {}
    if words[:1] == ["-zk-tls-config-file"]:
        try:
            tls = properties_of(words[1] if len(words) > 1 else "")
        except ToolError as error:
            print(f'Exception in thread "main" {java_text(error)}', file=sys.stderr)
            return 1
        words = words[2:]
    return asyncio.run(_session(where, words, tls))


async def _session(where: str, words: Sequence[str], tls: Mapping[str, str]) -> int:
    print(f"Connecting to {where}", flush=True)
    async with opened_store(where, tls=tls) as store:
        shell = Shell(store)
        if words:
            if not shell.understands(list(words)):
                return 1 if words[0] in SYNTAX else _UNKNOWN_COMMAND
            _event("SyncConnected")
            return 0 if await shell.run(list(words)) else 1
        print("Welcome to ZooKeeper!\nJLine support is disabled")
        _event("SyncConnected")
        shell.watches = ShellWatches(store)
        async with asyncio.TaskGroup() as tasks:
            printing = tasks.create_task(shell.watches.print_fired())
            worked, quits = await _commands(shell)
            printing.cancel()
    if quits:
        _event("Closed")
    return int(not worked)


async def _commands(shell: "Shell") -> tuple[bool, bool]:
    """Run commands from stdin. Returns whether the last one succeeded and whether `quit` came."""
    worked = True
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        command = words_of(line.rstrip("\r\n"))
        if command[:1] == ["quit"]:
            return worked, True
        if command:
            worked = await shell.run(command)
        sys.stdout.flush()
    return worked, False


def words_of(line: str) -> list[str]:
    """The words of a typed line, as ZooKeeper 3.8 tells them apart.

    Quotes group and disappear only where a word begins with one: JSON keeps its quotes, and a
    backslash is a character like any other. A quote that is never closed is left out.
    """
    return [
        word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word
        for word in _WORD.findall(line)
    ]


def _event(state: str, kind: str = "None", path: str = "null") -> None:
    print(f"\nWATCHER::\n\nWatchedEvent state:{state} type:{kind} path:{path}", flush=True)


class ShellWatches:
    """The watches that commands set with -w. The store's own watches carry no event type."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watchers: dict[tuple[str, str], Watcher] = {}  # one object each: it fires once
        self._fired: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def watcher(self, path: str, changed: str) -> Watcher:
        """The callback of a watch; `changed` is the event type if the znode still exists."""
        key = path, changed
        return self._watchers.setdefault(key, lambda: self._fired.put_nowait(key))

    async def print_fired(self) -> None:
        """Print each event when it occurs, until cancelled."""
        while True:
            fired = [await self._fired.get()]
            while not self._fired.empty():
                fired.append(self._fired.get_nowait())
            events: dict[tuple[str, str], None] = {}
            for path, changed in fired:
                is_there = await self._store.exists(path) is not None
                # The deletion of a znode with two watches is one event, as in ZooKeeper.
                events[path, changed if is_there else "NodeDeleted"] = None
            for path, kind in events:
                _event("SyncConnected", kind, path)


_NO_STAT: Final = Stat(
    version=0,
    created_id=0,
    modified_id=0,
    created_ms=0,
    modified_ms=0,
    ephemeral_owner=0,
    data_length=0,
    children_count=0,
)


class UsageMismatchError(OdradekError):
    """The command's arguments are invalid."""


class Shell:
    """Runs commands on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.watches: ShellWatches | None = None  # None: watches are not printed
        self._ephemerals: list[str] = []  # created in this session
        self._commands: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "ls": self._ls,
            "get": self._get,
            "getAcl": self._access,
            "setAcl": self._set_access,
            "config": self._config,
            "sync": self._sync,
            "whoami": self._who,
            "stat": self._stat,
            "create": self._create,
            "set": self._set,
            "delete": self._delete,
            "deleteall": self._delete_all,
            "getAllChildrenNumber": self._count,
            "getEphemerals": self._own,
            "help": self._help,
            "version": self._version,
        }

    def understands(self, command: list[str]) -> bool:
        """Whether a command is valid; if not, the reason is printed on stderr."""
        name, *arguments = command
        sys.stdout.flush()
        if name not in self._commands:
            print(f"{_HELP}\nCommand not found: Command not found {name}", file=sys.stderr)
            return False
        try:
            _parsed(name, arguments)
        except UsageMismatchError as error:
            print(error, file=sys.stderr)
            return False
        return True

    async def run(self, command: list[str]) -> bool:
        """Run one command. Returns whether it succeeded; errors are printed on stderr."""
        if not self.understands(command):
            return False
        name, *arguments = command
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
        except StoreError as error:
            cause = type(error.__cause__).__name__
            text = _REPORTED.get(cause, str(error)).format(_path(arguments))
            print(text, file=sys.stderr)
        else:
            return True
        return False

    # ------------------------------------------------------------------------------- reading

    async def _ls(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("ls", arguments)
        if "-R" in flags:
            for each in await self._below(path):
                print(each)
            return
        names = await self._store.children(path, self._watch(flags, path, "NodeChildrenChanged"))
        print(f"[{', '.join(names)}]")
        if "-s" in flags:
            _print_stat(await self._need(path))

    async def _get(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("get", arguments)
        data, stat = await self._store.get(path, self._watch(flags, path, "NodeDataChanged"))
        print("null" if data is None else data.decode("utf-8", "replace"))
        if "-s" in flags:
            _print_stat(stat)

    async def _access(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("getAcl", arguments)
        for entry in await self._store.access(path):
            print(f"'{entry.scheme},'{entry.id}\n: {entry.permissions}")
        if "-s" in flags:
            _print_stat(await self._need(path))

    async def _stat(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("stat", arguments)
        is_there = await self._store.exists(path) is not None
        changed = "NodeDataChanged" if is_there else "NodeCreated"
        stat = await self._store.exists(path, self._watch(flags, path, changed))
        if stat is None:
            raise NoNodeError(path)
        _print_stat(stat)

    def _watch(self, flags: Mapping[str, str], path: str, changed: str) -> Watcher | None:
        if "-w" not in flags or self.watches is None:
            return None
        return self.watches.watcher(path, changed)

    async def _count(self, arguments: list[str]) -> None:
        _, (path,) = _parsed("getAllChildrenNumber", arguments)
        print(len(await self._below(path)) - 1)

    async def _version(self, _arguments: list[str]) -> None:
        from odradek import __version__  # noqa: PLC0415 - for `version` only

        print(f"ZooKeeper CLI version: 3.8's, of Odradek {__version__}")

    async def _help(self, _arguments: list[str]) -> None:
        print(_HELP)

    async def _need(self, path: str) -> Stat:
        stat = await self._store.exists(path)
        if stat is None:
            raise NoNodeError(path)
        return stat

    async def _below(self, path: str) -> list[str]:
        """A znode and all its descendants, parents first."""
        found = [path]
        for each in found:  # the list grows, level by level
            names = await self._store.children(each)
            found += [f"{each.rstrip('/')}/{name}" for name in names]
        return found

    async def _config(self, arguments: list[str]) -> None:
        flags, _ = _parsed("config", arguments)
        admin = _admin(self._store)
        data, stat = await admin.ensemble() if admin else (b"", _NO_STAT)
        text = (data or b"").decode("utf-8", "replace")
        print(client_config(text) if "-c" in flags else text)
        if "-s" in flags:
            _print_stat(stat)

    async def _sync(self, arguments: list[str]) -> None:
        _, (path,) = _parsed("sync", arguments)
        admin = _admin(self._store)
        if admin is not None:
            await admin.sync(path)
        print("Sync is OK")

    async def _who(self, _arguments: list[str]) -> None:
        admin = _admin(self._store)
        print("Auth scheme: User")
        for scheme, user in await admin.identities() if admin else [("world", "anyone")]:
            print(f"{scheme}: {user}")

    # ------------------------------------------------------------------------------- writing

    async def _create(self, arguments: list[str]) -> None:
        flags, words = _parsed("create", arguments)
        data = words[1].encode() if len(words) > 1 else None
        made = await self._store.create(
            words[0], data, ephemeral="-e" in flags, sequential="-s" in flags
        )
        if "-e" in flags:
            self._ephemerals.append(made)
        sys.stdout.flush()
        print(f"Created {made}", file=sys.stderr)

    async def _own(self, arguments: list[str]) -> None:
        _, words = _parsed("getEphemerals", arguments)
        below = (words or ["/"])[0]
        print(f"[{', '.join(path for path in self._ephemerals if path.startswith(below))}]")

    async def _set_access(self, arguments: list[str]) -> None:
        flags, (path, text) = _parsed("setAcl", arguments)
        entries = access_entries(text)
        admin = _admin(self._store)
        if not entries:
            raise StoreError("Acl is not valid : null")
        if admin is None:
            raise StoreError(f"{path}: the embedded store has no ACLs, the file's mode decides")
        if "-R" in flags:
            for each in await self._below(path):
                await admin.set_access(each, entries, _version(flags))
            return
        stat = await admin.set_access(path, entries, _version(flags))
        if "-s" in flags:
            _print_stat(stat)

    async def _set(self, arguments: list[str]) -> None:
        flags, (path, data) = _parsed("set", arguments)
        stat = await self._store.set_data(path, data.encode(), _version(flags))
        if "-s" in flags:
            _print_stat(stat)

    async def _delete(self, arguments: list[str]) -> None:
        flags, (path,) = _parsed("delete", arguments)
        await self._store.delete(path, _version(flags))

    async def _delete_all(self, arguments: list[str]) -> None:
        _, (path,) = _parsed("deleteall", arguments)
        for each in reversed(await self._below(path)):
            await self._store.delete(each)


def _admin(store: Store) -> "ZooKeeperAdmin | None":
    """What ZooKeeper alone can do; None for the embedded store."""
    if store.counts is None:
        return None
    from odradek.coord.zookeeper_admin import ZooKeeperAdmin  # noqa: PLC0415 - an extra

    return ZooKeeperAdmin(cast("ZooKeeperStore", store))


def access_entries(text: str) -> list[Access]:
    """An ACL as the shell's users type it: `world:anyone:r,ip:10.0.0.1:cdrwa`.

    What is not of this form is reported on stderr and left out, as by ZooKeeper.
    """
    found = []
    for each in text.split(","):
        scheme, _, rest = each.partition(":")
        id_, colon, permissions = rest.rpartition(":")
        if not colon:
            print(f"{each} does not have the form scheme:id:perm", file=sys.stderr)
            continue
        for letter in permissions:
            if letter not in "cdrwa":
                print(f"Unknown perm type: {letter}", file=sys.stderr)
        found.append(Access(scheme, id_, permissions))
    return found


def client_config(text: str) -> str:
    """The version of the ensemble, and the addresses for clients of its servers."""
    lines = dict(line.partition("=")[::2] for line in text.splitlines())
    addresses = [
        value.partition(";")[2] for key, value in lines.items() if key.startswith("server.")
    ]
    return f"{lines.get('version', '')} {','.join(addresses)}"


def _path(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if word.startswith("/")), "")


def _version(flags: dict[str, str]) -> int:
    return int(flags["-v"]) if "-v" in flags else ANY_VERSION


def _parsed(name: str, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Flags (`-v` with its value) and the other words.

    Raises:
        UsageMismatchError: an unknown flag, or too few words.
    """
    known, least, most, usage = SYNTAX[name]
    flags: dict[str, str] = {}
    words: list[str] = []
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        if not word.startswith("-"):
            words.append(word)
        elif word not in known.split():
            raise UsageMismatchError(f"{_UNRECOGNIZED}: Unrecognized option: {word}")
        elif word == "-v":
            flags[word] = queue.pop(0) if queue else ""
            if not flags[word].lstrip("-").isdecimal():
                raise UsageMismatchError(f"{name}: -v {flags[word]}: must be a number")
        else:
            flags[word] = ""
    if not least <= len(words) <= most:
        raise UsageMismatchError(usage)
    for word in words[:1] if most < _ANY else ():
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
