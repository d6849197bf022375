"""Plays the scenarios in `group/*.txt` and compares what the group coordinator answers.

A scenario is text: a command, `----`, the answers, and how the groups stand that it is about.
`ODRADEK_REWRITE=1 pytest tests/golden` writes the answers again; read the diff and commit it only
if you can explain the change.

    options initial_rebalance_delay_ms=0 size_max=2          before anything else
    after 500                                       so many ms pass; what is due happens
    join A [id=a-1] [instance=i] [session=10000] [rebalance=20000] [v=9] [speaks=range:t,roundrobin]
                                                    the client A; a new one gets the id A-n;
                                                    - are no protocols
    sync A gen=1 id=A-1 [A-1=x B-1=y] [type=..] [protocol=..]
    heartbeat gen=1 id=A-1 [instance=i]
    leave A-1 @i ...                                by id, or by instance id
    commit t-0=5 [t-1=6] [gen=1 id=A-1] [producer=7] [keep=1000] [metadata=...]
    stored | stored NOT_COORDINATOR                 the outcome of all appends
    marker 7 commit|abort                           a producer's transaction ended
    offsets [t-0]                                   of the group
    delete-offsets t-0 | delete-group | delete-topic t | expire
    reload [epoch]                                  another broker reads the log
    describe

The group is `g`, unless `group=` names another. What is appended is committed at `stored`, or at
once after `auto`.
"""

import os
import pathlib

import pytest

from odradek.group.effects import (
    Answer,
    Append,
    AppendTombstones,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    PartitionsAnswer,
    SyncAnswer,
)
from odradek.group.events import (
    Appended,
    CommitOffsets,
    Committer,
    DeadlineReached,
    DeleteGroup,
    DeleteOffsets,
    ExpirationDue,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Sync,
    TopicsDeleted,
    TransactionEnded,
)
from odradek.group.machine import GroupMachine
from odradek.group.options import GroupOptions
from odradek.group.records import CommittedOffset, decode_group_key, decode_offset_key, key_version
from odradek.model.clock import Now
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.record.coordinator import Loaded, MarkerReplayed, Note, Replayed, Resigned
from odradek.record.records import Record
from odradek.wire.codec import encoder
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription

SCENARIOS = sorted((pathlib.Path(__file__).parent / "group").glob("*.txt"))
WALL_MS = 1_000_000


class Stage:
    """One coordinator, and its log."""

    def __init__(self) -> None:
        self.options = GroupOptions(initial_rebalance_delay_ms=0)
        self.machine = GroupMachine(self.options)
        self.now_ms = 0
        self.given_ids: dict[str, int] = {}
        self.waiting: list[Append] = []
        self.requests: list[str] = []  # by number: the client
        self.commits: set[int] = set()  # the numbers of requests that commit
        self.auto = False
        self.log: list[tuple[bytes, bytes | None, int] | tuple[int, bool]] = []

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    def play(self, line: str) -> list[str]:
        command, *words = line.split()
        plain = [word for word in words if "=" not in word]
        given = dict(word.split("=", 1) for word in words if "=" in word)
        group = given.pop("group", "g")
        if command == "options":
            for name, value in given.items():
                setattr(self.options, name, int(value))
            return []
        method = getattr(self, "_" + command.replace("-", "_"))
        answers = method(group, plain, given)
        if self.machine.next_deadline_ms is not None:
            due = self.machine.next_deadline_ms <= self.now_ms
            if due:
                answers += self._handle(DeadlineReached())
        return answers

    # --------------------------------------------------------------------- members

    def _after(self, group, plain, given):
        end_ms = self.now_ms + int(plain[0])
        answers = []
        while (due_ms := self.machine.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            answers += self._handle(DeadlineReached())
        self.now_ms = end_ms
        return answers

    def _join(self, group, plain, given):
        (who,) = plain
        number = self.given_ids.get(who, 0) + 1
        version = int(given.get("v", 9))
        joining = Join(
            request=self._request(who),
            group_id=group,
            member_id=given.get("id", ""),
            fresh_member_id=f"{who}-{number}",
            group_instance_id=given.get("instance"),
            client_id=f"client-{who}",
            client_host=f"/{who}",
            session_timeout_ms=int(given.get("session", 10_000)),
            rebalance_timeout_ms=int(given.get("rebalance", 20_000)),
            protocol_type=given.get("type", "consumer"),
            protocols=speaks(given.get("speaks", "range:t")),
            can_be_given_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        answers = self._handle(joining)
        if any(f"{who}-{number}" in answer for answer in answers) or (
            group in self.machine.groups and f"{who}-{number}" in self.machine.groups[group].members
        ):
            self.given_ids[who] = number
        return answers

    def _sync(self, group, plain, given):
        (who,) = plain
        event = Sync(
            request=self._request(who),
            group_id=group,
            generation=int(given.pop("gen")),
            member_id=given.pop("id"),
            group_instance_id=given.pop("instance", None),
            protocol_type=given.pop("type", None),
            protocol=given.pop("protocol", None),
            assignments={name: part.encode() for name, part in given.items()},
        )
        return self._handle(event)

    def _heartbeat(self, group, plain, given):
        return self._handle(
            Heartbeat(
                request=self._request(""),
                group_id=group,
                generation=int(given["gen"]),
                member_id=given["id"],
                group_instance_id=given.get("instance"),
            )
        )

    def _leave(self, group, plain, given):
        members = tuple(
            LeavingMember(member_id="", group_instance_id=word[1:])
            if word.startswith("@")
            else LeavingMember(member_id=word.partition("@")[0], group_instance_id=after_at(word))
            for word in plain
        )
        return self._handle(Leave(request=self._request("leave"), group_id=group, members=members))

    # --------------------------------------------------------------------- offsets

    def _commit(self, group, plain, given):
        committer = Committer(
            member_id=given.pop("id", ""),
            generation=int(given.pop("gen", -1)),
            group_instance_id=given.pop("instance", None),
            producer_id=int(given.pop("producer", -1)),
        )
        wall_ms = self.now.wall_ms
        keep = int(given.pop("keep", -1))
        metadata = given.pop("metadata", "")
        offsets = {
            parse(name): CommittedOffset(
                int(offset), -1, metadata, wall_ms, -1 if keep < 0 else wall_ms + keep
            )
            for name, offset in given.items()
        }
        number = self._request("")
        self.commits.add(number)
        event = CommitOffsets(request=number, group_id=group, committer=committer, offsets=offsets)
        return self._handle(event)

    def _marker(self, group, plain, given):
        producer_id, how = plain
        self.log.append((int(producer_id), how == "commit"))
        return self._handle(TransactionEnded(int(producer_id), how == "commit"))

    def _offsets(self, group, plain, given):
        offsets = self.machine.committed_offsets(group)
        partitions = [parse(name) for name in plain] or sorted(offsets)
        return [
            f"{each} {offsets[each].offset if each in offsets else -1}"
            + (" unstable" if self.machine.is_unstable(group, each) else "")
            for each in partitions
        ]

    def _stored(self, group, plain, given):
        error = ErrorCode[plain[0]] if plain else ErrorCode.NONE
        answers = []
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            answers += self._handle(Appended(each.number, error))
        return answers

    def _auto(self, group, plain, given):
        self.auto = True
        return []

    # --------------------------------------------------------------------- removal

    def _delete_offsets(self, group, plain, given):
        return self._handle(DeleteOffsets(self._request(""), group, tuple(map(parse, plain))))

    def _delete_group(self, group, plain, given):
        return self._handle(DeleteGroup(self._request("group"), group))

    def _delete_topic(self, group, plain, given):
        return self._tell_each(lambda group_id: TopicsDeleted(group_id, frozenset(plain)))

    def _expire(self, group, plain, given):
        return self._tell_each(ExpirationDue)

    def _tell_each(self, event):
        groups = list(self.machine.groups)
        return [answer for group_id in groups for answer in self._handle(event(group_id))]

    # ------------------------------------------------------------------ leadership

    def _reload(self, group, plain, given):
        answers = self._handle(Resigned())
        self.machine = GroupMachine(self.options)
        self.waiting.clear()
        for offset, entry in enumerate(self.log):
            if len(entry) == 2:
                self._handle(MarkerReplayed(*entry))
            else:
                key, value, producer_id = entry
                self._handle(Replayed((Record(key, value, offset=offset),), producer_id))
        return answers + self._handle(Loaded()) + self._describe(group, plain, given)

    def _describe(self, group, plain, given):
        return [describe(found) for _, found in sorted(self.machine.groups.items())] or ["nothing"]

    # ---------------------------------------------------------------------- effects

    def _request(self, client):
        self.requests.append(client)
        return len(self.requests) - 1

    def _handle(self, event):
        effects = self.machine.handle(event, self.now)
        self.machine.validate()
        return [answer for effect in effects for answer in self._perform(effect)]

    def _perform(self, effect):
        match effect:
            case Answer(request, answer):
                client = self.requests[request]
                lines = output(answer, is_commit=request in self.commits)
                return [f"{client} {line}" if client else line for line in lines]
            case Append():
                self.log += [(key, value, effect.producer_id) for key, value in effect.records]
                self.waiting.append(effect)
                line = []
                if effect.base_sequence < 0:
                    group = self.machine.groups[effect.group_id]
                    line = [f"append {effect.group_id} generation {group.generation}"]
                return line + (self._stored(effect.group_id, [], {}) if self.auto else [])
            case AppendTombstones(keys):
                self.log += [(key, None, -1) for key in keys]
                return [f"tombstones {' '.join(map(erased, keys))}"]
            case Note(text):
                return [f"({text})"]


def output(answer, *, is_commit) -> list[str]:
    match answer:
        case PartitionsAnswer(error, partitions):
            own = [f"{each} {found.name}" for each, found in partitions.items()]
            return [*own, "committed" if is_commit and not error else error.name]
        case HeartbeatAnswer(error):
            return [error.name]
        case LeaveAnswer(_, members):
            return [" ".join(error.name for error in members)]
    return [member_answer(answer)]


def member_answer(answer) -> str:
    if answer.error is not ErrorCode.NONE:
        named = f" id={answer.member_id}" if isinstance(answer, JoinAnswer) else ""
        return answer.error.name + named
    if isinstance(answer, SyncAnswer):
        return f"is given {answer.assignment.decode() or 'nothing'} by {answer.protocol}"
    text = f"is {answer.member_id} in generation {answer.generation} by {answer.protocol}"
    text += f", led by {answer.leader}"
    if answer.members:
        members = ", ".join(
            m.member_id + (f"@{m.group_instance_id}" if m.group_instance_id else "")
            for m in answer.members
        )
        text += f"; members {members}"
    return text + ("; assignment stays" if answer.skip_assignment else "")


def describe(group) -> str:
    text = f"{group.group_id} {group.state.value} generation {group.generation}"
    if group.members:
        text += f" {group.protocol_type}/{group.protocol} led by {group.leader}:"
        for member in group.members.values():
            text += f" {member.member_id}"
            text += f"@{member.group_instance_id}" if member.group_instance_id else ""
            text += f"={member.assignment.decode()}" if member.assignment else ""
    for partition, commit in sorted(group.offsets.committed.items()):
        text += f" {partition}:{commit.offset}"
    return text


def speaks(text):
    protocols = []
    for each in text.split(",") if text != "-" else ():
        name, _, topics = each.partition(":")
        subscription = ConsumerProtocolSubscription(topics=topics.split("+") if topics else [])
        metadata = b"\x00\x00" + encoder(ConsumerProtocolSubscription, 0)(subscription)
        protocols.append((name, b"?" if topics == "?" else metadata))
    return tuple(protocols)


def erased(key):
    if key_version(key) == 2:
        return decode_group_key(key)
    group_id, topic, partition = decode_offset_key(key)
    return f"{group_id}:{topic}-{partition}"


def after_at(word):
    return word.partition("@")[2] or None


def parse(name):
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: pathlib.Path) -> None:
    stage, out = Stage(), []
    for block in path.read_text().strip("\n").split("\n\n"):
        head, _, _ = block.partition("\n----")
        comments = [line for line in head.split("\n") if line.startswith("#")]
        commands = [line for line in head.split("\n") if line and not line.startswith("#")]
        answers = [answer for line in commands for answer in stage.play(line)]
        body = [*commands, "----", *(answers or ["ok"])] if commands else []
        out.append("\n".join([*comments, *body]))
    played = "\n\n".join(out) + "\n"
    if os.environ.get("ODRADEK_REWRITE"):
        path.write_text(played)
    assert played == path.read_text()
