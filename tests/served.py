"""A page as a process of its own, asked over HTTP."""

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

TIMEOUT_S = 120


class ServedPage:
    """`odradek web` with these arguments; what it logs is in `log`."""

    def __init__(self, *arguments: object, log: Any = None, authority: str | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "web", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url, _, code = self.process.stdout.readline().strip().partition("#write=")
        self._trusting = ssl.create_default_context(cafile=authority) if authority else None
        self._token = self.ask("token", body={"code": code})[1]["token"] if code else ""

    def ask(self, view: str, bearer: str = "", body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer; with a body it is a write."""
        headers = {"accept": "application/json"}
        if bearer:
            headers["authorization"] = f"Bearer {bearer}"
        elif body is not None and getattr(self, "_token", ""):
            headers["x-odradek-token"] = self._token
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + view, data, headers)
        try:
            with urllib.request.urlopen(
                request, timeout=TIMEOUT_S, context=self._trusting
            ) as found:
                return found.status, json.load(found)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
