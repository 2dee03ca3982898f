"""How many nodes, how much Redis and which quota a run needs, before there is a cluster.

    python sizing.py --at-once 1024 --cpu-limit 2 --memory-limit 2048 --node-cpu 64 --node-memory 256

The standard library alone. A test compares its numbers with those of `rollbox preflight`.
"""

import argparse
from dataclasses import dataclass

# What the chart sets aside beside a sandbox's own requests: its sidecar and its gVisor kernel.
BESIDE_MILLICORES = 5 + 5
BESIDE_MIB = 16 + 40
DISK_MIB = 64 + 64
SLOTS = 256
# Redis: a running sandbox, and the record of an end, which is kept for 24 hours; at most so many of these.
RUNNING_KIB, ENDED_KIB, MOST_ENDED = 3, 2.2, 86_400


@dataclass(frozen=True)
class Sandbox:
    """What a create asks for; a request of None is the chart's share of the limit (`sandboxes.overcommit`)."""

    cpu_limit: int  # millicores
    memory_limit: int  # MiB
    cpu_request: int | None = None
    memory_request: int | None = None
    cpu_share: int = 50  # thousandths
    memory_share: int = 125

    def millicores(self) -> int:
        """What its pod requests of a node."""
        share = min(self.cpu_limit, max(10, -(-self.cpu_limit * self.cpu_share // 1000)))
        return (share if self.cpu_request is None else self.cpu_request) + BESIDE_MILLICORES

    def mebibytes(self) -> int:
        """The same of memory."""
        share = min(self.memory_limit, max(32, -(-self.memory_limit * self.memory_share // 1000)))
        return (share if self.memory_request is None else self.memory_request) + BESIDE_MIB


@dataclass(frozen=True)
class Node:
    """What pods may request of a node (`kubectl get node NAME -o jsonpath={.status.allocatable}`), less DaemonSets."""

    millicores: int
    mebibytes: int
    disk_mebibytes: int
    pods: int = 110

    def fits(self, sandbox: Sandbox) -> tuple[int, str]:
        """How many such sandboxes it takes, and what runs out first."""
        bounds = {
            "cpu": self.millicores // sandbox.millicores(),
            "memory": self.mebibytes // sandbox.mebibytes(),
            "disk": self.disk_mebibytes // DISK_MIB,
            "places for pods": self.pods,
            "slots": SLOTS,
        }
        first = min(bounds, key=lambda name: bounds[name])
        return bounds[first], first


def nodes(at_once: int, sandbox: Sandbox, node: Node) -> int:
    """How many equal nodes hold so many sandboxes at the same time.

    Raises:
        ValueError: a node holds none.
    """
    each, first = node.fits(sandbox)
    if each == 0:
        raise ValueError(f"no sandbox fits on such a node: {first}")
    return -(-at_once // each)


def redis_megabytes(at_once: int, ends_a_day: int) -> int:
    """A value for `redis.maxMemoryMegabytes`: half of it stays free. The container's limit is twice the value."""
    kib = at_once * RUNNING_KIB + min(ends_a_day, MOST_ENDED) * ENDED_KIB
    return max(64, -(-int(kib * 2) // 1000))


def main() -> None:
    """Print the worksheet."""
    options = argparse.ArgumentParser(description="Nodes, Redis and quota of a run.")
    for name, default, words in (
        ("at-once", 1024, "sandboxes at the same time"),
        ("ends-a-day", 86_400, "sandboxes that end in a day"),
        ("cpu-limit", 2, "cores of a sandbox, at most"),
        ("memory-limit", 2048, "MiB of a sandbox, at most"),
        ("node-cpu", 64, "cores that pods may request of a node"),
        ("node-memory", 256, "the same in GiB of memory"),
        ("node-disk", 500, "the same in GiB of disk"),
        ("node-pods", 110, "places for pods"),
    ):
        options.add_argument(f"--{name}", type=int, default=default, help=f"{words} ({default})")
    given = options.parse_args()
    sandbox = Sandbox(given.cpu_limit * 1000, given.memory_limit)
    node = Node(given.node_cpu * 1000, given.node_memory * 1024, given.node_disk * 1024, given.node_pods)
    each, first = node.fits(sandbox)
    megabytes = redis_megabytes(given.at_once, given.ends_a_day)
    cpu, memory = f"{sandbox.millicores()}m of cpu", f"{sandbox.mebibytes()} MiB of memory"
    print(f"a sandbox requests: {cpu}, {memory}, {DISK_MIB} MiB of disk")
    print(f"sandboxes on a node: {each}; what runs out first: {first}")
    print(f"nodes for {given.at_once} at once: {nodes(given.at_once, sandbox, node)}")
    print(f"redis.maxMemoryMegabytes: {megabytes}; redis.resources.limits.memory: {2 * megabytes}M at least")
    print(f"sandboxes.quota.pods, where it is set: {given.at_once + given.at_once // 4} at least")


if __name__ == "__main__":
    main()
