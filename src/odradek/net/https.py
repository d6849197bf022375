"""Requests to https URLs, for keys and tokens: limited in time and size, and never redirected."""

import asyncio
import ssl
import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final, TypeVar
from urllib.error import HTTPError

BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 10.0  # without a byte

_T = TypeVar("_T")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error, of an opener that has this handler."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse: what is requested is at the URL that is configured, or nowhere."""


def fetch(url: str, *, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
    """The response to a GET, or to a POST of `body`.

    Raises:
        OSError: there is none, or it is an error.
        ValueError: the URL is not of https, or the response has more than `BYTES_MAX` bytes.
    """
    request = urllib.request.Request(url, data=body, headers=headers or {})
    if request.type != "https":
        raise ValueError("must be an https: URL")
    tls = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    opener = urllib.request.build_opener(NoRedirect, tls)
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            data = bytes(response.read(BYTES_MAX + 1))
    except HTTPError as error:
        error.close()  # it keeps the connection
        raise OSError(str(error)) from None
    except HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from None
    if len(data) > BYTES_MAX:
        raise ValueError(f"more than {BYTES_MAX} bytes")
    return data


async def in_thread(work: Callable[[], _T], *, name: str) -> _T:
    """Call `work` in a thread of its own, which does not delay the end of the process.

    Raises:
        Exception: what `work` raises.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def end(result: _T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: _T | None = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
