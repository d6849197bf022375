"""Simulated committers without a group: each committed offset is a register with one writer.

A writer commits offsets of a group of its own that has no members. Therefore it knows what
OffsetFetch may answer: the offset accepted last, or one of a commit without a response, or one
whose error code leaves it open whether it was written. The writer

    pipelines    sends several commits on one connection; one that is accepted stays, whatever
                 happens to the later ones
    lets expire  sends OffsetCommit up to version 4 with a retention time, after which there may be
                 no committed offset
    transacts    sends TxnOffsetCommit, pauses until earlier offsets may expire, sends EndTxn

A response to OffsetFetch counts if a commit that was sent after it on the same connection is
accepted: a former coordinator accepts no commit.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.groups import GROUPS, RETRIED
from odradek.sim.clients.transactions import (
    PARTITIONS,
    TOPIC,
    AbortError,
    FencedError,
    Ledger,
    TransactionOptions,
    Transactor,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from odradek.sim.clients.workload import Workload

WRITERS: Final = 2
NO_OFFSET: Final = -1
_RETENTION_SINCE: Final = 2
_RETENTION_UNTIL: Final = 4  # the last version of OffsetCommit with a retention time
_BURST_MAX: Final = 4
_CHECK_MS: Final = 500
# Error codes that leave it open whether the commit was written, and to enough replicas.
_OPEN: Final = RETRIED


def register_properties() -> dict[str, str]:
    """The broker options of a run with the trait `registers`."""
    return {"offsets.retention.check.interval.ms": str(_CHECK_MS)}


class Open(NamedTuple):
    """A commit of which it is not known whether it was written."""

    expires: bool
    is_answered: bool  # so no request with it is under way any more


@dataclass(slots=True)
class Register:
    """One committed offset, with the values that it may have by its writer's requests."""

    name: str
    last: int = NO_OFFSET  # the last value that was drawn
    confirmed: int = NO_OFFSET
    expires: bool = True  # it may be absent: never committed, or expired
    open: dict[int, Open] = field(default_factory=dict)

    def draw(self, *, expires: bool) -> int:
        """The next value, which was never written before; it is about to be sent."""
        self.last += 1
        self.open[self.last] = Open(expires, is_answered=False)
        return self.last

    def refused(self, value: int) -> None:
        """The response had an error that leaves it open whether the value was written."""
        self.open[value] = self.open[value]._replace(is_answered=True)

    def written(self, value: int, *, expires: bool) -> None:
        """The commit was accepted; it replaces earlier values that had a response."""
        self.confirmed, self.expires = value, expires
        self.open.pop(value, None)
        for other in [v for v, open_ in self.open.items() if v < value and open_.is_answered]:
            del self.open[other]

    def allowed(self) -> frozenset[int]:
        """The values that OffsetFetch may return."""
        expires = self.expires or any(open_.expires for open_ in self.open.values())
        return frozenset({self.confirmed, *self.open, *([NO_OFFSET] if expires else ())})


class RegisterWriter(Transactor):
    """The writer of the committed offsets of one group that has no members."""

    def __init__(
        self,
        ledger: Ledger | None,
        workload: "Workload",
        client: Client,
        name: str,
        options: TransactionOptions | None,
    ) -> None:
        super().__init__(
            ledger or Ledger(workload), client, name, f"id-{name}", options or TransactionOptions()
        )
        self._group = name
        # In version 1 a late TxnOffsetCommit becomes part of the next transaction.
        self._transacts = options is not None and options.version > 1
        self.registers = [Register(f"{name}/{index}") for index in range(PARTITIONS)]
        self.has_read_all = False

    async def run(self) -> None:
        """Commit offsets until the workload ends."""
        while not self._workload.is_over:
            await asyncio.sleep(self._random.uniform(0.02, 0.4))
            if TOPIC not in self._workload.history.topics:
                continue
            index = self._random.randrange(PARTITIONS)
            try:
                if self._transacts and self._random.random() < 0.25:
                    await self._write_in_transaction(index)
                else:
                    await self._burst(index)
            except TROUBLE:
                await self._client.begin_anew()
            except FencedError:
                self._producer = (-1, -1)
                await self._client.pause()

    # ------------------------------------------------------------------- without transactions

    async def _burst(self, index: int) -> None:
        register = self.registers[index]
        connection = await self._group_coordinator()
        expires = self._random.random() < 0.4
        allowed = register.allowed()
        fetching = asyncio.create_task(self._fetch(connection, index))
        pause_s = self._random.choice((0.0, 0.0, 0.3, 1.5))
        values: list[int] = []
        writing = []
        for _ in range(self._random.choice((1, 1, 2, _BURST_MAX))):
            values.append(register.draw(expires=expires))
            writing.append(
                asyncio.create_task(self._commit(connection, index, values[-1], expires=expires))
            )
            await asyncio.sleep(pause_s)
        fetched, *codes = await asyncio.gather(fetching, *writing, return_exceptions=True)
        if codes[0] is ErrorCode.NONE and isinstance(fetched, int):
            self._workload.happened["registers read"] += 1
            self._check(register, allowed, fetched)
        self._settle(register, values, codes, expires=expires)
        for code in codes:
            if isinstance(code, BaseException):
                raise code

    def _check(self, register: Register, allowed: frozenset[int], fetched: int) -> None:
        if fetched not in allowed:
            self._workload.violated(
                f"committed offset {register.name}: OffsetFetch answers {fetched}; "
                f"expected is one of {sorted(allowed)}"
            )

    def _settle(
        self, register: Register, values: list[int], codes: Sequence[object], *, expires: bool
    ) -> None:
        for value, code in zip(values, codes, strict=True):
            if not isinstance(code, ErrorCode):
                continue
            if code is ErrorCode.NONE:
                register.written(value, expires=expires)
                self._workload.succeeded()
                self._workload.happened["registers written"] += 1
                continue
            register.refused(value)
            if code not in _OPEN:
                self._workload.unexpected(f"OffsetCommit without a group: {code.name}")

    async def _commit(
        self, connection: Connection, index: int, value: int, *, expires: bool
    ) -> ErrorCode:
        part = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=value, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )
        version_max = None
        if expires:
            request.retention_time_ms = self._random.choice((300, 1_500, 4_000))
            version_max = self._random.randint(_RETENTION_SINCE, _RETENTION_UNTIL)
        answer = await connection.request(request, OffsetCommitResponse, version_max=version_max)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def _fetch(self, connection: Connection, index: int) -> int | None:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[index])]
        group = OffsetFetchRequestGroup(group_id=self._group, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        (answer,) = (await connection.request(request, OffsetFetchResponse)).groups
        if answer.error_code:
            return None
        (part,) = answer.topics[0].partitions
        return None if part.error_code else part.committed_offset

    async def _group_coordinator(self) -> Connection:
        cluster = await self._client.cluster()
        cluster.drop_coordinator(GROUPS, self._group)
        return await cluster.coordinator(GROUPS, self._group)

    # ------------------------------------------------------------------------- transactions

    async def _write_in_transaction(self, index: int) -> None:
        register = self.registers[index]
        if self._producer[0] < 0:
            await self._init()
        value = register.draw(expires=False)
        commit = False
        try:
            await self._send_offset(index, value)
            await asyncio.sleep(self._random.choice((0.0, 0.5, 2.0, 4.0)))
            commit = self._random.random() < 0.8
            await self._end(commit=commit)
        except AbortError:
            await self._end(commit=False)
        if commit:
            register.written(value, expires=False)
            self._workload.happened["registers written by a transaction"] += 1
        else:
            register.open.pop(value)

    async def _send_offset(self, index: int, value: int) -> None:
        part = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=value, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._group,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )

        async def ask() -> ErrorCode:
            connection = await self._group_coordinator()
            answer = await connection.request(request, TxnOffsetCommitResponse)
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        await self._until_answered("TxnOffsetCommit", ask)

    # ------------------------------------------------------------------------------ the end

    async def read_some(self) -> None:
        """At the end: fetch and check all registers."""
        try:
            connection = await self._group_coordinator()
            fetched = [await self._fetch(connection, index) for index in range(PARTITIONS)]
        except TROUBLE:
            await self._client.begin_anew()
            return
        values = [value for value in fetched if value is not None]
        if len(values) < len(fetched):
            await self._client.pause()
            return
        self.has_read_all = True
        for register, value in zip(self.registers, values, strict=True):
            self._check(register, register.allowed(), value)


def start_registers(
    workload: "Workload", ledger: Ledger | None = None, options: TransactionOptions | None = None
) -> None:
    for number in range(WRITERS):
        client = workload.client(f"register-{number}")
        writer = RegisterWriter(ledger, workload, client, f"register-{number}", options)
        workload.readers.append(writer)
        client.run(writer.run())
