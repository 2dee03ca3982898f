"""What it costs that starts avoid a crowded node that has their image, or wait for it: played nodes, in virtual time.

Slots, catalogue and choice of nodes are the platform's own; scheduler, pulls and starts are played. It scores nodes as
that of Kubernetes does by default: what pods prefer (twice), how those of a Service spread (twice), and free room.

python -m tests.bench.crowded_nodes
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from controlplane.cluster.kubernetes.marks import TARGET
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.kubernetes.nodes.preference import HeldImage, NodePreference
from controlplane.lifecycle.waiting.near_waits import WAITS_MS, NearWaits
from controlplane.model import SandboxSpec
from controlplane.store.slots import Slots
from rollbox.bench.sample import percentile
from tests.bench.record import Record, distribution, save

NODES, SHARDS = 16, 16
# Starts that do not slow down one another on a node: `controlplane.startsPerNode` by default.
AT_ONCE = 8
ROOM: Final = {"cpu": 64_000, "memory": 256 << 30, "ephemeral-storage": 1 << 40, "nvidia.com/gpu": 0}
# Of a start on a node that has its image, beside no more than AT_ONCE others; of a pod's way to its node.
START_MS, PLACED_MS, TICK_MS = 1_000, 40, 20
# Sandboxes of other images on each node, in each shard.
BACKGROUND = 2
# A start that is not ready by then fails.
GIVEN_UP_MS = 60_000
ROUNDS = 5
CONDITIONS = f"{NODES} nodes, one has the image; played in virtual time"
OTHER = f"hub.test/other@sha256:{'f' * 64}"


@dataclass(frozen=True)
class Setting:
    """A rule; by default that of the platform, for starts that do not wait.

    Attributes:
        avoided: the weight of nodes that are not crowded.
        per_node: the starts with which one is.
        waits_ms: how long a start waits for a node that has its image, if all that do are crowded.
    """

    avoided: int = 100
    per_node: int = AT_ONCE
    waits_ms: int = 0

    def __str__(self) -> str:
        waits = f", waits {self.waits_ms / 1000:g} s" if self.waits_ms else ""
        return f"crowded with {self.per_node}, avoided {self.avoided}{waits}"


WEIGHTS: Final = (Setting(), Setting(45), Setting(20), Setting(per_node=16), Setting(per_node=32))
WAITS: Final = (Setting(), Setting(waits_ms=1000), Setting(waits_ms=WAITS_MS), Setting(waits_ms=4000))


@dataclass(frozen=True)
class Case:
    """What is played.

    Attributes:
        title: what it is.
        starts: when each start of the image comes (ms).
        pull_ms: of a node that has to pull.
        speed: of the node that has the image; 1 is that of the others, 0 starts nothing.
        others: when each start of another image comes, which half of the nodes have.
        images: how many there are; each start is of one of them at random, and each of them is on one node.
        start_ms: of a start on a node that has its image.
    """

    title: str
    starts: Sequence[int]
    pull_ms: int
    speed: float = 1.0
    others: Sequence[int] = ()
    images: int = 1
    start_ms: int = START_MS


CASES: Final = (
    Case("16 at once, a pull of 20 s", [0] * 16, 20_000),
    Case("64 at once, a pull of 20 s", [0] * 64, 20_000),
    Case("64 at once, a pull of 3 s", [0] * 64, 3_000),
    Case("12 a second, a pull of 20 s", range(0, 15_000, 83), 20_000),
    Case("32 at once, its node ten times slower, a pull of 5 s", [0] * 32, 5_000, 0.1),
    Case("32 at once, its node hangs, a pull of 5 s", [0] * 32, 5_000, 0.0),
    Case("64 at once, another image beside it", [0] * 64, 20_000, others=range(0, 10_000, 250)),
)


MIXED: Final = (
    Case("16 at once, a pull of 20 s", [0] * 16, 20_000),
    Case("16 at once, a pull of 3 s", [0] * 16, 3_000),
    Case("16 at once, starts of 2 s, a pull of 20 s", [0] * 16, 20_000, start_ms=2_000),
    Case("64 at once, a pull of 20 s", [0] * 64, 20_000),
    Case("64 at once of 8 images, a pull of 20 s", [0] * 64, 20_000, images=8),
    Case("128 at once of 16 images, a pull of 20 s", [0] * 128, 20_000, images=16),
    Case("128 at once of 16 images, a pull of 3 s", [0] * 128, 3_000, images=16),
    Case("128 at once of 16 images, starts of 2 s, a pull of 20 s", [0] * 128, 20_000, images=16, start_ms=2_000),
    Case("60 a second of 16 images for 10 s, a pull of 20 s", [n * 1000 // 60 for n in range(600)], 20_000, images=16),
    Case("32 at once, its node hangs, a pull of 5 s", [0] * 32, 5_000, 0.0),
    Case("64 at once, another image beside it", [0] * 64, 20_000, others=range(0, 10_000, 250)),
)


def own(number: int) -> str:
    """The name of an image of the herd."""
    return f"hub.test/own-{number}@sha256:{number:064x}"


@dataclass
class Clock:
    ms: int = 1

    def now_ms(self) -> int:
        return self.ms


@dataclass
class Start:
    id: str
    image: str
    came_ms: int
    node: str = ""
    arrives_ms: int = 0
    left_ms: float = START_MS
    took_ms: int = 0


@dataclass
class World:
    """A cluster, with starts on their way through it."""

    case: Case
    setting: Setting
    seed: int
    clock: Clock = field(default_factory=Clock)
    slots: Slots = field(default_factory=Slots)
    pods: dict[str, Counter[int]] = field(default_factory=dict)
    pulled_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    most: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.nodes = [_node(number) for number in range(NODES)]
        self.preference = NodePreference(self.clock)
        self.near = NearWaits(_Nodes(self), self.clock, self.setting.waits_ms)  # type: ignore[arg-type]
        # Of other images, which sandboxes of all nodes run from.
        self.pods = {one.name: Counter(dict.fromkeys(range(SHARDS), BACKGROUND)) for one in self.nodes}
        for place, node in enumerate(self.nodes):
            has = [own(n) for n in range(self.case.images) if n % NODES == place]
            has += [OTHER] if place % 2 else []
            self.preference.catalogue.replace(node.name, [HeldImage((one.partition("@")[2],)) for one in has])
            self.pulled_ms |= {(node.name, one): 0 for one in has}

    def run(self) -> list[Start]:
        """All starts, over."""
        images = [own(self.dice.randrange(self.case.images)) for _ in self.case.starts]
        times = [*zip(self.case.starts, images, strict=True), *((at, OTHER) for at in self.case.others)]
        times.sort(key=lambda one: one[0])
        left_ms = float(self.case.start_ms)
        every = [Start(f"sb-{n}", image, at, left_ms=left_ms) for n, (at, image) in enumerate(times)]
        coming, queue, going = [*every], list[Start](), list[Start]()
        while coming or queue or going:
            now_ms = self.clock.ms
            while coming and coming[0].came_ms <= now_ms:
                queue.append(coming.pop(0))
            going += self._sent_now(queue)
            for one in [one for one in going if one.node and now_ms >= one.arrives_ms]:
                self._arrived(one)
            going = [one for one in going if not self._over(one, going)]
            self.clock.ms += TICK_MS
        return every

    def _sent_now(self, queue: list[Start]) -> list[Start]:
        """Takes those out of the queue that get a slot: no one passes another, but for those that wait for a node."""
        sent = []
        for one in [*queue]:
            if self.setting.waits_ms and self._waits(one):
                continue
            if not self._sent(one):
                break
            queue.remove(one)
            sent.append(one)
        return sent

    def _waits(self, start: Start) -> bool:
        # As it would get them with a slot that it then gives back.
        avoid = self.slots._load(start.id, self.clock.ms).crowded(self.setting.per_node)
        return self.near.waits(start.id, SandboxSpec(image=start.image), {}, avoid, 10**9)

    def _sent(self, start: Start) -> bool:
        now_ms = self.clock.ms
        slot = self.slots.take(
            start.id,
            NODES * self.setting.per_node,
            now_ms + 10**6,
            now_ms,
            per_node=self.setting.per_node,
            placement_key="all",
        )
        if slot.taken:
            self.near.over(start.id)
            spec = SandboxSpec(image=start.image)
            near = self.preference.wishes(start.id, spec, {}, self.nodes, lazily=False)
            start.node = self._scheduled(slot.avoid, dict(near))
            start.arrives_ms = now_ms + PLACED_MS
        return slot.taken

    def _scheduled(self, avoid: Sequence[str], near: Mapping[str, int]) -> str:
        names, shard = [one.name for one in self.nodes], self.dice.randrange(SHARDS)
        wishes = {one: near.get(one, 0) + (self.setting.avoided if avoid and one not in avoid else 0) for one in names}
        spread = {one: self.pods[one][shard] * math.log(NODES + 2) + 2 for one in names}
        least, most = min(spread.values()), max(spread.values())

        def score(node: str) -> float:
            wished = 200 * wishes[node] / (max(wishes.values()) or 1)
            used = self.pods[node].total() * 250 / ROOM["cpu"]
            return wished + 200 * (most + least - spread[node]) / most + 100 * (1 - used) + self.dice.random()

        chosen = max(names, key=score)
        self.pods[chosen][shard] += 1
        return chosen

    def _arrived(self, start: Start) -> None:
        now_ms, start.arrives_ms = self.clock.ms, 10**9
        self.slots.place(
            start.id, start.node, now_ms + 10**6, now_ms, per_node=self.setting.per_node, placement_key="all"
        )
        self.preference.occupancy.put(_pod(start))
        self.pulled_ms.setdefault((start.node, start.image), now_ms + self.case.pull_ms)

    def _over(self, start: Start, going: Sequence[Start]) -> bool:
        now_ms = self.clock.ms
        beside = [one for one in going if one.node == start.node and one.arrives_ms == 10**9]
        self.most = max(self.most, len(beside))
        if start in beside and self.pulled_ms[start.node, start.image] <= now_ms:
            running = sum(self.pulled_ms[start.node, one.image] <= now_ms for one in beside)
            speed = self.case.speed if start.node == self.nodes[0].name else 1.0
            start.left_ms -= TICK_MS * speed * min(1, AT_ONCE / running)
        start.took_ms = now_ms - start.came_ms
        if start.left_ms > 0 and start.took_ms < GIVEN_UP_MS:
            return False
        self.slots.free(start.id)
        self.preference.occupancy.put(_pod(start, ready=start.left_ms <= 0))
        return True


class _Nodes:
    """What waiting starts are told."""

    def __init__(self, world: World) -> None:
        self.starts_per_node = world.setting.per_node
        self._world = world

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        """See ``Placements.holding``."""
        return self._world.preference.holding(spec, layers, self._world.nodes)


def _node(number: int) -> Node:
    name = f"node-{number}"
    return Node(
        name, "True", "", schedulable=True, labels={}, taints=(), allocatable=ROOM, capacity=ROOM, handlers=None
    )


def _pod(start: Start, *, ready: bool = False) -> dict[str, Any]:
    status = {"phase": "Running", "containerStatuses": [{"name": TARGET, "imageID": start.image}] if ready else []}
    container = {"name": TARGET, "image": start.image, "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}
    return {
        "metadata": {"name": start.id},
        "spec": {"nodeName": start.node, "containers": [container]},
        "status": status,
    }


def measure() -> list[Record]:
    """All figures."""
    return [
        *(_played(case, setting) for case in CASES for setting in WEIGHTS),
        *(_played(case, setting) for case in MIXED for setting in WAITS if setting.waits_ms or case not in CASES),
    ]


def _played(case: Case, setting: Setting) -> Record:
    took, others, pulls, most = list[float](), list[float](), 0, 0
    for seed in range(ROUNDS):
        world = World(case, setting, seed)
        for one in world.run():
            (others if one.image == OTHER else took).append(one.took_ms / 1000)
        pulls += sum(image != OTHER and at > 0 for (_, image), at in world.pulled_ms.items())
        most = max(most, world.most)
    told = [f"{pulls / ROUNDS:.1f} pulls", f"at most {most} starts on a node"]
    if others:
        told.append(f"another image's p99 {percentile(others, 0.99):.1f} s")
    title = f"{case.title}, {setting}"
    shape = distribution(took)
    return Record(title, shape["p50"], "s", f"{CONDITIONS}: {', '.join(told)}", distribution=shape)


def main() -> None:
    """Measure, write the records and print them."""
    for record in save("crowded_nodes", measure(), {"python": sys.version.split()[0]}):
        shape = record.distribution
        print(f"p50 {shape['p50']:5.1f} p99 {shape['p99']:5.1f}  {record.figure} ({record.conditions})")


if __name__ == "__main__":
    main()
