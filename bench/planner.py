"""How long it takes to plan a rebalance, and its proven distance from the optimum.

    ./run bench planner [--brokers 30] [--racks 3] [--partitions 10000]

A synthetic cluster: three replicas of each partition, brokers filled unevenly, sizes log-normal;
then six of the brokers new and empty; then 30 % of the partitions placed without racks.

One JSON line for each is appended to bench/results/planner.jsonl.
"""

import random
import time

import click
from kit import machine
from kit.results import keep_result

from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture, Replicas, loads
from odradek.plan.movement import rebalance

FACTOR = 3


def synthetic(
    brokers: int, racks: int, partitions: int, *, new: int, careless: float
) -> ClusterPicture:
    """A random cluster from a fixed seed."""
    rng = random.Random(1)
    of = {broker: f"r{broker % racks}" for broker in range(brokers)}
    old = [broker for broker in of if broker < brokers - new]
    held = {}
    for number in range(partitions):
        if rng.random() < careless:
            replicas = rng.sample(old, FACTOR)
        else:
            replicas = []
            for rack in rng.sample(range(racks), FACTOR):
                there = [broker for broker in old if broker % racks == rack]
                weights = [1 / (1 + place * 0.3) for place in range(len(there))]
                replicas += rng.choices(there, weights)
        size = int(rng.lognormvariate(20, 1.5))
        held[TopicPartition(f"t{number // 50}", number % 50)] = Replicas(tuple(replicas), size)
    return ClusterPicture(of, held)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--brokers", default=30, show_default=True)
@click.option("--racks", default=3, show_default=True)
@click.option("--partitions", default=10_000, show_default=True)
def main(*, brokers: int, racks: int, partitions: int) -> None:
    """Plan, append to the results, print."""
    cases = {"uneven": (0, 0.0), "new brokers": (brokers // 5, 0.0), "careless": (0, 0.3)}
    for name, (new, careless) in cases.items():
        picture = synthetic(brokers, racks, partitions, new=new, careless=careless)
        for by_bytes in (False, True):
            begun_s = time.monotonic()
            plan = rebalance(picture, by_bytes=by_bytes)
            took_s = time.monotonic() - begun_s
            held = loads(picture.racks, plan.after, plan.sizes).values()
            shared = sum(
                len({picture.rack_of(b) for b in replicas}) < min(racks, FACTOR)
                for replicas in plan.after.values()
            )
            result = {
                "machine": machine.describe(),
                "case": name,
                "by": "bytes" if by_bytes else "replicas",
                "seconds": round(took_s, 2),
                "moved_bytes": plan.moved_bytes,
                "gap": round(plan.gap, 6),
                "two_in_one_rack": shared,
                "replicas": [min(h.replicas for h in held), max(h.replicas for h in held)],
                "size_bytes": [min(h.size_bytes for h in held), max(h.size_bytes for h in held)],
            }
            keep_result("planner", result)
            print(
                f"{name:12} by {result['by']:8} {took_s:6.1f} s  moves "
                f"{plan.moved_bytes / 1e9:8.0f} GB  gap {plan.gap:.3%}  two in one rack: {shared}"
            )


if __name__ == "__main__":
    main()
