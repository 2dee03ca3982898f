"""What a decision of the scaler costs: 16,384 sandboxes on 1,000 nodes of four node pools, and how well it packs.

python -m tests.bench.scaler
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence

from controlplane.capacity import NOTHING, Amounts
from controlplane.capacity.amounts import minus, plus
from controlplane.scaling.decisions import Decisions
from controlplane.scaling.kinds import Kind, scaled
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.packing import Opening, pack
from controlplane.scaling.planner import Demand
from controlplane.scaling.seen import Group, Machine, SeenNode
from tests.bench.record import Record, distribution, save

GIB = 1 << 30
NODES, SANDBOXES, KINDS, POOLS, ROUNDS, MIXES = 1_000, 16_384, 16, 4, 100, 200
SIZE: Amounts = (64_000, 256 * GIB, 1_000 * GIB, 0, 256)
CONDITIONS = f"{SANDBOXES} sandboxes of {KINDS} kinds, {NODES} nodes, {POOLS} node pools, one core"


def kind(dice: random.Random) -> Kind:
    """One of what sandboxes request."""
    return Kind((dice.randint(50, 2_000), dice.randint(1, 80) * GIB // 10, GIB, 0, 1))


def pools() -> Sequence[NodePool]:
    """The declared ones."""
    return [
        NodePool(f"p{at}", "grpc", f"g{at}", SIZE, 0, 2_000, {"pool": f"p{at}"}, 1 + at / 10) for at in range(POOLS)
    ]


def decided(waiting: float) -> tuple[Sequence[float], Sequence[float]]:
    """Milliseconds of each turn, in which such a part of the sandboxes waits and the others are there.

    Returns:
        By the clock, and of a processor.
    """
    dice = random.Random(1)
    kinds = [kind(dice) for _ in range(KINDS)]
    declared, there = pools(), round(SANDBOXES * (1 - waiting) / NODES)
    nodes, groups = [], {}
    for at in range(NODES):
        of = declared[at % POOLS]
        free = SIZE
        for _ in range(there):
            free = minus(free, dice.choice(kinds).request)
        idle = {dice.choice(kinds): 1} if at % 3 == 0 else {}
        nodes.append(SeenNode(f"n{at:04}", free, of.labels, idle, 0 if at % 10 == 0 else there))
    for of in declared:
        machines = [Machine(one.name, one.name) for one in nodes if one.labels == of.labels]
        groups[of.name] = Group(len(machines), machines)
    demands = [Demand(one, round(SANDBOXES * waiting) // KINDS, "waiting") for one in kinds]
    took, worked = [], []
    for at in range(ROUNDS):
        decisions = Decisions(declared, 600_000)
        began, used = time.perf_counter(), time.process_time()
        decisions.turn(demands, nodes, groups, 1_000_000 + at)
        took.append((time.perf_counter() - began) * 1000)
        worked.append((time.process_time() - used) * 1000)
    return took, worked


def packed() -> Sequence[float]:
    """By how many percent random mixes take more nodes than a single resource of them alone fills."""
    dice, over = random.Random(19), []
    for _ in range(MIXES):
        wanted = {kind(dice): dice.randint(1, 3_000) for _ in range(dice.randint(1, 12))}
        total = NOTHING
        for one, count in wanted.items():
            total = plus(total, scaled(one.request, count))
        bound = max(-(-all_of // of_one) for all_of, of_one in zip(total, SIZE, strict=True) if of_one)
        opened = pack(wanted, [], [Opening(pools()[0], SIZE, 100_000)]).opened["p0"]
        over.append(100 * (opened / bound - 1))
    return over


def measure() -> list[Record]:
    """All figures."""
    records = []
    for what, waiting in (("all", 1.0), ("a tenth", 0.1), ("none", 0.0)):
        took, worked = map(distribution, decided(waiting))
        name = f"decision with {what} of them waiting"
        records.append(Record(f"{name}, p50", took["p50"], "ms", CONDITIONS, distribution=took))
        records.append(Record(f"{name}, of a processor, p50", worked["p50"], "ms", CONDITIONS, distribution=worked))
    over = distribution(packed())
    mixes = f"{MIXES} random mixes of 1 to 12 kinds"
    return [*records, Record("nodes above the bound, p95", over["p95"], "%", mixes, distribution=over)]


def main() -> None:
    """Measure, write the records and print them."""
    for record in save("scaler", measure(), {"python": sys.version.split()[0]}):
        print(f"{record.figure}: {record.value:.2f} {record.unit} {dict(record.distribution)} ({record.conditions})")


if __name__ == "__main__":
    main()
