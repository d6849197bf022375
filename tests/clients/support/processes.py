"""The processes of this machine and their parents, from `ps`."""

import subprocess
from typing import NamedTuple


class Process(NamedTuple):
    """One process, and the command of its parent."""

    pid: int
    parent: int
    command: str
    parent_command: str

    def is_forked_from(self, module: str) -> bool:
        """Whether it is a fork of a process that runs this module: same command, begun by it."""
        return module in self.command and module in self.parent_command


def below(pid: int) -> list[Process]:
    """All descendants of this process."""
    done = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    reported = [line.split(None, 2) for line in done.stdout.splitlines()]
    commands = {int(number): (rest or [""])[0] for number, _, *rest in reported}
    parents = {int(number): int(parent) for number, parent, *_ in reported}
    found, wanted = [], [pid]
    while wanted:
        parent = wanted.pop()
        for child in [number for number, above in parents.items() if above == parent]:
            found.append(Process(child, parent, commands[child], commands[parent]))
            wanted.append(child)
    return found
