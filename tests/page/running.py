"""A cluster and its page as processes of their own."""

import json
import pathlib
import subprocess
import sys
import urllib.request

ODRADEK = (sys.executable, "-m", "odradek")
TIMEOUT_S = 120


def run(*arguments: object) -> str:
    """What a command of `odradek` prints."""
    done = subprocess.run(
        [*ODRADEK, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return done.stdout


class RunningPage:
    """A cluster of three brokers and the page on it; `writing` is its address with the code."""

    def __init__(self, path: pathlib.Path, *options: str) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [*ODRADEK, "web", "--dir", str(path), *options], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.writing = self.process.stdout.readline().strip()
        self.url = self.writing.partition("#")[0]
        self._token: str | None = None

    @property
    def bootstrap(self) -> str:
        return str(json.loads(run("status", "--json", "--dir", self.path))["bootstrap"])

    def kafka(self, tool: str, *arguments: object, typed: str = "") -> str:
        """What one of Kafka's tools prints."""
        done = subprocess.run(
            [
                pathlib.Path(sys.executable).parent / tool,
                "--bootstrap-server",
                self.bootstrap,
                *map(str, arguments),
            ],
            input=typed,
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        return done.stdout

    def perf(self, topic: str, records: int) -> None:
        """Write so many records of 20 bytes."""
        tool = pathlib.Path(sys.executable).parent / "kafka-producer-perf-test"
        subprocess.run(
            [tool, "--topic", topic, "--num-records", str(records), "--record-size", "20",
             "--throughput", "-1", "--producer-props", f"bootstrap.servers={self.bootstrap}"],
            capture_output=True, check=True, timeout=TIMEOUT_S,
        )  # fmt: skip

    def json(self, view: str) -> str:
        """A view as JSON."""
        request = urllib.request.Request(self.url + view, headers={"accept": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())

    @property
    def token(self) -> str:
        """The right to write, for which the code of the address is exchanged once."""
        if self._token is None:
            body = json.dumps({"code": self.writing.partition("#write=")[2]}).encode()
            request = urllib.request.Request(self.url + "token", body)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                self._token = str(json.load(answer)["token"])
        return self._token

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
