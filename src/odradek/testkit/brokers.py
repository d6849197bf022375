"""What the two kinds of brokers have in common: those in this process, and those as processes."""

from collections.abc import Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

from odradek.local.faults import Member

T = TypeVar("T")

# A coroutine of the kit that takes longer has failed.
ANSWER_S: Final = 120.0

# What differs from Kafka's defaults: tests wait less, and internal topics are made faster.
PROPERTIES: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    # A follower fetches a new partition when its last fetch was answered: after 500 ms by default,
    # for which the first record with acks=all waits in each new topic.
    "replica.fetch.wait.max.ms": "50",
    "transaction.state.log.num.partitions": "3",
    "zookeeper.session.timeout.ms": "6000",
}


class Brokers(Protocol):
    """The brokers of one cluster, and what a test does with them."""

    ids: tuple[int, ...]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of a client, and wait for it."""

    def address(self, broker_id: int) -> str:
        """The host and port of a broker, whether it runs or not."""

    def state(self, broker_id: int) -> str:
        """Its state: running, paused, stopped, killed, crashed."""

    def start_all(self) -> None:
        """Start all brokers; return when they serve."""

    def start(self, broker_id: int) -> None:
        """Start a broker that does not run; return when it serves."""

    def stop(self, broker_id: int) -> None:
        """Stop a broker as SIGTERM does: it hands its partitions over."""

    def kill(self, broker_id: int) -> None:
        """End a broker as SIGKILL does."""

    def pause(self, broker_id: int) -> None:
        """Freeze a broker as SIGSTOP does."""

    def resume(self, broker_id: int) -> None:
        """Continue a frozen broker."""

    def pid(self, broker_id: int) -> int:
        """The process of a broker.

        Raises:
            KitError: it has none of its own.
        """

    def partition(self, groups: Iterable[Iterable[Member]]) -> None:
        """Cut groups of brokers off from each other; `local.faults` has the rules."""

    def heal(self) -> None:
        """End partitions, delays and ordered errors."""

    def slow(self, broker_id: int, ms: int) -> None:
        """Delay what a broker sends."""

    def fail_next(self, api: str, error: str, *, times: int, broker_id: int | None) -> None:
        """Answer the next requests of clients with an error."""

    def expire_session(self, broker_id: int) -> None:
        """End a broker's session with the coordination store."""

    def set_clock(self, ahead_ms: int) -> None:
        """Set the wall clocks of all brokers; return when they have done what is due."""

    def close(self) -> None:
        """End all brokers at once, and remove what they have left."""
