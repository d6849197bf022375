"""Answers with an error in place of the next requests of an API.

The request takes no effect. The error is where Kafka has it: in the response itself or, where the
API has errors of its topics, partitions or groups, in each that the request names.

Only requests of clients fail, unless the API is one of brokers alone. Followers fetch and brokers
ask each other all the time: an error for them would use up what a test has ordered for its client.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.broker.faults.gate import FaultError
from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection
from odradek.net.server import Frames
from odradek.wire.api_keys import APIS, ApiKey
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import RequestHeader, decode_request_header, encode_response_header
from odradek.wire.schema import Field, Message, MessageType

KIT_CLIENT_ID: Final = "odradek-testkit"
_OF_BROKERS: Final = re.compile(r"broker-\d+")
# Their answers do not follow from the request alone.
_REFUSED: Final = {
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.API_VERSIONS,
}
# Names of one thing in requests and responses.
_ALIASES: Final = (
    ("partition_index", "partition", "index"),
    ("name", "topic", "topic_name"),
    ("committed_leader_epoch", "leader_epoch"),
)
_ERRORS: Final = ("error_code", "partition_error_code")


class OrderedFailure(NamedTuple):
    """An error that the next requests of an API are answered with."""

    api_key: int
    code: ErrorCode
    # One for each request: called, it says whether it was not used before. Several brokers that
    # were given the same files fail so many requests together (`tickets_in`).
    tickets: tuple[Callable[[], bool], ...]


def api_of(name: str) -> ApiKey:
    """The API that Kafka calls so: Produce, Fetch, JoinGroup ...

    Raises:
        FaultError: there is no such API, or its answer cannot be an error.
    """
    for key, api in APIS.items():
        if name.lower().replace("_", "") == api.name.lower():
            if key in _REFUSED:
                raise FaultError(f"{api.name}: its next answer cannot be made an error")
            return ApiKey(key)
    raise FaultError(f"{name!r} is no API of Kafka: such are Produce, Fetch, JoinGroup, Metadata")


def code_of(name: str) -> ErrorCode:
    """The error that Kafka calls so.

    Raises:
        FaultError: there is no such error.
    """
    try:
        return ErrorCode[name.upper()]
    except KeyError:
        raise FaultError(
            f"{name!r} is no error of Kafka: such are NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT"
        ) from None


class FailingAnswers:
    """The errors that are ordered from one broker."""

    def __init__(
        self,
        wrap_frames: Callable[[str, Callable[[Frames], Frames] | None], None],
    ) -> None:
        self._wrap_frames = wrap_frames
        self._ordered: list[OrderedFailure] = []

    def order(self, failure: OrderedFailure) -> None:
        """Fail the next requests, after those ordered before."""
        self._ordered.append(failure)
        self._wrap_frames("faults", self._around)

    def clear(self) -> None:
        """Fail no request from now on."""
        self._ordered.clear()
        self._wrap_frames("faults", None)

    def _around(self, frames: Frames) -> Frames:
        def failing(connection: Connection, frame: memoryview) -> None:
            header, position = decode_request_header(frame)
            code = self._take(header)
            if code is None:
                frames(connection, frame)
                return
            api_key, version = header.api_key, header.api_version
            decode = decoder(APIS[api_key].request_class, version)
            request: Any = decode(memoryview(bytes(frame)), position)[0]
            if api_key == ApiKey.PRODUCE and request.acks == 0:
                connection.close()  # as Kafka: there is no answer that could have the error
                return
            body = error_answer(request, version, code)
            head = encode_response_header(api_key, version, header.correlation_id)
            encoded = encoder(type(body), version)(body)
            size = len(head) + len(encoded)
            connection.respond([size.to_bytes(4, "big") + head + encoded])

        return failing

    def _take(self, header: RequestHeader) -> ErrorCode | None:
        """The error for this request; None if it is to be handled."""
        if not is_of_clients(header) and not APIS[header.api_key].inter_broker:
            return None
        for index, ordered in enumerate(self._ordered):
            if ordered.api_key != header.api_key:
                continue
            tickets = deque(ordered.tickets)
            is_taken = False
            while tickets and not is_taken:
                is_taken = tickets.popleft()()
            if tickets:
                self._ordered[index] = ordered._replace(tickets=tuple(tickets))
            else:
                del self._ordered[index]
                if not self._ordered:
                    self._wrap_frames("faults", None)
            return ordered.code if is_taken else self._take(header)
        return None


def is_of_clients(header: RequestHeader) -> bool:
    """Whether a request is not one of another broker or of the kit itself."""
    client_id = header.client_id or ""
    return not _OF_BROKERS.match(client_id) and client_id != KIT_CLIENT_ID


def tickets_in(files: Iterable[str]) -> tuple[Callable[[], bool], ...]:
    """Tickets that are files: one is used by removing it."""
    return tuple(partial(_remove, file) for file in files)


def _remove(ticket: str) -> bool:
    try:
        os.unlink(ticket)
    except FileNotFoundError:  # another broker has used it
        return False
    return True


# --------------------------------------------------------------------------- answers with errors


def error_answer(request: Message, version: int, code: ErrorCode) -> Message:
    """The response to a request, with the error wherever Kafka has one."""
    api = APIS[request.SCHEMA.request_key]
    made = api.response_class()
    if _error_field(type(made), version) and not (
        api.key == ApiKey.FETCH and any(topic.partitions for topic in request.topics)  # type: ignore[attr-defined]
    ):
        made.error_code = code  # type: ignore[attr-defined]
    else:
        _fill_arrays(made, request, version, code)
    return made


def _fill_arrays(made: Any, asked: Any, version: int, code: ErrorCode) -> None:
    """Make an element of the response for each element of the request."""
    for field in _arrays(made, version):
        if _may_fail(field.part, version):
            source = _source(field, asked, version)
            elements = [] if source is None else getattr(asked, source.name) or ()
            setattr(
                made, field.name, [_filled(field.part, each, version, code) for each in elements]
            )


def _filled(kind: Any, asked: Any, version: int, code: ErrorCode) -> Any:
    made = kind()
    if not isinstance(asked, Message):
        first = next(
            f for f in kind.SCHEMA.fields if f.kind == _kind(asked) and f.name not in _ERRORS
        )
        setattr(made, first.name, asked)
    else:
        for field in kind.SCHEMA.fields:
            name = _named(field.name, type(asked))
            if name is not None and field.kind != "array" and version in field.versions:
                setattr(made, field.name, getattr(asked, name))
        _fill_arrays(made, asked, version, code)
    error = _error_field(kind, version)
    if error is not None:
        setattr(made, error, code)
    return made


def _kind(value: object) -> str:
    return "string" if isinstance(value, str) else "int32"


def _arrays(kind: Message | MessageType, version: int) -> list[Field]:
    return [
        field
        for field in kind.SCHEMA.fields
        if field.kind == "array" and version in field.versions and field.tag is None
    ]


def _source(field: Field, asked: Message, version: int) -> Field | None:
    """The array of the request that an array of the response answers: of its name, or the first."""
    arrays = _arrays(asked, version)
    same = (each for each in arrays if each.name == field.name)
    return next(same, arrays[0] if arrays else None)


def _may_fail(part: object, version: int) -> bool:
    return isinstance(part, MessageType) and (
        _error_field(part, version) is not None
        or any(_may_fail(field.part, version) for field in _arrays(part, version))
    )


def _error_field(kind: MessageType, version: int) -> str | None:
    names = (field.name for field in kind.SCHEMA.fields if version in field.versions)
    return next((name for name in names if name in _ERRORS), None)


def _named(name: str, kind: MessageType) -> str | None:
    """The field of a request that has what the response calls so."""
    there = {field.name for field in kind.SCHEMA.fields}
    for names in ((name,), *(each for each in _ALIASES if name in each)):
        for each in names:
            if each in there:
                return each
    return None
