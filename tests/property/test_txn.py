"""The transaction coordinator under producers that lose answers, appends that fail, and failovers.

The log is real bytes; after a failover the next coordinator is made from it. In any order of all
this:

    one decision     what is decided stays, over failures and failovers: all markers are the same
    fencing          after a producer has got a later epoch, no request with an earlier one succeeds
    no second half   a producer whose transaction the coordinator has aborted cannot continue in its
                     epoch: it would commit what comes next without what came before
    epochs           a producer id and epoch are given to one producer only, or to its retry
    progress         until a decided transaction is complete, an append or a marker is outstanding
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.model.clock import Now
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition
from odradek.model.trampoline import Trampoline
from odradek.record.coordinator import Loaded, Note, Replayed, Resigned
from odradek.record.records import Record
from odradek.txn.effects import Answer, Append, Proceed, ProducerAnswer, WriteMarkers
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
from odradek.txn.transaction import (
    EPOCH_MAX,
    VALID_PREVIOUS,
    VERSION_1,
    VERSION_2,
    State,
    Transaction,
)

NAME = "x"
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
FAILURES = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
]
REFUSALS = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
}


class Producer:
    """A client's own producer id and epoch."""

    def __init__(self):
        self.id = -1
        self.epoch = -1
        self.opened = None  # in which id and epoch it has a transaction, and has not ended it


class CoordinatorLife(RuleBasedStateMachine):
    @initialize(epoch=st.sampled_from([None, EPOCH_MAX - 3]))
    def begin(self, epoch):
        self.log = []  # (key, value)
        self.now_ms = 1_000
        self.drawn = 100
        self.requests = {}  # number -> what to do with the answer
        self.count = 0
        self.producers = [Producer(), Producer()]
        self.given = {}  # (id, epoch) -> producer
        self.newest = ((-1, -1), None)  # the latest that a client got, and which client
        self.cut_off = set()  # id and epoch of those whose transaction another client has aborted
        self.decision = None  # of the transaction that is prepared: id, epoch, how
        self.outstanding = []
        self.append = None
        self.previous = {}
        if epoch is not None:
            worn = Transaction(
                transactional_id=NAME, producer_id=7, producer_epoch=epoch, timeout_ms=100,
                updated_ms=self.now_ms, last_producer_id=7,
            )  # fmt: skip
            self.log.append((encode_key(NAME), encode_value(worn)))
        self.load()

    def load(self):
        self.machine = TransactionMachine()
        self.trampoline = Trampoline(
            lambda event: self.machine.handle(event, Now(self.now_ms, self.now_ms))
        )
        self.handle(Replayed(tuple(Record(*each) for each in self.log), -1))
        found = self.machine.find(NAME)
        self.previous = {} if found is None else {NAME: found.state}
        self.handle(Loaded())

    # -------------------------------------------------------------------------- the world

    def number(self, answered):
        self.count += 1
        self.requests[self.count] = answered
        return self.count

    def handle(self, event):
        self.trampoline.run(event, self.carry_out)
        self.machine.validate()

    def carry_out(self, effect):
        match effect:
            case Append(_, transaction, _):
                assert self.append is None, "one append for an id"
                assert transaction is None or transaction.producer_epoch <= EPOCH_MAX
                self.append = effect
            case Answer(request, answer):
                assert answer.error is ErrorCode.NONE or answer.error in REFUSALS
                self.requests.pop(request)(answer)
            case Proceed(event):
                self.handle(event)
            case Note():
                pass
            case WriteMarkers(_, producer_id, epoch, commit, partitions):
                assert partitions
                assert self.decision in {None, (producer_id, epoch, commit)}
                self.decision = (producer_id, epoch, commit)
                for producer in self.producers:
                    if not commit and producer.opened is not None:
                        self.cut_off.add(producer.opened)
                        producer.opened = None
                for partition in partitions:
                    key = (producer_id, epoch, partition)
                    self.outstanding.append((key, commit))

    def draw(self, wanted):
        if not wanted:
            return None
        self.drawn += 1
        return self.drawn

    # -------------------------------------------------------------------------- producers

    @rule(who=st.integers(0, 1), knows=st.booleans(), hears=st.booleans())
    def init_producer_id(self, who, knows, hears):
        producer = self.producers[who]
        knows = knows and producer.epoch >= 0
        epoch = producer.epoch if knows else -1
        fresh = self.draw(self.machine.needs_producer_id(NAME, epoch))

        def answered(answer):
            if answer.error is ErrorCode.NONE:
                key = (answer.producer_id, answer.producer_epoch)
                if self.given.get(key, who) != who:
                    raise AssertionError(f"{key} was given to two")
                self.given[key] = who
                self.newest = max(self.newest, (key, who))
                if hears:
                    producer.id, producer.epoch = key
                    producer.opened = None

        self.handle(
            InitProducerId(
                request=self.number(answered),
                transactional_id=NAME,
                timeout_ms=100,
                producer_id=producer.id if knows else -1,
                producer_epoch=epoch,
                fresh_producer_id=fresh,
            )
        )

    @rule(
        who=st.integers(0, 1),
        partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        version=st.sampled_from([VERSION_1, VERSION_2]),
    )
    def add_partitions(self, who, partitions, version):
        producer = self.producers[who]
        must_be_refused = self.is_fenced(who)

        key = (producer.id, producer.epoch)

        def answered(answer):
            if answer.error is not ErrorCode.NONE:
                return
            assert not must_be_refused
            assert key not in self.cut_off, "goes on with half of a transaction"
            producer.opened = key

        self.handle(
            AddPartitions(
                request=self.number(answered),
                transactional_id=NAME,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                partitions=frozenset(partitions),
                client_version=version,
            )
        )

    @rule(
        who=st.integers(0, 1),
        commit=st.booleans(),
        version=st.sampled_from([VERSION_1, VERSION_2, VERSION_2]),
        hears=st.booleans(),
    )
    def end(self, who, commit, version, hears):
        producer = self.producers[who]
        must_be_refused = self.is_fenced(who)
        producer.opened = None
        asked_as = (producer.id, producer.epoch)

        def answered(answer):
            if answer.error is not ErrorCode.NONE:
                return
            assert not must_be_refused
            assert not commit or asked_as not in self.cut_off
            if version == VERSION_2:
                key = (answer.producer_id, answer.producer_epoch)
                self.newest = max(self.newest, (key, who))
                if hears:
                    producer.id, producer.epoch = key

        self.handle(
            EndTransaction(
                request=self.number(answered),
                transactional_id=NAME,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                commit=commit,
                client_version=version,
                fresh_producer_id=self.draw(self.machine.ends_producer_id(NAME, version)),
            )
        )

    def is_fenced(self, who):
        """Whether another producer has got a later id and epoch than this one."""
        producer = self.producers[who]
        newest, holder = self.newest
        return holder not in {None, who} and newest > (producer.id, producer.epoch)

    # --------------------------------------------------------------------------- outcomes

    @rule(succeeds=st.sampled_from([True, True, True, False]), error=st.sampled_from(FAILURES),
          stands=st.booleans())  # fmt: skip
    def written(self, succeeds, error, stands):
        """What failed may stand in the log all the same."""
        asked, self.append = self.append, None
        if asked is None:
            return
        if succeeds or stands:
            self.log.append(
                (
                    encode_key(NAME),
                    None if asked.transaction is None else encode_value(asked.transaction),
                )
            )
        if succeeds:
            self.check_transition(asked.transaction)
        self.handle(Appended(NAME, ErrorCode.NONE if succeeds else error))

    def check_transition(self, transaction):
        if transaction is None:
            self.previous.pop(NAME, None)
            return
        before = self.previous.get(NAME)
        assert before in {None, *VALID_PREVIOUS[transaction.state]}, (before, transaction)
        self.previous[NAME] = transaction.state
        if transaction.is_at_rest:
            self.decision = None

    @rule(which=st.integers(0, 5), hears=st.booleans())
    def marker(self, which, hears):
        if not self.outstanding:
            return
        (key, commit) = self.outstanding[which % len(self.outstanding)]
        if hears:
            self.outstanding.remove((key, commit))
            self.handle(MarkersWritten(NAME, key[0], key[1], frozenset({key[2]})))

    @rule(ms=st.sampled_from([1, 50, 200]))
    def time_passes(self, ms):
        self.now_ms += ms
        self.handle(TimeoutsDue())

    @rule()
    def the_id_is_not_used(self):
        self.handle(ExpirationDue(1_000))

    @rule()
    def fail_over(self):
        """Another coordinator goes on from the log; markers on the way get lost."""
        self.handle(Resigned())
        for answered in list(self.requests.values()):
            answered(ProducerAnswer(ErrorCode.NOT_COORDINATOR))
        self.requests.clear()
        self.append, self.outstanding = None, []
        decided, self.decision = self.decision, None
        self.load()
        if decided is not None:  # markers are sent
            self.the_decision_stays(decided)

    def the_decision_stays(self, decided):
        found = self.machine.find(NAME)
        assert found is not None
        assert found.commits is decided[2]
        assert found.is_prepared or found.state >= State.COMPLETE_COMMIT
        assert self.decision in {None, decided}

    # ------------------------------------------------------------------------- what holds

    @invariant()
    def what_is_decided_comes_to_its_end(self):
        """On the way to COMPLETE there is always an append or a marker outstanding."""
        found = self.machine.find(NAME)
        is_prepared = found is not None and found.is_prepared
        assert not is_prepared or self.append is not None or self.outstanding

    @invariant()
    def an_open_transaction_has_partitions(self):
        found = self.machine.find(NAME)
        is_open = found is not None and found.state is State.ONGOING
        assert not is_open or found.partitions


TestCoordinatorLife = CoordinatorLife.TestCase
