"""Requests to a web application within this process, without a socket."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote


class Answer(NamedTuple):
    """A response: its status, its headers and its body."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    app: Any,
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: object = None,
    *,
    lifespan: bool = False,
) -> Answer:
    """One request; a body that is not bytes is sent as JSON."""
    return asyncio.run(requested(app, method, url, headers, body, lifespan=lifespan))


async def requested(
    app: Any,
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: object = None,
    *,
    lifespan: bool = False,
) -> Answer:
    """`request`, within a running event loop."""
    if lifespan:
        async with app.router.lifespan_context(app):
            return await requested(app, method, url, headers, body)
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    path, _, query = url.partition("?")
    given = {"host": "127.0.0.1:1234", **(headers or {})}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 1234),
    }
    messages = [{"type": "http.request", "body": content, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    return Answer(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body"),
    )
