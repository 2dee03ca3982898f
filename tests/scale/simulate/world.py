"""One week in ticks: runs ask, the pool and the scaler plan, nodes come and go; what callers wait is counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from controlplane.lifecycle.pools.demand import Demand, size
from controlplane.lifecycle.pools.planner import Member, plan
from controlplane.model.pool import PoolSpec
from controlplane.model.spec import Template
from tests.scale.simulate.fleet import Counts, Nodes, Scaler, placed
from tests.scale.simulate.traffic import GROUP, Run

TICK_S = 10
# The scaler looks as often as this.
TURN_S = 60
# A claim, and a cold start on a node with room, as measured on the real node; a cold start's slot is taken so long.
CLAIM_S = 0.02
COLD_S = 2.5
PER_NODE = 8
# An unclaimed sandbox; plans count them and look at nothing else of them.
_READY, _STARTING = Member("one", "t", 1, 0, 1), Member("one", "t", 1, 0)


@dataclass(frozen=True)
class Policy:
    """What is compared.

    Attributes:
        warm: the most unclaimed sandboxes of the pool; 0: there is none.
        headroom: room that is kept free, as a share of the live sandboxes.
        scales: whether nodes are added and removed; else all are there all the time.
        packs: whether the fullest node is filled first; else all alike.
    """

    name: str
    warm: int = 0
    headroom: float = 0.0
    scales: bool = True
    packs: bool = True


@dataclass
class Told:
    """What came out.

    Attributes:
        waits_s: how long creates have waited, and how many did so long.
        warm: creates that a claim has served.
        creates: all that were served.
        stalled_gpu_s: GPU seconds in which a trainer missed rollouts that it had asked for, by their share.
        node_s: seconds of nodes.
        busy_s, idle_s: seconds of claimed and unclaimed sandboxes.
        curve: moment, nodes, claimed, unclaimed, waiting.
    """

    waits_s: dict[float, int] = field(default_factory=dict)
    warm: int = 0
    creates: int = 0
    stalled_gpu_s: float = 0.0
    node_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    removed_nodes: int = 0
    curve: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def wait_s(self, share: float) -> float:
        """What `share` of the creates did not wait longer than."""
        left = share * self.creates
        for wait_s in sorted(self.waits_s):
            left -= self.waits_s[wait_s]
            if left <= 0:
                return wait_s
        return 0.0


@dataclass
class _Live:
    """A run's own: rollouts by node, and those that it waits for, oldest first, with the moment they were asked for."""

    run: Run
    there: Counts
    waiting: deque[list[int]] = field(default_factory=deque)

    @property
    def waits(self) -> int:
        return sum(count for _, count in self.waiting)


class World:
    """The whole simulation of one policy.

    Args:
        runs: the week's traffic.
        policy: what is tried.
        most: nodes that there may be.
        slots: of each.
        starts_per_s: pods that the API server and the control plane bring up, in all.
        arrival_s: what a new node takes.
        seed: of lives and prunes.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        policy: Policy,
        *,
        most: int,
        slots: int,
        starts_per_s: float,
        arrival_s: float,
        seed: int,
    ) -> None:
        self._runs = deque(runs)
        self._policy = policy
        self._nodes = Nodes(most, slots)
        self._scaler = Scaler(self._nodes, policy.headroom, arrival_s, down_after_s=600) if policy.scales else None
        self._nodes.ready[: 1 if policy.scales else most] = True
        self._starts = starts_per_s * TICK_S
        self._rng = np.random.default_rng(seed)
        self._live: list[_Live] = []
        self._demand = Demand()
        self._starting = np.zeros(most, dtype=np.int64)  # of the pool; ready after the tick
        self._missing = 0
        self.told = Told()

    def run(self, until_s: int) -> Told:
        """The whole week."""
        for now_s in range(TICK_S, until_s + 1, TICK_S):
            self._tick(now_s)
        return self.told

    def _tick(self, now_s: int) -> None:
        self._nodes.arrive(now_s)
        self._nodes.idle += self._starting
        self._starting[:] = 0
        while self._runs and self._runs[0].began_s <= now_s:
            self._live.append(_Live(self._runs.popleft(), np.zeros(self._nodes.most, dtype=np.int64)))
        for one in self._live:
            self._ends(one)
            self._asks(one, now_s)
        budget = self._serve(now_s)
        if self._policy.warm:
            self._fill_pool(now_s, budget)
        self._live = [one for one in self._live if one.run.ended_s > now_s or one.there.any()]
        if self._scaler is not None and now_s % TURN_S == 0:
            self._scaler.turn(now_s, sum(one.waits for one in self._live), self._missing)
            self.told.removed_nodes = self._scaler.removed
        self._count(now_s)

    def _ends(self, one: _Live) -> None:
        """Rollouts that end by themselves, and groups that are pruned."""
        gone = self._rng.binomial(one.there, 1 - np.exp(-TICK_S / one.run.life_s))
        one.there -= gone
        self._nodes.busy -= gone
        pruned = GROUP * int(self._rng.poisson(one.run.pruned_groups(int(one.there.sum()), TICK_S)))
        self._prune(one, pruned)

    def _prune(self, one: _Live, count: int) -> None:
        """Rollouts of so many, wherever they are; those that wait are pruned first."""
        while count > 0 and one.waiting:
            newest = one.waiting[-1]
            taken = min(count, newest[1])
            newest[1] -= taken
            count -= taken
            if not newest[1]:
                one.waiting.pop()
        live = int(one.there.sum())
        if (count := min(count, live)) > 0:
            gone = one.there if count == live else self._rng.multivariate_hypergeometric(one.there, count)
            one.there = one.there - gone
            self._nodes.busy -= gone

    def _asks(self, one: _Live, now_s: int) -> None:
        there = int(one.there.sum()) + one.waits
        prunes, asks = one.run.wanted(now_s - TICK_S, now_s, there)
        if prunes:
            self._prune(one, prunes)
        if asks:
            one.waiting.append([now_s, asks])
            self._demand.claimed(now_s * 1000, asks)

    def _serve(self, now_s: int) -> float:
        """Gives what waits a place, the oldest first; what is left of the starts of this tick."""
        left = self._starts
        order = sorted((one for one in self._live if one.waiting), key=lambda one: one.waiting[0][0])
        for one in order:
            while one.waiting:
                asked_s, count = one.waiting[0]
                warm = self._claim(one, count)
                self._note(now_s - asked_s + CLAIM_S, warm)
                self.told.warm += warm
                cold = self._begin(one, min(count - warm, int(left)))
                self._note(now_s - asked_s + COLD_S, cold)
                left -= cold
                if warm + cold < count:
                    one.waiting[0][1] = count - warm - cold
                    break
                one.waiting.popleft()
        return left

    def _claim(self, one: _Live, count: int) -> int:
        nodes = self._nodes
        taken = placed(nodes.idle, nodes.busy, count, nodes.slots, packs=True)
        nodes.idle -= taken
        nodes.busy += taken
        one.there = one.there + taken
        return int(taken.sum())

    def _begin(self, one: _Live, count: int) -> int:
        taken = self._placed(count)
        self._nodes.busy += taken
        one.there = one.there + taken
        return int(taken.sum())

    def _placed(self, count: int) -> Counts:
        nodes, per_node = self._nodes, int(PER_NODE * TICK_S / COLD_S)
        return placed(nodes.free(), nodes.busy + nodes.idle, count, per_node, packs=self._policy.packs)

    def _fill_pool(self, now_s: int, budget: float) -> None:
        """The pool's own planner, with the sizes that it computes from the claims."""
        nodes = self._nodes
        spec = PoolSpec(template=Template(image="simulated:1"), max_warm=self._policy.warm)
        wanted = size(spec, self._demand, now_s * 1000).wanted
        members = [_READY] * int(nodes.idle.sum())
        planned = plan(members, (), wanted=wanted, surge=0, allowed=int(budget))
        self._missing = planned.missing
        if planned.start:
            self._starting = self._placed(planned.start)
            self._missing -= int(self._starting.sum())
        elif planned.stop:
            gone = placed(nodes.idle, -(nodes.busy + nodes.idle), len(planned.stop), nodes.slots, packs=True)
            nodes.idle -= gone

    def _note(self, wait_s: float, count: int) -> None:
        if count:
            self.told.waits_s[wait_s] = self.told.waits_s.get(wait_s, 0) + count
            self.told.creates += count

    def _count(self, now_s: int) -> None:
        nodes, told = self._nodes, self.told
        there, busy, idle = int(nodes.ready.sum()), int(nodes.busy.sum()), int(nodes.idle.sum())
        waiting = sum(one.waits for one in self._live)
        told.node_s += TICK_S * there
        told.busy_s += TICK_S * busy
        told.idle_s += TICK_S * idle
        for one in self._live:
            told.stalled_gpu_s += TICK_S * one.run.gpus * min(1.0, one.waits / one.run.at_once)
        if now_s % 300 == 0:
            told.curve.append((now_s, there, busy, idle, waiting))
