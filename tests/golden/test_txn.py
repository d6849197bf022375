"""Plays the scenarios in `txn/*.txt` and compares what the transaction coordinator answers.

A scenario is text: a command, `----`, the answer. `ODRADEK_REWRITE=1 pytest tests/golden`
writes the answers again; read the diff and commit it only if you can explain the change.

    at 5000                              wall time, in milliseconds
    stored x id=7 epoch=3 state=Ongoing [in=t-0,t-1] [started=..] [v2]    stands in the log
    load                                 a coordinator begins with what is stored
    init x [timeout=..] [id=7 epoch=3]   InitProducerId; a fresh producer id is drawn if needed
    add x 7/0 t-0 t-1 [v2]               AddPartitionsToTxn
    end x 7/0 commit|abort [v2]          EndTxn
    verify x 7/0 t-0                     AddPartitionsToTxn, to verify only
    written x [ERROR]                    what became of the append that was asked for
    markers x 7/0 t-0                    markers are written
    timeouts | expire 1000 | resign      time passes, or leadership goes
    show                                 what DescribeTransactions would answer

Requests are numbered #1, #2 ... in the order in which they come.
"""

import os
import pathlib

import pytest

from odradek.model.clock import Now
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import Loaded, Note, Replayed, Resigned
from odradek.record.records import Record
from odradek.txn.effects import Answer, Append, Effect, Proceed, WriteMarkers
from odradek.txn.events import (
    AddPartitions,
    Appended,
    EndTransaction,
    ExpirationDue,
    InitProducerId,
    MarkersWritten,
    TimeoutsDue,
)
from odradek.txn.machine import TransactionMachine
from odradek.txn.records import encode_key, encode_value
from odradek.txn.transaction import STATE_NAMES, VERSION_1, VERSION_2, Transaction

SCENARIOS = sorted((pathlib.Path(__file__).parent / "txn").glob("*.txt"))
STATES = {name: state for state, name in STATE_NAMES.items()}


class Stage:
    """One coordinator that takes commands as text, and keeps its log."""

    def __init__(self) -> None:
        self.machine = TransactionMachine()
        self.now_ms = 1000
        self.requests = 0
        self.fresh = 6  # the last producer id that was drawn
        self.log: dict[str, Transaction | None] = {}
        self.asked: dict[str, Transaction | None] = {}

    def play(self, line: str) -> str:
        command, *words = line.split()
        given = dict(word.split("=", 1) for word in words if "=" in word)
        version = VERSION_2 if "v2" in words else VERSION_1
        plain = [word for word in words if "=" not in word and word != "v2"]
        do = getattr(self, f"_{command}")
        answer: str = do(*plain, **given) if command in NO_VERSION else do(version, *plain, **given)
        return answer

    # ------------------------------------------------------------------------- the world

    def _at(self, now_ms: str) -> str:
        self.now_ms = int(now_ms)
        return "ok"

    def _stored(self, version: int, name: str, **given: str) -> str:
        self.log[name] = Transaction(
            transactional_id=name,
            producer_id=int(given["id"]),
            producer_epoch=int(given["epoch"]),
            timeout_ms=int(given.get("timeout", 60_000)),
            state=STATES[given["state"]],
            partitions=parse_partitions(given["in"].split(",") if "in" in given else []),
            started_ms=int(given.get("started", -1)),
            updated_ms=int(given.get("updated", self.now_ms)),
            client_version=version,
            last_producer_id=int(given.get("last", -1)) if version else -1,
            next_producer_id=int(given.get("next", -1)),
        )
        return "ok"

    def _load(self) -> str:
        """By way of the bytes, as a coordinator does."""
        self.machine = TransactionMachine()
        self.asked.clear()
        records = tuple(
            Record(encode_key(name), encode_value(transaction))
            for name, transaction in self.log.items()
            if transaction is not None
        )
        assert self._handle(Replayed(records, -1)) == "nothing"
        return self._handle(Loaded())

    # -------------------------------------------------------------------------- requests

    def _init(self, name: str, **given: str) -> str:
        epoch = int(given.get("epoch", -1))
        fresh = self._drawn(self.machine.needs_producer_id(name, epoch))
        return self._handle(
            InitProducerId(
                request=self._request(),
                transactional_id=name,
                timeout_ms=int(given.get("timeout", 60_000)),
                producer_id=int(given.get("id", -1)),
                producer_epoch=epoch,
                fresh_producer_id=fresh,
            )
        )

    def _add(self, version: int, name: str, who: str, *partitions: str) -> str:
        producer_id, epoch = parse_who(who)
        return self._handle(
            AddPartitions(
                request=self._request(),
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=parse_partitions(partitions),
                client_version=version,
            )
        )

    def _end(self, version: int, name: str, who: str, how: str) -> str:
        producer_id, epoch = parse_who(who)
        assert how in {"commit", "abort"}
        return self._handle(
            EndTransaction(
                request=self._request(),
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                commit=how == "commit",
                client_version=version,
                fresh_producer_id=self._drawn(self.machine.ends_producer_id(name, version)),
            )
        )

    def _verify(self, name: str, who: str, *partitions: str) -> str:
        producer_id, epoch = parse_who(who)
        found = self.machine.verify(
            name,
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=sorted(parse_partitions(partitions)),
        )
        return " ".join(f"{partition}={error.name}" for partition, error in found.items())

    # --------------------------------------------------------------------------- outcomes

    def _written(self, name: str, error: str = "NONE") -> str:
        transaction = self.asked.pop(name)
        if error == "NONE":
            self.log[name] = transaction
        return self._handle(Appended(name, ErrorCode[error]))

    def _markers(self, name: str, who: str, *partitions: str) -> str:
        producer_id, epoch = parse_who(who)
        return self._handle(MarkersWritten(name, producer_id, epoch, parse_partitions(partitions)))

    def _timeouts(self) -> str:
        return self._handle(TimeoutsDue())

    def _expire(self, expiration_ms: str) -> str:
        return self._handle(ExpirationDue(int(expiration_ms)))

    def _resign(self) -> str:
        return self._handle(Resigned())

    def _show(self) -> str:
        return "\n".join(f"{t.transactional_id}: {words(t)}" for t in self.machine) or "nothing"

    # ---------------------------------------------------------------------------- inside

    def _request(self) -> int:
        self.requests += 1
        return self.requests

    def _drawn(self, wanted: bool) -> int | None:
        if not wanted:
            return None
        self.fresh += 1
        return self.fresh

    def _handle(self, event: object) -> str:
        return self._show_effects(self.machine.handle(event, Now(self.now_ms, self.now_ms)))  # type: ignore[arg-type]

    def _show_effects(self, effects: list[Effect]) -> str:
        return "\n".join(filter(None, map(self._effect, effects))) or "nothing"

    def _effect(self, effect: Effect) -> str:
        match effect:
            case Append(name, transaction, again):
                assert name not in self.asked, "one append for an id"
                self.asked[name] = transaction
                output = "tombstone" if transaction is None else words(transaction)
                return f"append {name} {output}{' again' if again else ''}"
            case Answer(request, (error, producer_id, epoch)):
                has = "" if producer_id < 0 else f" {producer_id}/{epoch}"
                return f"answer #{request} {error.name}{has}"
            case WriteMarkers(name, producer_id, epoch, commit, partitions):
                how = "commit" if commit else "abort"
                return f"markers {name} {producer_id}/{epoch} {how} {shown(partitions)}"
            case Proceed(event):
                return self._handle(event)
            case Note():
                return ""


NO_VERSION = {
    "at", "load", "init", "verify", "written", "markers", "timeouts", "expire", "resign", "show",
}  # fmt: skip


def words(t: Transaction) -> str:
    output = [STATE_NAMES[t.state], f"{t.producer_id}/{t.producer_epoch}"]
    if t.partitions:
        output.append(f"in={shown(t.partitions)}")
    if t.started_ms >= 0:
        output.append(f"started={t.started_ms}")
    if t.next_producer_id >= 0:
        output.append(f"next={t.next_producer_id}")
    return " ".join(output)


def shown(partitions: frozenset[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


def parse_who(text: str) -> tuple[int, int]:
    producer_id, _, epoch = text.partition("/")
    return int(producer_id), int(epoch)


def parse_partitions(names: tuple[str, ...] | list[str]) -> frozenset[TopicPartition]:
    split = (name.rpartition("-") for name in names)
    return frozenset(TopicPartition(topic, int(number)) for topic, _, number in split)


def lines_of(stage: Stage, text: str) -> str:
    out = []
    for block in text.strip("\n").split("\n\n"):
        head, _, _ = block.partition("\n----")
        comments = [line for line in head.split("\n") if line.startswith("#")]
        commands = [line for line in head.split("\n") if line and not line.startswith("#")]
        answers = [stage.play(line) for line in commands]
        body = [*commands, "----", *answers] if commands else []
        out.append("\n".join([*comments, *body]))
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: pathlib.Path) -> None:
    played = lines_of(Stage(), path.read_text())
    if os.environ.get("ODRADEK_REWRITE"):
        path.write_text(played)
    assert played == path.read_text()
