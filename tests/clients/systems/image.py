"""Executes a Dockerfile, and runs containers of the image, with a folder as the base: no engine.

An image is a folder, changed by chroot. A container is a process in namespaces of its own, on an
overlay of the image's folder; its network is a namespace that the caller gives.
"""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from mixed import until
from tests.clients.systems import roots

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONTAINER = """
mount -t tmpfs none "$HOME"
mkdir "$HOME/written" "$HOME/work" "$HOME/all"
mount -t overlay overlay -o "lowerdir=$IMAGE,upperdir=$HOME/written,workdir=$HOME/work" "$HOME/all"
hostname "$HOST"
cp "$HOSTS" "$HOME/all/etc/hosts"
mount -t proc proc "$HOME/all/proc"
mount --rbind /dev "$HOME/all/dev"
exec chroot --userspec="$OWNER" "$HOME/all" "$@"
"""


@dataclasses.dataclass
class Image:
    """What a Dockerfile has made: a folder, and how a container begins."""

    root: pathlib.Path
    environment: dict[str, str]
    user: str = "0"
    folder: str = "/"
    entry_point: Sequence[str] = ()
    command: Sequence[str] = ()
    health_check: Sequence[str] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    ports: Sequence[str] = ()
    volumes: Sequence[str] = ()

    def owner(self) -> str:
        """User and group as numbers, as an engine looks them up in the image."""
        for line in (self.root / "etc/passwd").read_text().splitlines():
            name, _, uid, gid, *_ = line.split(":")
            if self.user in (name, uid):
                return f"{uid}:{gid}"
        return f"{self.user}:0"


def instructions(dockerfile: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Each instruction with its arguments on one line."""
    text = dockerfile.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, " ".join(rest.split())


def build(
    dockerfile: pathlib.Path, context: pathlib.Path, base: pathlib.Path, into: pathlib.Path
) -> tuple[Image, list[str]]:
    """The image of the last stage, and the instructions that were executed.

    Raises:
        ValueError: an instruction is not known here.
    """
    stages: dict[str, Image] = {}
    executed = []
    for word, rest in instructions(dockerfile):
        if word == "FROM":
            words = rest.split()
            name = words[2] if len(words) > 1 else str(len(stages))
            image = Image(roots.copied(base, into / name), {"PATH": _PATH})
            stages[name] = image
        else:
            _execute(word, rest, image, context, stages)
        executed.append(f"{word} {rest}")
    return image, executed


def _execute(
    word: str, rest: str, image: Image, context: pathlib.Path, stages: Mapping[str, Image]
) -> None:
    match word:
        case "RUN":
            exports = [f"export {k}={shlex.quote(v)}" for k, v in image.environment.items()]
            roots.run_in(image.root, [*exports, f"cd {image.folder}", rest])
        case "COPY":
            _copy(rest.split(), image, context, stages)
        case "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                image.environment[name] = re.sub(
                    r"\$(\w+)", lambda found: image.environment[found[1]], value
                )
        case "WORKDIR":
            image.folder = str(pathlib.PurePosixPath(image.folder) / rest)
            (image.root / image.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case _:
            _describe(word, rest, image)


def _describe(word: str, rest: str, image: Image) -> None:
    """Carry out an instruction that only says how containers run."""
    match word:
        case "USER":
            image.user = rest
        case "VOLUME":
            image.volumes = [*image.volumes, *rest.split()]
        case "EXPOSE":
            image.ports = [*image.ports, *rest.split()]
        case "STOPSIGNAL":
            image.stop_signal = signal.Signals[rest]
        case "HEALTHCHECK":
            image.health_check = json.loads(rest.partition("CMD ")[2])
        case "ENTRYPOINT":
            image.entry_point = json.loads(rest)
        case "CMD":
            image.command = json.loads(rest)
        case _:
            raise ValueError(f"{word} is not executed here")


def _copy(
    words: Sequence[str], image: Image, context: pathlib.Path, stages: Mapping[str, Image]
) -> None:
    source = context
    if words[0].startswith("--from="):
        source = stages[words[0].partition("=")[2]].root
        words = words[1:]
    *names, last = words
    target = image.root / (pathlib.PurePosixPath(image.folder) / last).relative_to("/")
    for name in names:
        found = source / name.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, target, symlinks=True, dirs_exist_ok=True)
        elif last.endswith("/"):
            shutil.copy(found, target / found.name)
        else:
            shutil.copy(found, target)


class Container:
    """A container of an image, in a network namespace."""

    def __init__(
        self,
        image: Image,
        home: pathlib.Path,
        network: str,
        *,
        host: str,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        health_check: Sequence[str] = (),
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self._image = image
        self._environment = {**image.environment, "HOSTNAME": host, **(environment or {})}
        self._health_check = health_check or image.health_check
        self._output = home.with_suffix(".log")
        home.mkdir()
        names = home.with_suffix(".hosts")
        lines = {"localhost": "127.0.0.1", **(hosts or {})}
        names.write_text("".join(f"{address} {name}\n" for name, address in lines.items()))
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", network, "unshare", "--mount", "--propagation", "private",
                 "--uts", "--pid", "--fork", "--kill-child", "sh", "-ec", _CONTAINER, "sh",
                 *self._inside(*image.entry_point, *(command or image.command))],
                env={"PATH": os.environ["PATH"], "HOME": str(home), "IMAGE": str(image.root),
                     "HOST": host, "HOSTS": str(names), "OWNER": image.owner()},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def _inside(self, *command: str) -> list[str]:
        settings = [f"{name}={value}" for name, value in self._environment.items()]
        script = f'cd {self._image.folder} && exec "$@"'
        return ["/usr/bin/env", "-i", *settings, "/bin/sh", "-c", script, "sh", *command]

    @property
    def pid(self) -> int:
        """The container's first process, as this machine numbers it; 0 if there is none yet."""
        above = self.process.pid
        children = pathlib.Path(f"/proc/{above}/task/{above}/children").read_text().split()
        return int(children[0]) if children else 0

    def execute(self, *command: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as its user."""
        uid, gid = self._image.owner().split(":")
        return subprocess.run(
            ["nsenter", "--target", str(self.pid), "--mount", "--uts", "--net", "--pid", "--root",
             "--wd", "--setuid", uid, "--setgid", gid, *self._inside(*command)],
            input=typed, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def becomes_healthy(self) -> None:
        def is_healthy() -> bool:
            assert self.process.poll() is None, self.output()
            return self.pid != 0 and self.execute(*self._health_check).returncode == 0

        until("the container is healthy", is_healthy)

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def stop(self) -> int:
        """End it by the image's signal; its exit code."""
        os.kill(self.pid, self._image.stop_signal)
        return self.process.wait(120)

    def end(self) -> None:
        """Kill it; with its first process all others end."""
        if self.process.poll() is None and self.pid:
            os.kill(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
