"""A transaction that its coordinator has completed must not be open in any partition.

A missing marker keeps the last stable offset back, and offsets of a group pending. The end of a run
shows that only if nothing follows: the producer's next transaction ends the open one in the
partition, and a topic may be deleted. So the leaders' logs are compared with the coordinators
during the whole run.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from odradek.broker.replication.partition import Partition as HeldPartition
from odradek.log.producer_state import NO_OFFSET, ActiveProducer
from odradek.txn.transaction import State, Transaction

# A transaction is complete when all leaders have written its marker, so there is no need to wait
# for longer than the next look.
LOOKS_MIN: Final = 2

Key = tuple[bytes, int, int, int]  # topic id, partition, producer id, first offset


class OpenTransactions:
    """Reports a transaction that is left open in `LOOKS_MIN` successive looks."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._seen: dict[Key, int] = {}

    def look(
        self, leading: Iterable[HeldPartition], coordinated: Mapping[int, Transaction]
    ) -> None:
        """`leading` are partitions at their leaders, `coordinated` is by producer id."""
        seen: dict[Key, int] = {}
        for partition in leading:
            log = partition.log
            if log is None or log.producers.first_unstable_offset == NO_OFFSET:
                continue
            for producer in log.producers.active_producers():
                transaction = coordinated.get(producer.producer_id)
                if transaction is None or not is_left_open(producer, transaction):
                    continue
                key = (
                    partition.topic_id,
                    partition.topic_partition.partition,
                    producer.producer_id,
                    producer.transaction_first_offset,
                )
                seen[key] = looks = self._seen.get(key, 0) + 1
                if looks == LOOKS_MIN:
                    self._violated(
                        f"{partition.topic_partition}: a transaction of "
                        f"{transaction.transactional_id} is open since offset "
                        f"{producer.transaction_first_offset}, in producer epoch "
                        f"{producer.producer_epoch}; its coordinator has completed it, and is at "
                        f"{transaction.state.name}, epoch {transaction.producer_epoch}"
                    )
        self._seen = seen


def is_left_open(producer: ActiveProducer, transaction: Transaction) -> bool:
    """Whether a transaction is open in a partition and complete at its coordinator.

    Each transaction has its own epoch (KIP-890): when it is complete, or the next one is open,
    the coordinator has a larger epoch than the partition.
    """
    return (
        producer.transaction_first_offset != NO_OFFSET
        and (transaction.is_at_rest or transaction.state is State.ONGOING)
        and transaction.producer_epoch > producer.producer_epoch
    )
