"""``NodePool``: a declared group of equal nodes, which a provider adds and removes; and how a declaration is read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controlplane.capacity import Amounts

MOST_POOLS: Final = 32
MOST_NODES: Final = 5_000
ARRIVES_WITHIN_S: Final = 600
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SIZE: Final = ("cpu_millicores", "memory_bytes", "disk_bytes", "gpu", "pods")
_FIELDS: Final = frozenset({"name", "provider", "group", "size", "labels", "min", "max", "price", "arrives_within_s"})
PROVIDERS: Final = ("cluster-api", "capacity-buffer", "grpc")


@dataclass(frozen=True, slots=True)
class NodePool:
    """A declared group of equal nodes.

    Attributes:
        provider: the kind of what adds and removes its nodes: one of ``PROVIDERS``.
        group: what the provider calls it.
        size: what sandboxes may request of one of its nodes, what other pods take there already left out.
        least, most: how many nodes it may have.
        labels: of its nodes.
        price: of a node, in any unit that is the same for all pools.
        arrives_within_s: a node that is not Ready so long after it was asked for is given up.
    """

    name: str
    provider: str
    group: str
    size: Amounts
    least: int
    most: int
    labels: Mapping[str, str] = field(default_factory=dict)
    price: float = 1.0
    arrives_within_s: int = ARRIVES_WITHIN_S

    def takes(self, selector: Mapping[str, str]) -> bool:
        """Whether a sandbox with this node selector may run on its nodes."""
        return all(self.labels.get(key) == value for key, value in selector.items())


def node_pools(declared: Sequence[Mapping[str, object]]) -> Sequence[NodePool]:
    """Reads declarations.

    Raises:
        ValueError: one of them is not valid, or two contradict one another; the message is the rule.
    """
    if not 1 <= len(declared) <= MOST_POOLS:
        raise ValueError(f"must declare 1 to {MOST_POOLS} node pools")
    pools = [_node_pool(one) for one in declared]
    for what in ("name", "group"):
        names = [f"{one.provider} {one.group}" if what == "group" else one.name for one in pools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two node pools have the same {what}: {twice}")
    return pools


def _node_pool(declared: Mapping[str, object]) -> NodePool:
    name = declared.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("the name of a node pool has at most 40 small letters, digits and -")
    if unknown := sorted(declared.keys() - _FIELDS):
        raise ValueError(f"node pool {name}: unknown field {unknown[0]}")
    least, most = _count(name, declared, "min", 0, MOST_NODES), _count(name, declared, "max", 1, MOST_NODES)
    if least > most:
        raise ValueError(f"node pool {name}: min {least} is more than max {most}")
    provider, group = declared.get("provider"), declared.get("group")
    if provider == "deployment":
        # Nor can such pods give way by a lower priority: below the sandboxes' no autoscaler adds nodes for pods.
        why = "sandboxes never preempt pods, so those of a deployment would keep the nodes that they bring"
        raise ValueError(f"node pool {name}: {why}; use capacity-buffer")
    if provider not in PROVIDERS or not isinstance(group, str) or not 1 <= len(group) <= 253:
        raise ValueError(f"node pool {name}: provider is one of {', '.join(PROVIDERS)}, and group what that calls it")
    if provider != "grpc" and not _OBJECT.fullmatch(group):
        raise ValueError(f"node pool {name}: the group of {provider} is NAMESPACE/NAME of an object")
    price = declared.get("price", 1.0)
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < 1e9:
        raise ValueError(f"node pool {name}: price is more than 0")
    return NodePool(
        name=name,
        provider=str(provider),
        group=group,
        size=_size(name, declared.get("size")),
        least=least,
        most=most,
        labels=_labels(name, declared.get("labels", {})),
        price=float(price),
        arrives_within_s=_count(
            name, {"arrives_within_s": ARRIVES_WITHIN_S, **declared}, "arrives_within_s", 30, 7_200
        ),
    )


def _count(name: str, declared: Mapping[str, object], what: str, least: int, most: int) -> int:
    value = declared.get(what, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"node pool {name}: {what} is a whole number from {least} to {most}")
    return value


def _size(name: str, declared: object) -> Amounts:
    if not isinstance(declared, dict) or sorted(declared) != sorted(_SIZE):
        raise ValueError(f"node pool {name}: size has {', '.join(_SIZE)}")
    cpu, memory, disk, gpu, pods = (_count(name, declared, part, 0 if part == "gpu" else 1, 1 << 50) for part in _SIZE)
    return cpu, memory, disk, gpu, pods


def _labels(name: str, declared: object) -> Mapping[str, str]:
    # Without any label each node of the cluster would be one of the pool's.
    if not isinstance(declared, dict) or not declared or not all(isinstance(one, str) for one in declared.values()):
        raise ValueError(f"node pool {name}: labels are those of its nodes, at least one, each a text")
    return declared
