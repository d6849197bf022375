"""Why it is as it is, in plain sentences: from how things stand and from the journal of causes.

Rules on values, for `odradek why`. Each sentence that tells of trouble says what brought it about
and when, and what mends it or when the next look at it is due.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

Entry = Mapping[str, Any]
Partition = Mapping[str, Any]

HISTORY: Final = 12  # entries of the journal that are told at the end
WELL_MAX: Final = 8  # partitions that are well and are named all the same


@dataclass(frozen=True, slots=True)
class Picture:
    """What was found out. `state` is the controller's answer, None if nobody reigns."""

    state: Mapping[str, Any] | None
    journal: Sequence[Entry]  # of all brokers, the oldest first
    now: datetime
    bootstrap: str = ""
    local: Mapping[int, str] = field(default_factory=dict)  # brokers here -> running, stopped ...
    options: str = ""  # what a command of `odradek` needs besides
    time: Callable[[int], datetime] = lambda at_ms: datetime.fromtimestamp(
        at_ms / 1000
    ).astimezone()

    def clock(self, at_ms: int) -> str:
        """When something was, as shortly as it can be said."""
        at = self.time(at_ms)
        same_day = at.date() == self.now.date()
        return f"{at:%H:%M:%S}" if same_day else f"{at:%Y-%m-%d %H:%M:%S}"

    def newest(self, true: Callable[[Entry], bool]) -> Entry | None:
        """The last entry of which something is true."""
        return next((entry for entry in reversed(self.journal) if true(entry)), None)

    def story(self, broker: int) -> str:
        """What is known of a broker's last coming and going."""
        gone = self.newest(lambda e: e["verdict"] == "BROKER_GONE" and e["broker"] == broker)
        came = self.newest(lambda e: e["verdict"] == "BROKER_JOINED" and e["broker"] == broker)
        if not self.registered(broker):
            return (
                f"broker {broker} went away at {self.clock(gone['at_ms'])}"
                if gone
                else (f"broker {broker} is not there")
            )
        if gone and came and (came["at_ms"], came["number"]) >= (gone["at_ms"], gone["number"]):
            went, back = self.clock(gone["at_ms"]), self.clock(came["at_ms"])
            return f"broker {broker} went away at {went} and came back at {back}"
        return f"broker {broker} came at {self.clock(came['at_ms'])}" if came else ""

    def registered(self, broker: int) -> bool:
        """Whether the controller knows it."""
        return self.state is not None and str(broker) in self.state["brokers"]

    def start(self, broker: int) -> str:
        """How a broker is brought back."""
        if self.local.get(broker) == "paused":
            return f"let it go on: odradek resume {broker}{self.options}"
        if broker in self.local:
            return f"start it: odradek start {broker}{self.options}"
        return "start it"


# --------------------------------------------------------------------------------- a topic


def explain_topic(picture: Picture, topic: str, partition: int | None = None) -> list[str]:
    """All that is to be said of a topic, or of one of its partitions."""
    told = [
        e
        for e in picture.journal
        if e["verdict"] and e["topic"] == topic and partition in (None, e["partition"])
    ]
    return [*_topic(picture, topic, partition), *_history(picture, told)]


def _topic(picture: Picture, topic: str, partition: int | None) -> Iterator[str]:
    state = picture.state
    if state is None:
        yield _nobody_reigns()
        return
    about = state["topic"]
    if about["being_deleted"]:
        yield _deletion(picture, topic, about["deletion_waits"])
    elif not about["exists"]:
        gone = picture.newest(lambda e: e["verdict"] == "TOPIC_DELETED" and e["topic"] == topic)
        when = f"; it was deleted at {picture.clock(gone['at_ms'])}" if gone else ""
        yield f"there is no topic {topic}{when}"
        return
    partitions = state["partitions"]
    if partition is not None and not partitions:
        yield f"topic {topic} has no partition {partition}"
        return
    well = []
    for each in partitions:
        sentences = list(_partition(picture, each))
        yield from sentences
        if not sentences:
            well.append(each)
    for each in well[:WELL_MAX]:
        yield f"{_name(each)} is well: its preferred {each['leader']} leads, all are in sync"
    if len(well) > WELL_MAX:
        yield f"and so are {len(well) - WELL_MAX} more"


def _deletion(picture: Picture, topic: str, waits: str | None) -> str:
    if not waits:
        return f"topic {topic} is being deleted"
    asked = picture.newest(lambda e: e["verdict"] == "DELETION_HALTED" and e["topic"] == topic)
    since = f" since {picture.clock(asked['at_ms'])}" if asked else ""
    mend = "it goes on by itself when that is over"
    if "broker" in waits:
        mend = "it goes on when that broker serves again"
    return f"topic {topic} is to be deleted, and waits{since}: {waits}; {mend}"


def _partition(picture: Picture, p: Partition) -> Iterator[str]:
    if p["leader"] is None:
        yield (
            f"{_name(p)} never had a leader: none of {_list(p['replicas'])} was alive; "
            f"{picture.start(p['replicas'][0])}"
        )
        return
    if p["leader"] < 0:
        yield _leaderless(picture, p)
    elif p["leader"] != p["replicas"][0]:
        yield _not_preferred(picture, p)
    yield from _reassignment(picture, p)
    yield from _out_of_sync(picture, p)
    if p["recovering"]:
        elected = _elected(picture, p)
        when = f" at {picture.clock(elected['at_ms'])}" if elected else ""
        yield (
            f"{_name(p)} was given a leader from outside the ISR{when}: records that were "
            "acknowledged before may be lost"
        )


def _leaderless(picture: Picture, p: Partition) -> str:
    lost = picture.newest(lambda e: _is_about(e, p) and e["verdict"] == "LEFT_WITHOUT_LEADER")
    since = (
        f" since {picture.clock(lost['at_ms'])}, because {lost['cause']['says']}" if lost else ""
    )
    stories = "; ".join(filter(None, map(picture.story, p["isr"])))
    who = f"only {_list(p['isr'])} may lead, for only there is everything that was acknowledged"
    command = _election(picture, p, "unclean")
    return (
        f"{_name(p)} has no leader{since}: {who} ({stories}); {picture.start(p['isr'][0])}, or, if "
        f"its records may be lost, let another lead: {command}"
    )


def _not_preferred(picture: Picture, p: Partition) -> str:
    preferred = p["replicas"][0]
    elected = _elected(picture, p)
    why = ""
    if elected:
        why = f" since {picture.clock(elected['at_ms'])}, because {elected['cause']['says']}"
    story = picture.story(preferred)
    head = f"{_name(p)} has leader {p['leader']}, not its preferred {preferred}{why}"
    return "; ".join(filter(None, (head, story, _what_keeps_it(picture, p))))


def _what_keeps_it(picture: Picture, p: Partition) -> str:
    state, preferred = picture.state, p["replicas"][0]
    assert state is not None
    if preferred in p["dead"]:
        why = picture.start(preferred)
    elif preferred in p["on_failed_dirs"]:
        why = f"its log directory on broker {preferred} has failed: mend the disk, restart it"
    elif preferred in state["shutting_down"]:
        why = f"broker {preferred} is about to leave"
    elif preferred not in p["isr"]:
        why = f"replica {preferred} is not in sync yet: it has to catch up first"
    else:
        due = state["imbalance"].get(str(preferred), {"should_lead": 1, "led_by_others": 1})
        why = f"{_balance(state, due)}; run {_election(picture, p, 'preferred')} to move it now"
    return why


def _balance(state: Mapping[str, Any], due: Mapping[str, int]) -> str:
    """Whether the timer will give leaderships back, and when it looks next."""
    percent = 100 * due["led_by_others"] / due["should_lead"]
    limit, seconds = state["rebalance"]["percentage_max"], state["rebalance"]["in_seconds"]
    above = "is above" if percent > limit else "is not above"
    head = f"imbalance {percent:.0f} % {above} {limit} %"
    if seconds is None:
        return f"{head}, but auto.leader.rebalance.enable is false: nobody gives it back"
    return f"{head}; next check in {seconds:.0f} s"


def _reassignment(picture: Picture, p: Partition) -> Iterator[str]:
    if not p["adding"] and not p["removing"]:
        return
    verdicts = ("REASSIGNMENT_STARTED", "REASSIGNMENT_RESUMED")
    begun = picture.newest(lambda e: _is_about(e, p) and e["verdict"] in verdicts)
    since = (
        f" since {picture.clock(begun['at_ms'])}, because {begun['cause']['says']}" if begun else ""
    )
    target = [r for r in p["replicas"] if r not in p["removing"]]
    missing = [r for r in target if r not in p["isr"]]
    dead = [r for r in missing if r in p["dead"]]
    waits = f"{_list(missing)} not in sync yet" if missing else "all of them are in sync"
    if dead:
        waits += f", {_list(dead)} not even there: {picture.start(dead[0])}"
    yield (
        f"{_name(p)} moves to {_list(target)}{since}: {waits}; "
        "kafka-reassign-partitions --cancel takes it back"
    )


def _out_of_sync(picture: Picture, p: Partition) -> Iterator[str]:
    coming = set(p["adding"])
    for replica in p["replicas"]:
        if replica in p["isr"] or replica in coming or p["leader"] < 0:
            continue
        left = _left(picture, p, replica)
        since = ""
        if left:
            since = f" since {picture.clock(left['at_ms'])}, because {left['cause']['says']}"
        if replica in p["dead"]:
            mend = f"{picture.story(replica)}; {picture.start(replica)}"
        elif replica in p["on_failed_dirs"]:
            mend = f"its log directory has failed: mend the disk, restart broker {replica}"
        else:
            mend = "it is copying what it missed, and joins by itself when it has all"
        yield f"{_name(p)}: replica {replica} is out of sync{since}; {mend}"


# -------------------------------------------------------------------------------- a broker


def explain_broker(picture: Picture, broker: int) -> list[str]:
    """All that is to be said of a broker."""
    told = [e for e in picture.journal if e["verdict"] and e["broker"] == broker]
    return [*_broker(picture, broker), *_history(picture, told)]


def _broker(picture: Picture, broker: int) -> Iterator[str]:
    state = picture.state
    if state is None:
        yield _nobody_reigns()
        return
    partitions = state["partitions"]
    story = picture.story(broker)
    if not picture.registered(broker):
        here = picture.local.get(broker)
        process = f" (its process here: {here})" if here else ""
        yield f"broker {broker} is not registered: {story}{process}; {picture.start(broker)}"
    else:
        role = ", and is the controller" if state["controller_id"] == broker else ""
        since = f" ({story})" if story else ""
        yield f"broker {broker} is registered{since}{role}"
    if broker in state["shutting_down"]:
        yield f"broker {broker} is leaving: it gives up what it leads"
    yield from _holdings(picture, broker, partitions)
    fenced = picture.newest(lambda e: e["verdict"] == "BROKER_FENCED" and e["broker"] == broker)
    if fenced:
        yield f"broker {broker} was fenced at {picture.clock(fenced['at_ms'])}: {fenced['detail']}"


def _holdings(picture: Picture, broker: int, partitions: Sequence[Partition]) -> Iterator[str]:
    state = picture.state
    assert state is not None
    leads = [p for p in partitions if p["leader"] == broker]
    lagging = [p for p in partitions if broker not in p["isr"] and p["leader"] is not None]
    failed = [p for p in partitions if broker in p["on_failed_dirs"]]
    leaderless = [p for p in partitions if (p["leader"] or 0) < 0 and broker in p["isr"]]
    due = state["imbalance"].get(str(broker))
    yield f"it holds {len(partitions)} partitions and leads {len(leads)}"
    if due and due["led_by_others"] and picture.registered(broker):
        yield (
            f"others lead {due['led_by_others']} of {due['should_lead']} partitions that it should "
            f"lead: {_balance(state, due)}; run kafka-leader-election {_bootstrap(picture)}"
            "--election-type preferred --all-topic-partitions to move them now"
        )
    if failed:
        yield (
            f"a log directory of broker {broker} has failed, and {_some(failed)} with it: "
            "mend the disk, restart the broker"
        )
    if leaderless:
        yield f"{_some(leaderless)} cannot be led by anybody else: {picture.start(broker)}"
    waiting = [p for p in lagging if p not in failed and p not in leaderless]
    if waiting:
        yield f"it is out of sync on {_some(waiting)}"


# ---------------------------------------------------------------------------------- shared


def _history(picture: Picture, told: Sequence[Entry]) -> Iterator[str]:
    if told:
        yield ""
        yield "what the controller decided:"
    for entry in told[-HISTORY:]:
        yield f"  {picture.clock(entry['at_ms'])}  {entry['says']}"


def _nobody_reigns() -> str:
    return (
        "no controller answers, so how things stand cannot be said; odradek status says which "
        "brokers run"
    )


def _is_about(entry: Entry, p: Partition) -> bool:
    if entry["verdict"] is None:
        return False
    return (entry["topic"], entry["partition"]) == (p["topic"], p["partition"])


def _elected(picture: Picture, p: Partition) -> Entry | None:
    verdicts = ("LEADER_ELECTED", "LEADER_ELECTED_UNCLEAN")
    return picture.newest(
        lambda e: (
            _is_about(e, p) and e["verdict"] in verdicts and e["after"]["leader"] == p["leader"]
        )
    )


def _left(picture: Picture, p: Partition, replica: int) -> Entry | None:
    return picture.newest(lambda e: _is_about(e, p) and _took_out(e, replica))


def _took_out(entry: Entry, replica: int) -> bool:
    before, after = entry["before"], entry["after"]
    return bool(before and after and replica in before["isr"] and replica not in after["isr"])


def _election(picture: Picture, p: Partition, kind: str) -> str:
    return (
        f"kafka-leader-election {_bootstrap(picture)}--election-type {kind} "
        f"--topic {p['topic']} --partition {p['partition']}"
    )


def _bootstrap(picture: Picture) -> str:
    return f"--bootstrap-server {picture.bootstrap} " if picture.bootstrap else ""


def _name(p: Partition) -> str:
    return f"{p['topic']}-{p['partition']}"


def _some(partitions: Sequence[Partition]) -> str:
    named = ", ".join(map(_name, partitions[:3]))
    return named if len(partitions) <= 3 else f"{named} and {len(partitions) - 3} more"


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
