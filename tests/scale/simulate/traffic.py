"""What trainers ask for, moment by moment: pure, but for the random numbers that a seed gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

DAY_S = 86_400
WEEK_S = 7 * DAY_S
# Rollouts of one prompt: a group is pruned and refilled as a whole.
GROUP = 16

Kind = Literal["async", "sync", "evaluation"]


@dataclass(frozen=True)
class Run:
    """One training or evaluation run.

    Attributes:
        kind: `async` keeps its rollouts at a number: whatever ends or is pruned is refilled at once. `sync` asks for
            all rollouts of a step at once, and prunes what has not ended when the next step begins. `evaluation` asks
            once.
        began_s, ended_s: from the beginning of the week.
        at_once: rollouts.
        life_s: of a rollout, on average; exponential.
        step_s: from one step to the next (`sync`).
        pruned: of all rollouts, the share whose group is pruned before they end.
        gpus: that wait when rollouts do.
    """

    kind: Kind
    began_s: int
    ended_s: int
    at_once: int
    life_s: float
    gpus: int
    step_s: int = 0
    pruned: float = 0.0

    def wanted(self, before_s: int, now_s: int, there: int) -> tuple[int, int]:
        """What it does in a tick: how many rollouts it prunes, and how many it asks for.

        Args:
            before_s: the end of the last tick.
            now_s: the end of this one.
            there: how many it has or waits for, before.
        """
        if not self.began_s <= now_s < self.ended_s:
            return there, 0
        if self.kind == "async":
            return 0, max(0, self.at_once - there)
        begins = before_s < self.began_s or (
            self.kind == "sync" and (before_s - self.began_s) // self.step_s < (now_s - self.began_s) // self.step_s
        )
        return (there, self.at_once) if begins else (0, 0)

    def pruned_groups(self, live: int, tick_s: int) -> float:
        """How many groups it prunes in a tick, on average."""
        share = self.pruned / max(1e-9, 1 - self.pruned)
        return live * share * (1 - math.exp(-tick_s / self.life_s)) / GROUP


def week(nodes: int, slots: int, seed: int, length_s: int = WEEK_S) -> Sequence[Run]:
    """The runs of a week, in order of their begin: by day more than by night, at most about what the nodes hold.

    Args:
        nodes: the most that there may be.
        slots: of a node.
        seed: the same seed gives the same week.
        length_s: a part of a week.
    """
    draw, runs = Random(seed), list[Run]()
    room = nodes * slots
    for day in range(math.ceil(length_s / DAY_S)):
        for _ in range(9):
            # Half of a day's runs begin in its working hours.
            hour = draw.gauss(13, 4) % 24
            began_s = day * DAY_S + int(hour * 3600)
            kind: Kind = draw.choices(("async", "sync", "evaluation"), (4, 3, 2))[0]
            at_once = GROUP * int(room * draw.uniform(0.01, 0.18) / GROUP)
            runs.append(_run(draw, kind, began_s, at_once))
    return sorted((one for one in runs if one.began_s < length_s), key=lambda one: one.began_s)


def _run(draw: Random, kind: Kind, began_s: int, at_once: int) -> Run:
    life_s = draw.lognormvariate(math.log(240), 0.6)
    if kind == "evaluation":
        return Run(kind, began_s, began_s + int(8 * life_s), at_once, life_s, gpus=8)
    length_s = int(draw.uniform(4, 20) * 3600)
    if kind == "async":
        return Run(kind, began_s, began_s + length_s, at_once, life_s, gpus=64, pruned=draw.uniform(0.1, 0.4))
    step_s = int(draw.uniform(2, 4) * life_s)
    return Run(kind, began_s, began_s + length_s, at_once, life_s, gpus=64, step_s=step_s)
