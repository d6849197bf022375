"""The verbs of the kit over HTTP, for tests in other languages: `odradek testkit`.

    GET  /         {"bootstrap": "127.0.0.1:20001,...", "brokers": [...], "verbs": {...}}
    POST /VERB     a JSON object with the verb's arguments by their names

    200  {"result": ...}        what the verb returns
    400  {"error": "..."}       arguments that are not understood
    404  {"error": "..."}       no such verb
    409  {"error": "..."}       the verb cannot be carried out, and why
    422  {"failed": "..."}      an assertion failed: the text is for the test's report

It listens on the loopback interface only. A page in a browser cannot use it: `Host` must be a
loopback name, the content type must be application/json, and a request with `Origin` is refused.
"""

import base64
import inspect
import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from odradek.model.errors import OdradekError
from odradek.testkit.cluster import TIMEOUT_S, KafkaCluster, wait_for
from odradek.testkit.compare import Found

HOST: Final = "127.0.0.1"
BODY_BYTES_MAX: Final = 16 << 20
_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
VERBS: Final = (
    "kill", "stop", "start", "pause", "resume", "state", "pid",
    "partition", "heal", "slow", "fail_next", "expire_session", "advance",
    "topic", "produce", "records", "leader", "isr", "controller",
    "lag", "committed", "force_rebalance", "fence",
    "assert_records", "assert_exactly_once", "assert_committed", "wait_for",
)  # fmt: skip


class KitVerbs:
    """The verbs of one cluster, with arguments and results as JSON has them."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def describe(self) -> Mapping[str, object]:
        """The answer to GET /."""
        brokers = range(self._cluster.brokers)
        addresses = self._cluster.bootstrap.split(",")
        return {
            "bootstrap": self._cluster.bootstrap,
            "brokers": [
                {"id": each, "address": addresses[each], "state": self._cluster.state(each)}
                for each in brokers
            ],
            "verbs": {verb: self._signature(verb) for verb in VERBS},
        }

    def _signature(self, verb: str) -> list[str]:
        special = {"partition": ["groups"], "wait_for": ["verb", "arguments", "equals", "differs"]}
        names = list(inspect.signature(getattr(self._cluster, verb)).parameters)
        return special.get(verb, names)

    def call(self, verb: str, arguments: Mapping[str, Any]) -> object:
        """Carry out a verb.

        Raises:
            KeyError: there is no such verb.
            TypeError, ValueError: the arguments are not understood.
            AssertionError, OdradekError: see the verb.
        """
        if verb not in VERBS:
            raise KeyError(verb)
        special: Mapping[str, Callable[..., object]] = {
            "partition": self._partition,
            "produce": self._produce,
            "topic": self._topic,
            "wait_for": self._wait_for,
            "assert_committed": self._assert_committed,
        }
        named = dict(arguments)
        if "expected" in named and isinstance(named["expected"], list):
            named["expected"] = [_pair(each) for each in named["expected"]]
        return _plain(special.get(verb, getattr(self._cluster, verb))(**named))

    def _partition(self, groups: list[list[int | str]]) -> None:
        self._cluster.partition(*groups)

    def _produce(self, topic: str, records: list[Any], partition: int | None = None) -> list[int]:
        return self._cluster.produce(topic, *map(_pair, records), partition=partition)

    def _topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        return self._cluster.topic(name, partitions, replicas=replicas, **(configs or {}))

    def _assert_committed(
        self,
        group: str,
        topic: str,
        expected: int | Mapping[str, int],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        wanted = (
            expected
            if isinstance(expected, int)
            else {int(index): offset for index, offset in expected.items()}
        )
        self._cluster.assert_committed(group, topic, wanted, timeout_s=timeout_s)

    def _wait_for(
        self,
        verb: str,
        arguments: Mapping[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
        **wanted: object,
    ) -> object:
        """Call another verb until its result equals, or differs from, what is wanted."""
        if len(wanted) != 1 or not wanted.keys() <= {"equals", "differs"}:
            raise TypeError('wait_for needs one of "equals" and "differs"')
        how, what = next(iter(wanted.items()))
        last: list[object] = []

        def is_so() -> bool:
            last[:] = [self.call(verb, arguments or {})]
            return (last[0] == what) is (how == "equals")

        try:
            wait_for(is_so, timeout_s=timeout_s)
        except AssertionError:
            raise AssertionError(
                f"not within {timeout_s:g} s: {verb} {how} {what!r}; it is {last!r}"
            ) from None
        return last[0]


def _pair(value: Any) -> Any:
    """A record of JSON: a value, or a list or an object of key and value."""
    if isinstance(value, list):
        key, content = value
        return key, content
    if isinstance(value, dict):
        return value.get("key"), value.get("value")
    return value


def _plain(value: object) -> object:
    if isinstance(value, Found):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value


class KitServer(ThreadingHTTPServer):
    """Serves the verbs of one cluster on the loopback interface."""

    daemon_threads = True

    def __init__(self, cluster: KafkaCluster, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.verbs = KitVerbs(cluster)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"


class _RequestRefusedError(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: KitServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self._respond(self._get)

    def do_POST(self) -> None:
        self._respond(self._post)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a test's output is its own."""

    def _respond(self, work: Callable[[], tuple[int, object]]) -> None:
        try:
            self._check()
            status, answer = work()
        except _RequestRefusedError as refused:
            status, answer = refused.status, {"error": str(refused)}
            self.close_connection = True  # a body may not have been read
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _check(self) -> None:
        host = self.headers.get("Host", "")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if name not in _NAMES:
            raise _RequestRefusedError(421, f"not served under the name {host}")
        if self.headers.get("Origin") is not None:
            raise _RequestRefusedError(403, "requests of web pages are refused")

    def _get(self) -> tuple[int, object]:
        if self.path != "/":
            raise _RequestRefusedError(404, "GET / describes the cluster; verbs are called by POST")
        return 200, self.server.verbs.describe()

    def _post(self) -> tuple[int, object]:
        arguments = self._arguments()
        verb = self.path.removeprefix("/")
        try:
            return 200, {"result": self.server.verbs.call(verb, arguments)}
        except KeyError:
            return 404, {"error": f"there is no verb {verb!r}; there are {', '.join(VERBS)}"}
        except (TypeError, ValueError) as error:
            return 400, {"error": f"{verb}: {error}"}
        except AssertionError as error:
            return 422, {"failed": str(error)}
        except (OdradekError, ConnectionError) as error:
            return 409, {"error": str(error)}

    def _arguments(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise _RequestRefusedError(415, "the content type must be application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _RequestRefusedError(411, "a Content-Length is needed")
        if int(length) > BODY_BYTES_MAX:
            raise _RequestRefusedError(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        try:
            arguments = json.loads(self.rfile.read(int(length)) or b"{}")
        except ValueError as error:
            raise _RequestRefusedError(400, f"the body is not JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise _RequestRefusedError(400, "the body must be an object with the arguments by name")
        return arguments
