"""Explains the state of a topic or a broker from the controller's report and the journal.

Pure functions for `odradek why`. A line names its subject, the state, since when, the cause, and
what to do. Partitions that differ only in their number share a line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from odradek.model.clock import WallMs
from odradek.model.command import command, flag
from odradek.model.partition import TopicPartition
from odradek.model.sentence import Sentence, Words, joined, sentence
from odradek.plan.commands import Caller, brokers, clock, some
from odradek.plan.fetch_problems import fetch_problem
from odradek.plan.rules.cut_off import CutOff, rejoin

Entry = Mapping[str, Any]
Partition = Mapping[str, Any]

CUTS: Final = 5  # the latest losses of records that are printed
HISTORY: Final = 12  # entries of the journal that are printed at the end
_ELECTED: Final = ("LEADER_ELECTED", "LEADER_ELECTED_UNCLEAN")
_MOVED: Final = ("REASSIGNMENT_STARTED", "REASSIGNMENT_RESUMED", "REASSIGNMENT_COMPLETED",
                 "EPOCH_RAISED")  # fmt: skip
_COPIES: Final = "copies what it misses, and joins the ISR by itself"
_WELL: Final = "the preferred replica leads, and all replicas are in sync"


@dataclass(frozen=True, slots=True)
class Picture:
    """The reports of the brokers. `state` is the controller's; None if no controller answers."""

    state: Mapping[str, Any] | None
    journal: Sequence[Entry]  # of all brokers, the oldest first
    wall_ms: WallMs
    caller: Caller = field(default_factory=Caller)
    directories: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    isr_min: int = 1  # min.insync.replicas of the topic, reported by a leader
    foreign: Sequence[int] = ()  # brokers that offer no reports: not Odradek's
    # Of each broker, the records that left its logs since its start, but not by retention.
    cuts: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    # Of each broker: its fetches that fail.
    fetch_problems: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    cut_off: Mapping[int, CutOff] = field(default_factory=dict)  # brokers that run without store
    # Of each broker: its log directories that were put back to an earlier copy before its start.
    older_directories: Mapping[int, Sequence[str]] = field(default_factory=dict)
    exhausted: Mapping[int, Sentence] = field(default_factory=dict)  # without descriptors

    @property
    def known_state(self) -> Mapping[str, Any]:
        """The controller's state, for sentences that are made only with it."""
        if self.state is None:
            raise LookupError("no controller answered")
        return self.state

    def clock(self, at_ms: int) -> str:
        """A time; with the date only if it is not today's."""
        return clock(at_ms, self.wall_ms)

    def newest(self, true: Callable[[Entry], bool]) -> Entry | None:
        """The latest entry that satisfies the predicate."""
        return next((entry for entry in reversed(self.journal) if true(entry)), None)

    def last(self, verdict: str, broker: int) -> Entry | None:
        """The latest entry with this verdict about a broker."""
        return self.newest(lambda e: e["verdict"] == verdict and e["broker"] == broker)

    def registered(self, broker: int) -> bool:
        """Whether the controller has the broker in its state."""
        return self.state is not None and str(broker) in self.state["brokers"]

    def story(self, broker: int) -> str:
        """Since when a broker is offline or registered again, and its process; "" if not known."""
        gone, came = self.last("BROKER_GONE", broker), self.last("BROKER_JOINED", broker)
        if not self.registered(broker):
            without = self.cut_off.get(broker)
            if without is not None:
                return (
                    f"broker {broker} runs, and is not registered: it is cut off from "
                    f"{without.store} since {self.clock(without.since_ms)}"
                )
            since = f"broker {broker} is offline" + (
                f" since {self.clock(gone['at_ms'])}" if gone else ""
            )
            process = self.caller.process(broker)
            return f"{since} ({process})" if process else since
        if gone and came and (came["at_ms"], came["number"]) >= (gone["at_ms"], gone["number"]):
            return f"broker {broker} is registered again since {self.clock(came['at_ms'])}"
        return ""

    def bring_back(self, broker: int) -> Sentence:
        """How to have a broker serve again."""
        without = self.cut_off.get(broker)
        return rejoin(broker, without) if without else self.caller.bring_back(broker)

    def failed_directory(self, broker: int) -> str:
        """Which log directory of a broker is offline, since when and why."""
        failed = [d for d in self.directories.get(broker, ()) if d["is_offline"]]
        if not failed:
            return f"a log directory of broker {broker} is offline"
        names = some([d["path"] for d in failed])
        since = f" since {self.clock(failed[0]['since_ms'])}" if failed[0]["since_ms"] else ""
        why = f" ({failed[0]['why']})" if failed[0]["why"] else ""
        return f"log directory {names} of broker {broker} is offline{since}{why}"


class Slot(Enum):
    """A place in a statement that is filled for all partitions that share it."""

    SINCE = auto()  # since when
    LEADS = auto()  # which brokers lead
    ELECT = auto()  # the command that starts an election


class Line(NamedTuple):
    """A statement about one partition; equal ones of several partitions become one line."""

    partition: Partition
    says: tuple[Words | Slot, ...]
    since_ms: int | None = None


def grouped(picture: Picture, lines: Iterable[Line]) -> list[Sentence]:
    """Equal lines merged, in the order of their first occurrence."""
    groups: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        kind = _kind_of_election(line.partition) if Slot.ELECT in line.says else ""
        groups.setdefault((line.says, kind), []).append(line)
    return [_one(picture, group) for group in groups.values()]


def _one(picture: Picture, group: Sequence[Line]) -> Sentence:
    names = some([_name(line.partition) for line in group])
    filled = (
        _filled(picture, each, group) if isinstance(each, Slot) else each for each in group[0].says
    )
    return sentence(f"{names}: ", *filled)


def _filled(picture: Picture, slot: Slot, group: Sequence[Line]) -> Words:
    match slot:
        case Slot.SINCE:
            times = [line.since_ms for line in group if line.since_ms is not None]
            return f" since {picture.clock(min(times))}" if times else ""
        case Slot.LEADS:
            leaders = {line.partition["leader"] for line in group}
            return f"{brokers(leaders)} {'leads' if len(leaders) < 2 else 'lead'}"
        case Slot.ELECT:
            return _election(picture, [line.partition for line in group])


# --------------------------------------------------------------------------------- a topic


def explain_topic(picture: Picture, topic: str, partition: int | None = None) -> list[Sentence]:
    """The lines about a topic, or about one of its partitions."""
    decided = [
        e
        for e in picture.journal
        if e["verdict"] and e["topic"] == topic and partition in (None, e["partition"])
    ]
    lost = [
        _cut(picture, broker, cut)
        for broker, cuts in sorted(picture.cuts.items())
        for cut in cuts
        if cut["topic"] == topic and partition in (None, cut["partition"])
    ]
    return [*_topic(picture, topic, partition), *lost[-CUTS:], *_history(picture, decided)]


def _topic(picture: Picture, topic: str, partition: int | None) -> Iterator[Sentence]:
    state = picture.state
    if state is None:
        yield no_controller(picture)
        return
    about = state["topic"]
    if about["being_deleted"]:
        yield sentence(_deletion(picture, topic, about["deletion_waits"]))
    elif not about["exists"]:
        gone = picture.newest(lambda e: e["verdict"] == "TOPIC_DELETED" and e["topic"] == topic)
        when = f": it was deleted at {picture.clock(gone['at_ms'])}" if gone else ""
        yield sentence(f"topic {topic} does not exist{when}")
        return
    partitions = state["partitions"]
    if partition is not None and not partitions:
        yield sentence(f"topic {topic} has no partition {partition}")
        return
    lines, well = [], []
    for each in partitions:
        found = list(_partition(picture, each))
        lines += found
        if not found:
            well.append(Line(each, (_WELL,)))
    yield from grouped(picture, lines)
    yield from grouped(picture, well)


def _deletion(picture: Picture, topic: str, waits: str | None) -> str:
    if not waits:
        return f"topic {topic} is being deleted"
    asked = picture.newest(lambda e: e["verdict"] == "DELETION_HALTED" and e["topic"] == topic)
    since = f" since {picture.clock(asked['at_ms'])}" if asked else ""
    then = "it continues by itself when that is over"
    if "broker" in waits:
        then = "it continues when that broker serves again"
    return f"topic {topic}: its deletion waits{since}: {waits}; {then}"


def _partition(picture: Picture, p: Partition) -> Iterator[Line]:
    if p["leader"] is None:
        yield Line(
            p,
            (
                (
                    f"no leader yet: none of its replicas ({_list(p['replicas'])}) was registered "
                    "when it was created; "
                ),
                picture.bring_back(p["replicas"][0]),
            ),
        )
        return
    if p["leader"] < 0:
        yield _leaderless(picture, p)
    elif p["leader"] != p["replicas"][0]:
        yield _not_preferred(picture, p)
    yield from _too_few(picture, p)
    yield from _reassignment(picture, p)
    yield from _out_of_sync(picture, p)
    if p["recovering"]:
        elected = _elected(picture, p)
        yield Line(
            p,
            (
                "its leader was elected from outside the ISR",
                Slot.SINCE,
                " (unclean election): records that were acknowledged before may be lost",
            ),
            elected["at_ms"] if elected else None,
        )


def _leaderless(picture: Picture, p: Partition) -> Line:
    lost = picture.newest(lambda e: _is_about(e, p) and e["verdict"] == "LEFT_WITHOUT_LEADER")
    failed = p["on_failed_dirs"]
    here = [each for each in p["isr"] if picture.registered(each) and each not in failed]
    away = [each for each in p["replicas"] if not picture.registered(each)]
    awaited = away if here and away else p["isr"]
    cause, stories = _because(picture, lost, awaited)
    if awaited is away:  # they were killed, or their logs are empty or an older copy
        why = f"{brokers(here)} may lack acknowledged records that {brokers(away)} may have"
    else:
        why = f"only {brokers(awaited)} may lead, because every acknowledged record is only there"
    return Line(
        p,
        (
            "no leader",
            Slot.SINCE,
            (
                f"{cause}: clients can neither write nor read; {why}"
                f"{f' ({stories})' if stories else ''}; "
            ),
            picture.bring_back(awaited[0]),
            "; or, if records may be lost: ",
            Slot.ELECT,
        ),
        lost["at_ms"] if lost else None,
    )


def _not_preferred(picture: Picture, p: Partition) -> Line:
    preferred = p["replicas"][0]
    elected = _elected(picture, p)
    moved = picture.newest(lambda e: _is_about(e, p) and e["verdict"] in _MOVED)
    cause, story = _because(picture, elected, [preferred])
    since_ms = elected["at_ms"] if elected else None
    if moved and elected and moved["at_ms"] > elected["at_ms"]:
        cause, since_ms = " because a reassignment changed the replicas", moved["at_ms"]
        story = picture.story(preferred)
    begins = (Slot.LEADS, f" instead of the preferred replica {preferred}", Slot.SINCE, cause)
    return Line(
        p, (*begins, f"; {story}" if story else "", "; ", *_what_keeps_it(picture, p)), since_ms
    )


def _what_keeps_it(picture: Picture, p: Partition) -> tuple[Words | Slot, ...]:
    state, preferred = picture.known_state, p["replicas"][0]
    if preferred in p["dead"]:
        return (picture.bring_back(preferred),)
    if preferred in p["on_failed_dirs"]:
        return (picture.failed_directory(preferred), "; ", _repair(picture, preferred))
    if preferred in state["shutting_down"]:
        return (f"broker {preferred} is shutting down",)
    if preferred not in p["isr"]:
        return (f"replica {preferred} is not in sync yet: it leads again after it has caught up",)
    due = state["imbalance"].get(str(preferred), {"should_lead": 1, "led_by_others": 1})
    return (f"{_balance(state, due)}; to move leadership now: ", Slot.ELECT)


def _repair(picture: Picture, broker: int) -> Sentence:
    return sentence("repair the disk, then ", picture.caller.restart(broker))


def _balance(state: Mapping[str, Any], due: Mapping[str, int]) -> str:
    """Whether the periodic check will move leadership back, and when it runs next."""
    percent = 100 * due["led_by_others"] / due["should_lead"]
    limit, seconds = state["rebalance"]["percentage_max"], state["rebalance"]["in_seconds"]
    head = f"{percent:.0f} % of its partitions are led by others, the limit is {limit} %"
    if seconds is None:
        return f"{head}, but auto.leader.rebalance.enable is false: leadership does not move back"
    verb = "moves leadership back" if percent > limit else "leaves it so"
    return f"{head}: the next check, in {seconds:.0f} s, {verb}"


def _too_few(picture: Picture, p: Partition) -> Iterator[Line]:
    isr_min = picture.isr_min
    if p["leader"] < 0 or len(p["isr"]) >= isr_min:
        return
    count = len(p["replicas"])
    if count < isr_min:
        yield Line(
            p,
            (
                (
                    f"acks=all is refused (NOT_ENOUGH_REPLICAS): it has {count} "
                    f"{'replica' if count == 1 else 'replicas'} and min.insync.replicas is "
                    f"{isr_min}; add replicas (odradek plan, kafka-reassign-partitions), or "
                ),
                picture.caller.set_option("topics", p["topic"], f"min.insync.replicas={count}"),
            ),
        )
        return
    left = [e for r in p["replicas"] if (e := _left(picture, p, r)) is not None]
    yield Line(
        p,
        (
            "acks=all is refused (NOT_ENOUGH_REPLICAS)",
            Slot.SINCE,
            (
                f": {len(p['isr'])} in sync and min.insync.replicas is {isr_min}; see the replicas "
                "that are out of sync"
            ),
        ),
        max((e["at_ms"] for e in left), default=None),
    )


def _reassignment(picture: Picture, p: Partition) -> Iterator[Line]:
    if not p["adding"] and not p["removing"]:
        return
    verdicts = ("REASSIGNMENT_STARTED", "REASSIGNMENT_RESUMED")
    begun = picture.newest(lambda e: _is_about(e, p) and e["verdict"] in verdicts)
    target = [r for r in p["replicas"] if r not in p["removing"]]
    missing = [r for r in target if r not in p["isr"]]
    dead = [r for r in missing if r in p["dead"]]
    waits: Words = f"replica {_list(missing)} is not in sync yet" if missing else "all are in sync"
    if dead:
        waits = sentence(
            f"{waits} and {brokers(dead)} {'is' if len(dead) == 1 else 'are'} offline: ",
            joined(map(picture.bring_back, sorted(dead))),
        )
    cancel = ("--cancel", "--reassignment-json-file", "FILE")
    yield Line(
        p,
        (
            f"it is being moved to {brokers(target)}",
            Slot.SINCE,
            sentence(": ", waits, "; to take it back: "),
            picture.caller.kafka("kafka-reassign-partitions", *cancel),
        ),
        begun["at_ms"] if begun else None,
    )


def _out_of_sync(picture: Picture, p: Partition) -> Iterator[Line]:
    coming = set(p["adding"])
    for replica in p["replicas"]:
        if replica in p["isr"] or replica in coming or p["leader"] < 0:
            continue
        left = _left(picture, p, replica)
        cause, story = _because(picture, left, [replica])
        if replica in p["dead"]:
            parts: list[Words] = [story, picture.bring_back(replica)]
        elif replica in p["on_failed_dirs"]:
            parts = [picture.failed_directory(replica), _repair(picture, replica)]
        elif picture.caller.local.get(replica) == "paused":
            parts = [picture.caller.process(replica), picture.bring_back(replica)]
        else:
            parts = _copying(picture, p, replica)
        yield Line(
            p,
            (f"replica {replica} is out of sync", Slot.SINCE, cause, "; ", joined(parts)),
            left["at_ms"] if left else None,
        )


def _copying(picture: Picture, p: Partition, replica: int) -> list[Words]:
    about = TopicPartition(p["topic"], p["partition"])
    entries = picture.fetch_problems.get(replica, ())
    problem = fetch_problem(entries, about, follower=replica, leader=p["leader"])
    if problem is None:
        return [f"it {_COPIES}"]
    said = problem.said(f" since {picture.clock(problem.since_ms)}")
    over = f"when that is over, it {_COPIES}"
    return [said, problem.fix(picture.caller) if problem.is_lasting else over]


# -------------------------------------------------------------------------------- a broker


def explain_broker(picture: Picture, broker: int) -> list[Sentence]:
    """The lines about a broker, from the controller's report."""
    decided = [e for e in picture.journal if e["verdict"] and e["broker"] == broker]
    return [*_broker(picture, broker), *_history(picture, decided)]


def _broker(picture: Picture, broker: int) -> Iterator[Sentence]:
    state = picture.state
    if state is None:
        yield no_controller(picture)
        return
    partitions = state["partitions"]
    story = picture.story(broker)
    if not picture.registered(broker):
        yield sentence(f"{story}; ", picture.bring_back(broker))
    else:
        role = ", and is the controller" if state["controller_id"] == broker else ""
        came = picture.last("BROKER_JOINED", broker)
        since = f" since {picture.clock(came['at_ms'])}" if came else ""
        yield sentence(f"broker {broker} is registered{since}{role}")
        if picture.caller.local.get(broker) == "paused":
            process = picture.caller.process(broker)
            yield sentence(
                f"broker {broker} does not answer: {process}; ", picture.bring_back(broker)
            )
    if broker in picture.exhausted:
        yield picture.exhausted[broker]
    if broker in state["shutting_down"]:
        yield sentence(f"broker {broker} is shutting down: it hands its leaderships over")
    yield from _holdings(picture, broker, partitions)
    emptied = picture.last("BROKER_EMPTY", broker)
    if emptied:
        yield sentence(
            f"broker {broker} registered with empty log directories at "
            f"{picture.clock(emptied['at_ms'])} ({emptied['detail']}): its replicas are copied "
            "from their leaders again, and records that no other replica had are lost"
        )
    older = picture.older_directories.get(broker)
    if older:
        yield sentence(
            f"broker {broker} started with an older copy of {', '.join(older)}: what it lacks is "
            "copied from other replicas, and what no other replica has is lost"
        )
    for cut in picture.cuts.get(broker, ())[-CUTS:]:
        yield _cut(picture, broker, cut)
    fenced = picture.last("BROKER_FENCED", broker)
    if fenced:
        at = picture.clock(fenced["at_ms"])
        yield sentence(f"broker {broker} was fenced at {at}: {fenced['detail']}")


def _cut(picture: Picture, broker: int, cut: Mapping[str, Any]) -> Sentence:
    where = f"{_name(cut)}: at {picture.clock(cut['at_ms'])} broker {broker}"
    what = f"{cut['span']} ({cut['bytes']} bytes): {cut['why']}"
    if cut["kind"] == "set-aside":
        return sentence(f"{where} set its log aside as {cut['path']}, with {what}")
    committed = f"; those below the high watermark {cut['high_watermark']} were committed"
    return sentence(f"{where} lost {what}{committed if cut['has_committed'] else ''}")


def _holdings(picture: Picture, broker: int, partitions: Sequence[Partition]) -> Iterator[Sentence]:
    state = picture.known_state
    leads = [p for p in partitions if p["leader"] == broker]
    lagging = [p for p in partitions if broker not in p["isr"] and p["leader"] is not None]
    failed = [p for p in partitions if broker in p["on_failed_dirs"]]
    leaderless = [p for p in partitions if (p["leader"] or 0) < 0 and broker in p["isr"]]
    due = state["imbalance"].get(str(broker))
    count = len(partitions)
    yield sentence(
        f"broker {broker} holds {count} {'replica' if count == 1 else 'replicas'} and leads "
        f"{len(leads)} of them"
    )
    if due and due["led_by_others"] and picture.registered(broker):
        elect = picture.caller.kafka(
            "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions"
        )
        yield sentence(
            f"broker {broker} is the preferred leader of {due['should_lead']} partitions, and "
            f"others lead {due['led_by_others']} of them: {_balance(state, due)}; to move "
            "leadership now: ",
            elect,
        )
    if failed:
        yield sentence(
            f"{_some(failed)}: offline on broker {broker}: {picture.failed_directory(broker)}; ",
            _repair(picture, broker),
        )
    if leaderless:
        yield sentence(
            f"{_some(leaderless)}: no leader, and only broker {broker} may lead; ",
            picture.bring_back(broker),
        )
    waiting = [p for p in lagging if p not in failed and p not in leaderless]
    if waiting:
        yield sentence(f"{_some(waiting)}: the replica on broker {broker} is out of sync")


# ---------------------------------------------------------------------------------- shared


def _history(picture: Picture, decided: Sequence[Entry]) -> Iterator[Sentence]:
    if decided:
        yield sentence()
        yield sentence("the controller's decisions:")
    for entry in decided[-HISTORY:]:
        yield sentence(f"  {picture.clock(entry['at_ms'])}  {entry['says']}")


def no_controller(picture: Picture) -> Sentence:
    """What to do if no broker reports that it is the controller."""
    if picture.foreign:
        return sentence(
            f"the controller reports no decisions: it runs on a broker that is not Odradek's "
            f"({brokers(picture.foreign)}); what Kafka's protocol offers is in ",
            command("odradek", "doctor", *picture.caller.server),
            " and ",
            picture.caller.kafka("kafka-topics", "--describe"),
        )
    away = [id_ for id_, state in sorted(picture.caller.local.items()) if state != "running"]
    what = picture.caller.bring_all_back(away) if away else "see that one broker runs"
    return sentence("no controller answers, so the state of the cluster is not known; ", what)


def _because(picture: Picture, entry: Entry | None, ids: Sequence[int]) -> tuple[str, str]:
    """The cause of a decision, and since when these brokers are offline or registered again.

    The second is "" if the cause is that they went offline and they still are.
    """
    stories = "; ".join(filter(None, map(picture.story, ids)))
    if entry is None:
        return "", stories
    says = entry["cause"]["says"]
    if says == f"{brokers(ids)} went offline" and not any(map(picture.registered, ids)):
        known = "; ".join(filter(None, map(picture.caller.process, ids)))
        verb = "is" if len(ids) == 1 else "are"
        return f" because {brokers(ids)} {verb} offline{f' ({known})' if known else ''}", ""
    return f" because {says}", stories


def _is_about(entry: Entry, p: Partition) -> bool:
    if entry["verdict"] is None:
        return False
    return (entry["topic"], entry["partition"]) == (p["topic"], p["partition"])


def _elected(picture: Picture, p: Partition) -> Entry | None:
    return picture.newest(
        lambda e: (
            _is_about(e, p) and e["verdict"] in _ELECTED and e["after"]["leader"] == p["leader"]
        )
    )


def _left(picture: Picture, p: Partition, replica: int) -> Entry | None:
    return picture.newest(lambda e: _is_about(e, p) and _took_out(e, replica))


def _took_out(entry: Entry, replica: int) -> bool:
    before, after = entry["before"], entry["after"]
    return bool(before and after and replica in before["isr"] and replica not in after["isr"])


def _kind_of_election(p: Partition) -> str:
    return "unclean" if p["leader"] < 0 else "preferred"


def _election(picture: Picture, partitions: Sequence[Partition]) -> Sentence:
    p = partitions[0]
    kind = _kind_of_election(p)
    which = (*flag("--topic", p["topic"]), *flag("--partition", p["partition"]))
    if len(partitions) > 1 and kind == "preferred":
        which = ("--all-topic-partitions",)
    elect = picture.caller.kafka("kafka-leader-election", "--election-type", kind, *which)
    more = len(partitions) > 1 and kind == "unclean"
    return sentence(elect, " (and so for each of them)" if more else "")


def _name(p: Partition) -> str:
    return f"{p['topic']}-{p['partition']}"


def _some(partitions: Sequence[Partition]) -> str:
    return some([_name(p) for p in partitions])


def _list(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
