"""What pools and headroom cost and save: a week of RL traffic on a thousand nodes, once for each policy.

python -m tests.scale.simulate                       all policies; build/scale/week.json, week.md and plots
python -m tests.scale.simulate --nodes 100 --days 1  a small one
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.scale.simulate import tables
from tests.scale.simulate.traffic import DAY_S, week
from tests.scale.simulate.world import Policy, Told, World

BUILD = Path(__file__).parents[3] / "build/scale"
SLOTS = 256
POLICIES = (
    Policy("all nodes all the time", scales=False),
    Policy("spread, no pool, no headroom", packs=False),
    Policy("packed, no pool, no headroom"),
    Policy("packed, headroom 10 %", headroom=0.1),
    Policy("packed, headroom 25 %", headroom=0.25),
    Policy("packed, pool to 2,000", warm=2_000),
    Policy("packed, pool to 10,000, headroom 10 %", warm=10_000, headroom=0.1),
)


def main(words: list[str]) -> int:
    """Simulate all policies; 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.scale.simulate")
    parser.add_argument("--nodes", type=int, default=1000, help="the most nodes that there may be")
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arrival", type=float, default=90.0, help="seconds until a new node is Ready")
    parser.add_argument("--starts", type=float, default=600.0, help="cold starts a second, of all clusters together")
    options = parser.parse_args(words)
    with ProcessPoolExecutor() as processes:
        simulated = processes.map(simulate, POLICIES, [options] * len(POLICIES))
        told = {policy.name: one for policy, one in zip(POLICIES, simulated, strict=True)}
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "week.json").write_text(json.dumps({"options": vars(options), "policies": tables.figures(told)}, indent=1))
    (BUILD / "week.md").write_text(tables.page(told, vars(options)))
    tables.draw(told, BUILD)
    return 0


def simulate(policy: Policy, options: argparse.Namespace) -> Told:
    """One policy."""
    began_s, until_s = time.monotonic(), int(options.days * DAY_S)
    world = World(
        week(options.nodes, SLOTS, options.seed, until_s),
        policy,
        most=options.nodes,
        slots=SLOTS,
        starts_per_s=options.starts,
        arrival_s=options.arrival,
        seed=options.seed,
    )
    told = world.run(until_s)
    print(f"{policy.name}: {time.monotonic() - began_s:.0f} s, {tables.line(told)}", flush=True)
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
