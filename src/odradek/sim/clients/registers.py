"""Simulated committers without a group: each committed offset is a register with one writer.

A writer commits to offsets of a group of its own that has no members, and knows therefore what an
OffsetFetch may answer: what was confirmed last, or something of which it was never answered, or
was answered with an error that leaves it open. It

    pipelines    several commits are under way on one connection; what is confirmed stays, whatever
                 becomes of those behind it
    lets expire  OffsetCommit up to version 4 says for how long the offset is to be kept; from then
                 on there may be none
    transacts    TxnOffsetCommit, a pause in which what was committed before may expire, EndTxn

An answer to OffsetFetch counts when a commit that was sent behind it on the same connection is
confirmed: a coordinator that does not know yet of its successor confirms nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.connection import Connection
from odradek.model.errors import ErrorCode
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.clients.groups import ELSEWHERE, GROUPS
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
_RETENTION_UNTIL: Final = 4  # the last version of OffsetCommit that says how long to keep it
_BURST_MAX: Final = 4
_CHECK_MS: Final = 500
# Answers that leave it open whether the commit stands in the log: not, or not on enough replicas.
_OPEN: Final = ELSEWHERE


def register_properties() -> dict[str, str]:
    """Options of the brokers of such a run."""
    return {"offsets.retention.check.interval.ms": str(_CHECK_MS)}


class Open(NamedTuple):
    """A commit of which it is not known whether it stands."""

    expires: bool
    is_answered: bool  # and so nothing of it is on its way any more


@dataclass(slots=True)
class Register:
    """One committed offset, as its only writer knows it."""

    name: str
    last: int = NO_OFFSET  # that was drawn
    confirmed: int = NO_OFFSET
    expires: bool = True  # there may be none: nothing was committed, or its time is over
    open: dict[int, Open] = field(default_factory=dict)

    def draw(self, *, expires: bool) -> int:
        """A value that was never written, and is now."""
        self.last += 1
        self.open[self.last] = Open(expires, is_answered=False)
        return self.last

    def refused(self, value: int) -> None:
        """It was answered with an error that leaves it open whether it stands in the log."""
        self.open[value] = self.open[value]._replace(is_answered=True)

    def written(self, value: int, *, expires: bool) -> None:
        """It is confirmed; what was answered before stands in front of it, if at all."""
        self.confirmed, self.expires = value, expires
        self.open.pop(value, None)
        for other in [v for v, open_ in self.open.items() if v < value and open_.is_answered]:
            del self.open[other]

    def allowed(self) -> frozenset[int]:
        """What an OffsetFetch may answer."""
        expires = self.expires or any(open_.expires for open_ in self.open.values())
        return frozenset({self.confirmed, *self.open, *([NO_OFFSET] if expires else ())})


class RegisterWriter(Transactor):
    """One writer, whose group has no members."""

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
        # In version 1 a TxnOffsetCommit that is late is taken for the next transaction's.
        self._transacts = options is not None and options.version > 1
        self.registers = [Register(f"{name}/{index}") for index in range(PARTITIONS)]
        self.has_read_all = False

    async def run(self) -> None:
        """Write until the workload ends."""
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
        told, *codes = await asyncio.gather(fetching, *writing, return_exceptions=True)
        if codes[0] is ErrorCode.NONE and isinstance(told, int):
            self._workload.happened["registers read"] += 1
            self._check(register, allowed, told)
        self._settle(register, values, codes, expires=expires)
        for code in codes:
            if isinstance(code, BaseException):
                raise code

    def _check(self, register: Register, allowed: frozenset[int], told: int) -> None:
        if told not in allowed:
            self._workload.violated(
                f"committed offset {register.name}: OffsetFetch answers {told}, which is none of "
                f"{sorted(allowed)}"
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
        """At the end: what is there, of all registers."""
        try:
            connection = await self._group_coordinator()
            told = [await self._fetch(connection, index) for index in range(PARTITIONS)]
        except TROUBLE:
            await self._client.begin_anew()
            return
        if None in told:
            await self._client.pause()
            return
        self.has_read_all = True
        for register, value in zip(self.registers, told, strict=True):
            assert value is not None
            self._check(register, register.allowed(), value)


def start_registers(
    workload: "Workload", ledger: Ledger | None = None, options: TransactionOptions | None = None
) -> None:
    for number in range(WRITERS):
        client = workload.client(f"register-{number}")
        writer = RegisterWriter(ledger, workload, client, f"register-{number}", options)
        workload.readers.append(writer)
        client.run(writer.run())
