"""What a coordinator has completed is open nowhere: else what was committed is never readable.

A marker that is never written leaves the last stable offset behind, and offsets of a group pending.
The end of a run shows that only if nothing has come after it: the next transaction of the same
producer ends what the partition still takes for open, and a topic may be deleted. So the logs of
the leaders are compared with the coordinators all the while.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from odradek.broker.replication.partition import Partition as HeldPartition
from odradek.log.producer_state import NO_OFFSET, ActiveProducer
from odradek.txn.transaction import State, Transaction

# The coordinator has completed it when all leaders have written its marker: there is nothing to
# wait for but the next look.
LOOKS_MIN: Final = 2

Key = tuple[bytes, int, int, int]  # topic id, partition, producer id, first offset


class OpenTransactions:
    """Looks now and then; something is wrong if it is seen in `LOOKS_MIN` looks in a row."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._seen: dict[Key, int] = {}

    def look(
        self, leading: Iterable[HeldPartition], coordinated: Mapping[int, Transaction]
    ) -> None:
        """`leading` are partitions at their present leaders, `coordinated` is by producer id."""
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
    """Whether a transaction is open in a partition and at an end at its coordinator.

    Each transaction has an epoch of its own (KIP-890): at its end, or when the next one is open,
    the coordinator has a larger one.
    """
    return (
        producer.transaction_first_offset != NO_OFFSET
        and (transaction.is_at_rest or transaction.state is State.ONGOING)
        and transaction.producer_epoch > producer.producer_epoch
    )
