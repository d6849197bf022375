"""Plays the scenarios in `controller/*.txt` and compares what the controller answers.

A scenario is text: a command, `----`, the answer. `ODRADEK_REWRITE=1 pytest tests/golden`
writes the answers again; read the diff and commit it only if you can explain the change.

    controller epoch=3 [deletion=off]      a controller is elected
    brokers 1 2 3@70                       these are registered (@: broker epoch, 100 + id else)
    topic t 0=1,2 1=2,1 [no-id] [remade]   a topic's node, as it is when it is read next
    topic t 0=3,1,2+3-1                    ... with replicas that are added and removed
    no-topic t                             ... it is deleted
    state t-0 leader=1 epoch=4 isr=1,2 version=7 [by=2] [recovering]
    load [delete=t] [t-0=2,3] [elect=t-0]  all of that is read, by a new controller
    see brokers|topics|topic t|deletions t   ... or because a watch fired
    accept | refuse t-0 leader=.. | gone t-0   the outcome of a store (the others are accepted)
    unclean t | unclean                    which topics allow unclean election
    deleted 1 t-0=NONE                     a broker's answer to StopReplica
    answered 1 t-0=KAFKA_STORAGE_ERROR     a broker's answer to LeaderAndIsr
    log-dir-failed 1                       a broker's notice
    alter 1 t-0 epoch=4 isr=1,2 version=7 [recovering] [seen=2@70]    AlterPartition
    shutdown 1[@70] [with=1,2,3]           ControlledShutdown, of these brokers at the same time
    elect preferred|unclean t-0 ...        ElectLeaders
    see elections t-0 ...                  /admin/preferred_replica_election
    reassign t-0=2,3 t-1=cancel            AlterPartitionReassignments
    reassigning [t-0 ...]                  ListPartitionReassignments
    see reassignments t-0=2,3              /admin/reassign_partitions
    rebalance 10                           the timer, and leader.imbalance.per.broker.percentage
    unclean-enabled t                      the topic's configuration allows it now
    states                                 the states of partitions and replicas
"""

import os
import pathlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from odradek.controller.answers import (
    ElectionsAnswer,
    IsrChangesAnswer,
    ReassignmentsAnswer,
    ReassignmentsList,
    ShutdownAnswer,
)
from odradek.controller.controller import Controller
from odradek.controller.effects import (
    Answer,
    AskUnclean,
    Connect,
    Disconnect,
    Effect,
    PartitionUpdate,
    Proceed,
    ReadTopics,
    RecordDecisions,
    RemoveDeletions,
    RemoveElections,
    RemoveReassignments,
    RemoveTopics,
    Resign,
    SendRequests,
    StoreStates,
    WriteAssignments,
    WriteTopics,
)
from odradek.controller.events import (
    AssignmentsWritten,
    BrokersChanged,
    BrokersLoaded,
    ControlledShutdownRequested,
    DeletionsChanged,
    ElectionKind,
    ElectionsRequested,
    ElectionsSeen,
    Event,
    IsrChange,
    IsrChangesRequested,
    LeaderAndIsrAnswered,
    LoadingFinished,
    LogDirsFailed,
    ReassignmentsListed,
    ReassignmentsRequested,
    ReassignmentsSeen,
    RebalanceDue,
    ReplicasDeleted,
    Stored,
    TopicsChanged,
    TopicSeen,
    TopicsLoaded,
    TopicsRead,
    TopicsRemoved,
    UncleanAllowed,
    UncleanElectionsEnabled,
)
from odradek.controller.proposals import Accepted, Conflicting, StoredState
from odradek.model.cluster import Broker
from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition
from odradek.model.plain import from_plain, to_plain
from odradek.model.trampoline import Trampoline

SCENARIOS = sorted((pathlib.Path(__file__).parent / "controller").glob("*.txt"))


class Stage:
    """One controller, to which events are given as text."""

    def __init__(self) -> None:
        self.controller = Controller(controller_epoch=1)
        self.brokers: tuple[Broker, ...] = ()
        self.topics: dict[str, TopicSeen] = {}
        self.states: dict[TopicPartition, StoredState] = {}
        self.trampoline = Trampoline(self.controller.handle)
        self.effects: Iterator[Effect | None] = iter(())  # that are left
        self.waiting: Effect | None = None  # for the scenario to decide the outcome
        self.out: list[str] = []

    def play(self, line: str) -> str:
        command, *words = line.split()
        plain = [word for word in words if "=" not in word]
        given = dict(word.split("=", 1) for word in words if "=" in word)
        method: Callable[[list[str], dict[str, str]], None]
        method = getattr(self, "on_" + command.replace("-", "_"))
        self.out = []
        method(plain, given)
        return "\n".join(self.out)

    # ------------------------------------------------------------------ what there is

    def on_controller(self, plain: list[str], given: dict[str, str]) -> None:
        self.controller = Controller(
            controller_epoch=int(given["epoch"]), deletion_enabled=given.get("deletion") != "off"
        )

    def on_brokers(self, plain: list[str], given: dict[str, str]) -> None:
        self.brokers = tuple(
            Broker(id=id_, end_points=(), broker_epoch=epoch) for id_, epoch in map(lived, plain)
        )

    def on_topic(self, plain: list[str], given: dict[str, str]) -> None:
        name, *flags = plain
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name + ("remade" in flags) * "'")
        self.topics[name] = TopicSeen(
            name=name,
            id=None if "no-id" in flags else topic_id,
            spare_id=topic_id,
            assignments={int(n): parse_assignment(text) for n, text in given.items()},
        )

    def on_no_topic(self, plain: list[str], given: dict[str, str]) -> None:
        del self.topics[plain[0]]

    def on_state(self, plain: list[str], given: dict[str, str]) -> None:
        by = int(given.get("by", self.controller.context.controller_epoch))
        self.states[parse(plain[0])] = StoredState(parse_state(plain, given), by)

    def on_states(self, plain: list[str], given: dict[str, str]) -> None:
        for partition in self.controller.context.partitions():
            replicas = " ".join(f"{r}:{s.value}" for r, s in partition.replicas.items())
            self.out.append(f"{partition.name} {partition.state.value} {replicas}")
        deletion = self.controller.machines.deletion
        for topic, why in sorted({**deletion.halted, **deletion.waiting}.items()):
            self.out.append(f"{topic} not deleted: {why}")

    # ------------------------------------------------------------------- what happens

    def on_load(self, plain: list[str], given: dict[str, str]) -> None:
        deletions = tuple(filter(None, given.pop("delete", "").split(",")))
        elections = given.pop("elect", None)
        elected = tuple(map(parse, elections.split(","))) if elections is not None else None
        self.take(BrokersLoaded(self.brokers))
        self.take(TopicsLoaded(tuple(self.topics.values()), self.states))
        self.take(LoadingFinished(deletions, parse_targets(given), elected))

    def on_see(self, plain: list[str], given: dict[str, str]) -> None:
        what, *names = plain
        events: dict[str, Callable[[], Event]] = {
            "brokers": lambda: BrokersChanged(self.brokers),
            "topics": lambda: TopicsChanged(tuple(self.topics)),
            "topic": lambda: TopicsRead(tuple(self.topics[name] for name in names)),
            "deletions": lambda: DeletionsChanged(tuple(names)),
            "reassignments": lambda: ReassignmentsSeen(parse_targets(given)),
            "elections": lambda: ElectionsSeen(tuple(map(parse, names))),
        }
        self.take(events[what]())

    def on_deleted(self, plain: list[str], given: dict[str, str]) -> None:
        broker, epoch = lived(plain[0])
        self.take(ReplicasDeleted(broker, epoch, parse_errors(given)))

    def on_answered(self, plain: list[str], given: dict[str, str]) -> None:
        broker, epoch = lived(plain[0])
        self.take(LeaderAndIsrAnswered(broker, epoch, parse_errors(given)))

    def on_log_dir_failed(self, plain: list[str], given: dict[str, str]) -> None:
        self.take(LogDirsFailed(tuple(map(int, plain))))

    def on_alter(self, plain: list[str], given: dict[str, str]) -> None:
        broker, epoch = lived(plain[0])
        wanted = parse_state(plain, {"leader": str(broker), **given})
        seen = dict(map(lived, filter(None, given.get("seen", "").split(","))))
        change = IsrChange(parse(plain[1]), wanted, seen)
        self.take(IsrChangesRequested(broker, epoch, (change,)))

    def on_shutdown(self, plain: list[str], given: dict[str, str]) -> None:
        together_with = tuple(int(word) for word in given.get("with", "").split(",") if word)
        self.take(ControlledShutdownRequested(*lived(plain[0]), together_with))

    def on_elect(self, plain: list[str], given: dict[str, str]) -> None:
        names = tuple(map(parse, plain[1:]))
        self.take(ElectionsRequested(ElectionKind[plain[0].upper()], names or None))

    def on_reassign(self, plain: list[str], given: dict[str, str]) -> None:
        self.take(ReassignmentsRequested(parse_targets(given)))

    def on_reassigning(self, plain: list[str], given: dict[str, str]) -> None:
        self.take(ReassignmentsListed(tuple(map(parse, plain)) or None))

    def on_rebalance(self, plain: list[str], given: dict[str, str]) -> None:
        self.take(RebalanceDue(int(plain[0])))

    def on_unclean_enabled(self, plain: list[str], given: dict[str, str]) -> None:
        self.take(UncleanElectionsEnabled(tuple(plain) or None))

    # ------------------------------------------------------------ what became of effects

    def on_accept(self, plain: list[str], given: dict[str, str]) -> None:
        self.stored({})

    def on_refuse(self, plain: list[str], given: dict[str, str]) -> None:
        by = int(given.get("by", self.controller.context.controller_epoch))
        self.stored({parse(plain[0]): StoredState(parse_state(plain, given), by)})

    def on_gone(self, plain: list[str], given: dict[str, str]) -> None:
        self.stored({parse(plain[0]): None})

    def stored(self, refused: dict[TopicPartition, StoredState | None]) -> None:
        assert isinstance(self.waiting, StoreStates), self.waiting
        assert refused.keys() <= {p.partition for p in self.waiting.proposals}, refused
        outcomes: list[Accepted | Conflicting] = []
        for proposal in self.waiting.proposals:
            if proposal.partition in refused:
                outcomes.append(Conflicting(proposal, refused[proposal.partition]))
            else:
                outcomes.append(Accepted(proposal, proposal.proposed.partition_epoch + 1))
        self.report(Stored(tuple(outcomes)))

    def on_unclean(self, plain: list[str], given: dict[str, str]) -> None:
        assert isinstance(self.waiting, AskUnclean), self.waiting
        self.report(UncleanAllowed({name: name in plain for name in self.waiting.topics}))

    # ------------------------------------------------------------------------- settling

    def take(self, event: Event) -> None:
        assert self.waiting is None, f"first decide the outcome of {self.waiting}"
        assert from_plain(Event, to_plain(event)) == event
        self.trampoline = Trampoline(self.controller.handle)
        self.effects = self.trampoline.settle(event)
        self.go_on()

    def report(self, outcome: Event) -> None:
        self.waiting = None
        self.trampoline.report(outcome)
        self.go_on()

    def go_on(self) -> None:
        for effect in self.effects:
            self.controller.validate(is_settled=False)
            if effect is None:
                continue
            assert from_plain(Effect, to_plain(effect)) == effect
            self.out += show(effect)
            if isinstance(effect, StoreStates | AskUnclean):
                self.waiting = effect
            if isinstance(effect, StoreStates | AskUnclean | Resign):
                return
            self.trampoline.report(*self.perform(effect))
        self.controller.validate(is_settled=True)

    def perform(self, effect: Effect) -> Iterable[Event]:
        match effect:
            case Proceed(step):
                return [step]
            case ReadTopics(names):
                return [TopicsRead(tuple(self.topics[n] for n in names if n in self.topics))]
            case WriteAssignments(assignments):
                there = {n: a for n, a in assignments.items() if n.topic in self.topics}
                for name, assignment in there.items():
                    seen = self.topics[name.topic]
                    changed = {**seen.assignments, name.partition: assignment}
                    self.topics[name.topic] = replace(seen, assignments=changed)
                return [AssignmentsWritten(there)]
            case RemoveTopics(names):
                return [TopicsRemoved(names)]
        return []


def show(effect: Effect) -> Iterable[str]:  # noqa: C901, PLR0912 - one case for each effect
    match effect:
        case StoreStates(proposals):
            for p in proposals:
                yield f"store {p.partition} {words(p.proposed)} if-version={version(p.proposed)}"
        case SendRequests(updates, brokers, _):
            yield from show_news(updates, brokers)
        case RecordDecisions(decisions):
            yield from (f"record {decision}" for decision in decisions)
        case Answer(answer):
            yield from show_answer(answer)
        case WriteTopics(topics):
            yield from (f"write-topic {seen.name} with an id" for seen in topics)
        case WriteAssignments(assignments):
            for name, assignment in assignments.items():
                yield f"write-topic {name} {show_assignment(assignment)}"
        case RemoveReassignments(partitions):
            yield f"forget-reassignments {' '.join(map(str, partitions))}"
        case RemoveElections():
            yield "forget-elections"
        case ReadTopics(names):
            yield f"read-topics {' '.join(names)}"
        case AskUnclean(names):
            yield f"ask-unclean {' '.join(names)}"
        case RemoveTopics(names):
            yield f"remove-topics {' '.join(names)}"
        case RemoveDeletions(names):
            yield f"forget-deletions {' '.join(names)}"
        case Connect(broker):
            yield f"connect {broker.id}"
        case Disconnect(broker):
            yield f"disconnect {broker}"
        case Resign(reason):
            yield f"resign: {reason}"


def show_news(updates, brokers) -> Iterable[str]:
    for request, items in (
        ("leader-and-isr", [(n.broker, n.leader_and_isr) for n in updates]),
        ("update-metadata", [(n.broker, n.metadata) for n in updates]),
        ("stop-replica", [(n.broker, n.stop) for n in updates]),
    ):
        to: dict[str, list[int]] = {}
        for broker, reported in items:
            if reported is not None:
                text = ", ".join(show_partition(request, item) for item in reported)
                to.setdefault(text, []).append(broker)
        for text, told_brokers in to.items():
            alive = f" [alive {' '.join(map(str, brokers))}]" if request[0] == "u" else ""
            yield f"{request} to={','.join(map(str, told_brokers))}{alive} {text}".rstrip()


def show_partition(request: str, item) -> str:
    if not isinstance(item, PartitionUpdate):
        return f"{item.partition} epoch={item.leader_epoch}" + (" delete" if item.delete else "")
    text = f"{item.partition} {words(item.leader_and_isr)}"
    if item.is_new and request == "leader-and-isr":
        text += " new"
    if item.offline and request == "update-metadata":
        text += f" offline={','.join(map(str, item.offline))}"
    return text + (" being-deleted" if item.being_deleted else "")


def show_answer(answer) -> Iterable[str]:
    match answer:
        case ShutdownAnswer(error, remaining):
            yield f"answer {error.name} remaining={','.join(map(str, remaining))}"
        case IsrChangesAnswer(error, partitions):
            yield f"answer {error.name}"
            for name, result in partitions.items():
                ok = isinstance(result, LeaderAndIsr)
                shown = f"{words(result)} version={result.partition_epoch}" if ok else result.name
                yield f"answer {name} {shown}"
        case ReassignmentsAnswer(refusals):
            for name, refusal in refusals.items():
                reported = f"{refusal.error.name} {refusal.message}" if refusal else "NONE"
                yield f"answer {name} {reported}"
        case ReassignmentsList(assignments):
            for name, assignment in assignments.items():
                yield f"answer {name} {show_assignment(assignment)}"
        case ElectionsAnswer(errors, _):
            yield from (f"answer {name} {error.name}" for name, error in errors.items())


def words(s: LeaderAndIsr) -> str:
    recovering = " recovering" if s.leader_recovery_state else ""
    isr = ",".join(map(str, s.isr))
    return f"leader={s.leader} epoch={s.leader_epoch} isr={isr}{recovering}"


def version(s: LeaderAndIsr) -> str:
    return "none" if s.partition_epoch == -1 else str(s.partition_epoch)


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))


def lived(word: str) -> tuple[int, int]:
    id_, _, epoch = word.partition("@")
    return int(id_), int(epoch or 100 + int(id_))


def parse(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def parse_assignment(text: str) -> Assignment:
    held, adding, removing = re.fullmatch(r"([\d,]+)(?:\+([\d,]+))?(?:-([\d,]+))?", text).groups()
    return Assignment(replicas=ids(held), adding=ids(adding or ""), removing=ids(removing or ""))


def show_assignment(a: Assignment) -> str:
    held, adding, removing = (",".join(map(str, r)) for r in (a.replicas, a.adding, a.removing))
    return held + (adding and f"+{adding}") + (removing and f"-{removing}")


def parse_targets(given: dict[str, str]) -> dict[TopicPartition, tuple[int, ...] | None]:
    return {parse(name): None if text == "cancel" else ids(text) for name, text in given.items()}


def parse_state(plain: list[str], given: dict[str, str]) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader=int(given["leader"]),
        leader_epoch=int(given["epoch"]),
        isr=ids(given["isr"]),
        partition_epoch=int(given["version"]),
        leader_recovery_state=int("recovering" in plain),
    )


def parse_errors(given: dict[str, str]) -> dict[TopicPartition, ErrorCode]:
    return {parse(name): ErrorCode[error] for name, error in given.items()}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: pathlib.Path) -> None:
    stage, out = Stage(), []
    for block in path.read_text().strip("\n").split("\n\n"):
        head, _, _ = block.partition("\n----")
        comments = [line for line in head.split("\n") if line.startswith("#")]
        commands = [line for line in head.split("\n") if line and not line.startswith("#")]
        answers = [stage.play(line) for line in commands]
        output = [answer for answer in answers if answer] or ["ok"]
        body = [*commands, "----", *output] if commands else []
        out.append("\n".join([*comments, *body]))
    played = "\n\n".join(out) + "\n"
    if os.environ.get("ODRADEK_REWRITE"):
        path.write_text(played)
    assert played == path.read_text()
