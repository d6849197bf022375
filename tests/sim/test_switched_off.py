"""Rules of coordinators and brokers are switched off: a seed has to find each fault again.

Each rule is missing in an earlier version of this code, or in Apache Kafka 3.9. A search over a few
seeds must find a violation without the rule, and none with it.
"""

import pytest

from odradek.broker import server
from odradek.broker.cluster import deleted_partitions, features, store_age
from odradek.broker.controller.channels import ControllerChannels
from odradek.broker.coordinators import coordinator_log
from odradek.broker.coordinators.coordinator_counts import CoordinatorCounts
from odradek.broker.replication import replica_manager
from odradek.controller.context import ControllerContext
from odradek.group import offsets
from odradek.group.events import CommitOffsets
from odradek.group.machine import GroupMachine
from odradek.log import log, recovery, upgrade
from odradek.log.disk import StorageError, changing
from odradek.model.errors import ErrorCode
from odradek.record.batch import MAGIC, MAGIC_AT
from odradek.sim.clients.transactions import TransactionOptions
from odradek.sim.run.faults import Kind
from odradek.sim.run.simulation import Options, simulate
from odradek.sim.traits import Trait
from odradek.sim.world import cluster


def a_partition_outside_the_metadata_cache_counts_as_deleted(monkeypatch):
    """As Apache Kafka 3.9: a transaction completes, and a new partition gets no marker."""
    monkeypatch.setattr(deleted_partitions, "is_deleted", lambda *_: True)


def registrations_are_read_once(monkeypatch):
    """A broker that unregisters while they are read is taken for one of Apache Kafka."""
    monkeypatch.setattr(features, "is_one_picture", lambda before, after: True)


def an_offset_expires_although_a_transactional_commit_is_pending(monkeypatch):
    """As Apache Kafka 3.9: only pending commits without a transaction prevent the expiration."""
    monkeypatch.setattr(offsets, "can_expire", lambda *, is_staged, is_pending: not is_staged)


def a_failed_commit_drops_earlier_pending_commits(monkeypatch):
    """As Apache Kafka 3.9, which keeps only the last of several pipelined commits."""

    def unsettled(commits, settled):
        if settled is commits[-1]:
            return []
        return [commit for commit in commits if commit is not settled]

    monkeypatch.setattr(offsets, "unsettled", unsettled)


def a_failed_load_is_not_retried(monkeypatch):
    """A read that fails while a coordinator loads: it stays in loading."""
    monkeypatch.setattr(coordinator_log, "retry_after_ms", lambda failures: None)


def keys_move_when_an_internal_topic_grows(monkeypatch):
    """A group is hashed over the present number of partitions, as in Kafka after a restart."""

    def of(self, topic):
        shown = self.cache.topic(topic)
        return 0 if shown is None else len(shown.partitions)

    monkeypatch.setattr(CoordinatorCounts, "of", of)


def commits_of_an_older_generation_are_accepted(monkeypatch):
    """A member that missed a rebalance commits the offsets of its earlier assignment."""
    handle = GroupMachine.handle

    def accepted(self, event, now):
        if isinstance(event, CommitOffsets) and event.committer.generation >= 0:
            group = self.groups.get(event.group_id)
            if group is not None:
                committer = event.committer._replace(generation=group.generation)
                event = event._replace(committer=committer)
        return handle(self, event, now)

    monkeypatch.setattr(GroupMachine, "handle", accepted)


def requests_are_refused_while_the_registration_is_unknown(monkeypatch):
    """And they are not sent again: the controller considers the broker informed."""

    async def is_never_current(self, broker):
        return False

    class NothingWaits:
        def __init__(self, wrap_frames):
            pass

        def registered(self):
            pass

    monkeypatch.setattr(server, "EarlyRequests", NothingWaits)
    monkeypatch.setattr(ControllerChannels, "is_current", is_never_current)


def the_errno_alone_decides(monkeypatch):
    """An abort marker is written before its transaction index; EMFILE takes nothing offline."""
    monkeypatch.setattr(log, "prepare", lambda *_: None)
    monkeypatch.setattr(changing, "__exit__", lambda *_: None)


def a_role_is_taken_once(monkeypatch):
    """A replica whose log cannot be created has none until its broker restarts."""

    async def once(take, _name):
        try:
            return take()
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR

    monkeypatch.setattr(replica_manager, "tried_again", once)


def connections_have_no_share_of_the_descriptors(monkeypatch):
    """Strangers who connect take the descriptors that the logs need."""
    divide = cluster.shares

    def divided(*given, **named):
        return divide(*given, **named)._replace(connections=2**31 - 1)

    monkeypatch.setattr(cluster, "shares", divided)


def a_restored_store_is_believed(monkeypatch):
    """As Apache Kafka: nothing compares the logs with a store that was put back from a backup."""

    async def nothing(*_):
        return ""

    monkeypatch.setattr(store_age, "find_proof", nothing)


def the_isr_is_believed(monkeypatch):
    """As Apache Kafka: a broker leads that is in the ISR, also with an older copy of its logs."""
    monkeypatch.setattr(ControllerContext, "doubtful", lambda self, partition: ())


def only_the_first_message_of_a_segment_shows_its_format(monkeypatch):
    """Messages of format v0 and v1 behind a batch of v2 are taken for damage."""

    def first_old_message(segment, files, *, known_below):
        del files, known_below
        yield
        head = segment.file.read_now(0, MAGIC_AT + 1)
        return 0 if len(head) > MAGIC_AT and head[MAGIC_AT] < MAGIC else None

    monkeypatch.setattr(recovery, "first_old_message", first_old_message)


def messages_are_not_searched_above_what_is_known(monkeypatch):
    """What Kafka appends to a directory that it gets back is not converted."""
    search = upgrade.first_old_message

    def first_old_message(segment, files, *, known_below):
        if known_below:
            return None
        return (yield from search(segment, files, known_below=0))

    monkeypatch.setattr(recovery, "first_old_message", first_old_message)


def of_transactions(trait, *kinds):
    options = TransactionOptions(version=2, late_copies=False)
    return Options(brokers=3, seconds=30.0, transactions=options, traits={trait}, kinds=kinds)


def of_groups(trait, *kinds):
    return Options(brokers=3, seconds=30.0, groups=True, traits={trait}, kinds=kinds)


ALONE = Options(
    brokers=1, seconds=10.0, groups=True, traits={Trait.REGISTERS}, kinds=(Kind.LOAD_ERROR,)
)
OF_BACKUPS = Options(
    brokers=3,
    seconds=20.0,
    traits=frozenset(),
    kinds=(Kind.STORE_BACKUP, Kind.KILL, Kind.LEADER_CHANGES),
)
OF_LOG_BACKUPS = Options(brokers=3, seconds=8.0, traits=frozenset(), kinds=(Kind.LOGS_BACKUP,))
OF_DESCRIPTORS = Options(brokers=1, seconds=10.0, traits=frozenset(), kinds=(Kind.DESCRIPTORS,))
PAUSES = (Kind.ISOLATE, Kind.SLOW_LINK, Kind.PAUSE, Kind.SLOW_NETWORK)
SLOW_STARTS = Options(
    brokers=3, seconds=6.0, traits={Trait.SLOW_STORE}, kinds=(*[Kind.SLOW_STORE] * 3, Kind.KILL)
)
FORMATS = Options(
    brokers=1, seconds=20.0, traits={Trait.OLD}, kinds=(Kind.OLD_FORMATS, Kind.CRASH, Kind.KILL)
)
FOUND = [
    (only_the_first_message_of_a_segment_shows_its_format, 1, FORMATS),
    (messages_are_not_searched_above_what_is_known, 1, FORMATS),
    (
        a_partition_outside_the_metadata_cache_counts_as_deleted,
        102,
        of_transactions(Trait.YOUNG, Kind.LATE_UPDATE_METADATA, Kind.KILL),
    ),
    (registrations_are_read_once, 1, of_groups(Trait.STATIC, Kind.ROLL, Kind.KILL)),
    (
        an_offset_expires_although_a_transactional_commit_is_pending,
        2,
        of_transactions(Trait.REGISTERS, Kind.KILL),
    ),
    (
        a_failed_commit_drops_earlier_pending_commits,
        191,
        of_groups(Trait.REGISTERS, *PAUSES),
    ),
    (a_failed_load_is_not_retried, 4, ALONE),
    (a_restored_store_is_believed, 1, OF_BACKUPS),
    (the_isr_is_believed, 1, OF_LOG_BACKUPS),
    (keys_move_when_an_internal_topic_grows, 1, of_groups(Trait.REGISTERS, Kind.GROW_INTERNAL)),
    (the_errno_alone_decides, 0, of_transactions(Trait.STRAYS, Kind.DESCRIPTORS)),
    (a_role_is_taken_once, 0, of_transactions(Trait.YOUNG, Kind.DESCRIPTORS)),
    (connections_have_no_share_of_the_descriptors, 2, OF_DESCRIPTORS),
    (commits_of_an_older_generation_are_accepted, 2, of_groups(Trait.LATE, Kind.PAUSE, Kind.RESET)),
    (requests_are_refused_while_the_registration_is_unknown, 1, SLOW_STARTS),
]
SEEDS_MAX = 10  # from the recorded one on: what happens in a seed changes with the code


@pytest.mark.parametrize(
    ("rule", "seed", "options"), FOUND, ids=[rule.__name__ for rule, *_ in FOUND]
)
def test_a_seed_finds_it_and_finds_nothing_when_the_rule_holds(monkeypatch, rule, seed, options):
    with monkeypatch.context() as switched_off:
        rule(switched_off)
        seeds = range(seed, seed + SEEDS_MAX)
        found = next((s for s in seeds if simulate(s, options).violations), None)
    assert found is not None, f"{SEEDS_MAX} seeds from {seed} on have found nothing"
    outcome = simulate(found, options)
    assert not outcome.violations, outcome.replay
