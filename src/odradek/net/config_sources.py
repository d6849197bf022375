"""The files and the environment of this process, for config providers."""

import os
import pathlib


class HostSources:
    """The files and environment variables of this host."""

    def text(self, path: str) -> str:
        return pathlib.Path(path).read_bytes().decode()

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)
