"""The token that the HTTP server wants before it names anything: a file of the broker's user.

Where clients have to log in, or ACLs are enforced, the HTTP port must not show to every user of the
machine what the listeners show to some. So there a request for a report, or for metrics of single
topics, groups and clients, carries the token (`Authorization: Bearer`), which the broker draws at
its first start and keeps with mode 0600. Where a listener asks for nothing, the port asks for
nothing either.
"""

import logging
import os
import pathlib
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from odradek.model.errors import StartupError

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

log = logging.getLogger(__name__)
OPTION: Final = "odradek.http.token.file"
_NAME: Final = "http.token"  # in the first of log.dirs
_RANDOM_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 1_024
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/=-]{16,512}")  # what a header may have (RFC 6750)
_OTHERS: Final = 0o007
_OPEN: Final = frozenset({"PLAINTEXT", "SSL"})


def is_required(config: "BrokerConfig") -> bool:
    """Whether the port shows names to those only who have the token.

    Without an authorizer everybody sees all by a listener that asks for no user.
    """
    return bool(config.authorizer_class_name) or all(
        point.security_protocol not in _OPEN for point in config.listeners
    )


def token_file(options: Mapping[str, str]) -> str | None:
    """The file of a broker with these options; None without a log directory."""
    named = options.get(OPTION, "").strip()
    first = (options.get("log.dirs") or options.get("log.dir") or "").split(",")[0].strip()
    return named or (os.path.join(first, _NAME) if first else None)


def server_token(config: "BrokerConfig") -> bytes | None:
    """The token of this broker, which is drawn if there is no file; None: none is required.

    Raises:
        StartupError: the file cannot be used; with the rule.
    """
    if not is_required(config):
        return None
    named = config.odradek_http_token_file
    path = pathlib.Path(named or os.path.join(config.log_dirs[0], _NAME))
    try:
        return _read(path) or _drawn(path)
    except OSError as error:
        if named:
            raise StartupError(f"{OPTION}={path}: {error.strerror}") from None
        log.warning("no token for the HTTP port: %s: %s; only names are not shown", path, error)
        return secrets.token_urlsafe(_RANDOM_BYTES).encode()  # nobody has it


def headers(file: str | None) -> dict[str, str]:
    """The headers of a request of a reader who may read the file; none without it."""
    if file is None:
        return {}
    try:
        token = pathlib.Path(file).read_bytes()[:_FILE_BYTES_MAX].strip()
    except OSError:
        return {}
    return {"Authorization": f"Bearer {token.decode()}"} if _TOKEN.fullmatch(token) else {}


def _read(path: pathlib.Path) -> bytes | None:
    """The token in a file; None if there is no file."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(_FILE_BYTES_MAX).strip()
    except FileNotFoundError:
        return None
    if mode & _OTHERS:
        raise StartupError(
            f"{OPTION}={path}: every user may read it; chmod 600, or 640 for a group that reads "
            "metrics"
        )
    if _TOKEN.fullmatch(token) is None:
        raise StartupError(
            f"{OPTION}={path}: must be 16 to 512 letters, digits or any of . _ ~ + / = -; "
            "without the file the broker draws one"
        )
    return token


def _drawn(path: pathlib.Path) -> bytes:
    """A new token, or that of another broker which has drawn it for the same file meanwhile."""
    token = secrets.token_urlsafe(_RANDOM_BYTES).encode()
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(token + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(new, path)  # whole, and never over another one
    finally:
        new.unlink(missing_ok=True)
    return _read(path) or token
