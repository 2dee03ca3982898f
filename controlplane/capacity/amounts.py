"""Amounts of what sandboxes request of nodes, and their arithmetic. Tuples, since there is one for every pod."""

from collections.abc import Mapping
from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
DISK: Final = "ephemeral-storage"
GPU: Final = "nvidia.com/gpu"
PODS: Final = "pods"
# Whatever else pods request, sandboxes do not.
ORDER: Final = (CPU, MEMORY, DISK, GPU, PODS)

# In the order of ``ORDER``: millicores, bytes, bytes, devices, pods.
Amounts = tuple[int, int, int, int, int]
NOTHING: Final[Amounts] = (0, 0, 0, 0, 0)


def amounts(by_name: Mapping[str, int]) -> Amounts:
    """Amounts by the names of their resources; what is not named is 0."""
    cpu, memory, disk, gpu, pods = (by_name.get(name, 0) for name in ORDER)
    return cpu, memory, disk, gpu, pods


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4]


def minus(one: Amounts, other: Amounts) -> Amounts:
    """The difference; parts of it may be negative."""
    return one[0] - other[0], one[1] - other[1], one[2] - other[2], one[3] - other[3], one[4] - other[4]


def larger(one: Amounts, other: Amounts) -> Amounts:
    """Of each resource the larger amount."""
    cpu, memory, disk, gpu, pods = map(max, one, other)
    return cpu, memory, disk, gpu, pods


def times(free: Amounts, request: Amounts) -> int:
    """How often a request fits; a resource that it does not request does not matter. 0 for a request of nothing."""
    counts = [have // want for have, want in zip(free, request, strict=True) if want > 0]
    return max(0, min(counts, default=0))


def fits(free: Amounts, request: Amounts) -> bool:
    """Whether a request fits once; a resource that it does not request does not matter."""
    cpu, memory, disk, gpu, pods = request
    return (
        (cpu <= free[0] or cpu <= 0)
        and (memory <= free[1] or memory <= 0)
        and (disk <= free[2] or disk <= 0)
        and (gpu <= free[3] or gpu <= 0)
        and (pods <= free[4] or pods <= 0)
    )


def words(resource: str, amount: int, *, up: bool = False) -> str:
    """An amount with its unit, for people; what is over-committed is nothing.

    Args:
        resource: its name.
        amount: in its unit, see ``ORDER``.
        up: rounds what is requested up, so that it is never told as what is free, which is rounded down.
    """
    amount = max(0, amount)
    if resource == CPU:
        return f"{amount / 1000:g} cpu"
    if resource == PODS:
        return f"{amount} places for pods"
    if resource == GPU:
        return f"{amount} GPUs"
    unit, size = ("GiB", 1 << 30) if amount >= 1 << 30 else ("MiB", 1 << 20)
    return f"{_rounded(amount, size, up=up)} {unit} of {'memory' if resource == MEMORY else 'disk'}"


def _rounded(amount: int, size: int, *, up: bool) -> str:
    """Whole units; below 100 of them tenths."""
    parts = 10 if amount < 100 * size else 1
    count = -(-amount * parts // size) if up else amount * parts // size
    return f"{count / parts:.1f}".removesuffix(".0")
