"""What the catalogue of images and the choice of nodes cost: 1,000 nodes with 500 images each, of 20,000 in all.

python -m tests.bench.preferred_nodes
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence

from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.kubernetes.nodes.preference import HeldImage, NodePreference, ReportedImages, version_of
from controlplane.model import SandboxSpec
from tests.bench.record import Record, distribution, save

NODES, IMAGES, PER_NODE = 1_000, 20_000, 500
# Of each image: layers that a hundred images have too, and its own.
SHARED, OWN = 5, 5
ROUNDS = 200
CONDITIONS = f"{NODES} nodes, {PER_NODE} of {IMAGES} images on each, {SHARED + OWN} layers an image, one core"
ROOM = {"cpu": 64_000, "memory": 1 << 38, "ephemeral-storage": 1 << 40, "nvidia.com/gpu": 0}


def digest(number: int) -> str:
    """Of an image or a layer."""
    return f"sha256:{number:064x}"


def image(number: int) -> HeldImage:
    """One of all."""
    shared = [1_000_000 + number // 100 * SHARED + n for n in range(SHARED)]
    own = [2_000_000 + number * OWN + n for n in range(OWN)]
    return HeldImage((digest(number),), (), {digest(one): 50_000_000 for one in (*shared, *own)})


def node(number: int) -> Node:
    """A node with room."""
    name = f"node-{number}.example.internal"
    return Node(
        name, "True", "", schedulable=True, labels={}, taints=(), allocatable=ROOM, capacity=ROOM, handlers=None
    )


def timed_ms(act: Callable[[int], object]) -> Sequence[float]:
    """How long each of the rounds takes."""
    took = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        act(number)
        took.append((time.perf_counter() - began) * 1000)
    return took


def measure() -> list[Record]:
    """All figures."""
    dice = random.Random(1)
    nodes, held = (
        [node(number) for number in range(NODES)],
        [dice.sample(range(IMAGES), PER_NODE) for _ in range(NODES)],
    )
    preference, told = NodePreference(SystemClock()), ReportedImages()
    tracemalloc.start()
    for one, numbers in zip(nodes, held, strict=True):
        told.replace(one.name, "", {number + 1: image(number) for number in numbers})
        preference.catalogue.replace(one.name, told.images(one.name))
    size_mib = tracemalloc.get_traced_memory()[0] / 1048576
    tracemalloc.stop()

    def changed(number: int) -> None:
        name, new = nodes[number].name, IMAGES + number
        marks = {one + 1 for one in (*held[number][1:], new)}
        told.change(name, version_of(marks), {new + 1: image(new)}, [held[number][0] + 1])
        preference.catalogue.replace(name, told.images(name))

    def wish(number: int, *, of: int) -> object:
        layers = image(of + number).layers
        return preference.wishes(
            f"sb-{number}", SandboxSpec(image=f"a@{digest(of + number)}"), layers, nodes, lazily=False
        )

    figures = {
        "one node's images, one of them new, taken into the catalogue": timed_ms(changed),
        "nodes chosen for a start of an image that some nodes have": timed_ms(lambda number: wish(number, of=0)),
        "nodes chosen for a start of an image that no node has": timed_ms(lambda number: wish(number, of=10**7)),
    }
    records = [
        Record(f"{name}, p50", shape["p50"], "ms", CONDITIONS, distribution=shape)
        for name, shape in ((name, distribution(took)) for name, took in figures.items())
    ]
    return [*records, Record("memory of the catalogue", size_mib, "MiB", CONDITIONS)]


def main() -> None:
    """Measure, write the records and print them."""
    for record in save("preferred_nodes", measure(), {"python": sys.version.split()[0]}):
        print(f"{record.figure}: {record.value:.2f} {record.unit} {dict(record.distribution)} ({record.conditions})")


if __name__ == "__main__":
    main()
