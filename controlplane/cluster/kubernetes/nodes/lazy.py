"""Which sandboxes read their image while it is still being fetched, and what their pods need for that. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

# containerd chooses by it with what a pod's images are unpacked, before it is told the pod's runtime.
ANNOTATION_HANDLER: Final = "io.containerd.cri.runtime-handler"
# Most nodes that an affinity names: each is a requirement that the scheduler reads for each node.
MOST_NAMED: Final = 64
# Where more of the nodes than this do not mount images now, starts that may do without get theirs whole, on any node.
MOST_TROUBLED: Final = 0.5

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LazyImages:
    """The nodes' lazy pulling.

    Attributes:
        runtime_class: of the pods that use it.
        handler: its handler on the nodes.
        repositories: beginnings of the names of images that nodes mount lazily. They mount no others, since what is in
            a layer that nobody has read whole is only what its maker says: see ``node-go/internal/snapshotter``.
        selector: labels of the nodes on which pods of the runtime class run, beside those of all sandboxes.
        converted: beginning of the names of copies that the mirror converts: of all images; empty: it converts none.
        devices: whether sandboxes with devices can use it: not where these have a runtime class of their own.
    """

    runtime_class: str
    handler: str
    repositories: Sequence[str]
    selector: Mapping[str, str] = field(default_factory=dict)
    converted: str = ""
    devices: bool = True

    def has(self, image: str) -> bool:
        """Whether nodes mount this image lazily."""
        return image.startswith(tuple(self.repositories))

    @property
    def converts(self) -> bool:
        """Whether every image can become one that nodes mount lazily."""
        return bool(self.converted) and self.has(self.converted)

    def annotations(self) -> Mapping[str, str]:
        """Of a pod that uses it."""
        return {ANNOTATION_HANDLER: self.handler}


def chosen(
    lazy: LazyImages | None, spec: SandboxSpec, nodes: Sequence[Node], troubled: Collection[str] = ()
) -> LazyImages | None:
    """What a sandbox with this image uses; None: its node fetches the image whole.

    ``auto`` is whole too as long as one node is not known to mount images lazily, since the scheduler does not know
    which do: while the snapshotter comes to one node after the other, and where kubelets do not report runtimes.

    Args:
        lazy: the nodes' lazy pulling; None: they have none.
        spec: what the create requested.
        nodes: those that sandboxes may run on.
        troubled: the names of those that could mount images, and do not now.
    """
    if lazy is None or spec.pull == "full" or not lazy.has(spec.image) or (spec.gpu and not lazy.devices):
        return None
    if spec.pull == "lazy":
        return lazy
    candidates = _candidates(lazy, spec, nodes)
    if sum(one.name in troubled for one in candidates) > MOST_TROUBLED * len(candidates):
        return None
    handlers = [one.handlers for one in candidates]
    return lazy if handlers and all(one is not None and lazy.handler in one for one in handlers) else None


def confined(
    lazy: LazyImages, sandbox_id: str, spec: SandboxSpec, nodes: Sequence[Node], troubled: Collection[str]
) -> Json | None:
    """A required affinity to the nodes that mount images lazily now; None: all of them do.

    Args:
        lazy: the nodes' lazy pulling.
        sandbox_id: chooses among too many nodes to be named.
        spec: what the create requested.
        nodes: those that sandboxes may run on.
        troubled: the names of those that could mount images, and do not now.

    Raises:
        Problem: capacity_unavailable: none does.
    """
    candidates = _candidates(lazy, spec, nodes)
    without = {*_without(lazy, spec, nodes), *(one.name for one in candidates if one.name in troubled)}
    if not without:
        return None
    able = [one.name for one in candidates if one.name not in without]
    if not able:
        detail = f"no node mounts images lazily now: {len(without)} do not, {min(without)} among them"
        raise Problem("capacity_unavailable", detail, retry_after_ms=5_000)
    if len(without) <= MOST_NAMED:
        return {"nodeSelectorTerms": [{"matchFields": not_on(sorted(without))}]}
    some = sorted(able, key=lambda name: crc32(f"{sandbox_id} {name}".encode()))[:MOST_NAMED]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in some]
    return {"nodeSelectorTerms": terms}


def unable(lazy: LazyImages, spec: SandboxSpec, nodes: Sequence[Node], troubled: Collection[str]) -> frozenset[str]:
    """The names of the nodes that ``confined`` and the runtime class keep a sandbox off.

    Args:
        lazy: the nodes' lazy pulling.
        spec: what the create requested.
        nodes: those that sandboxes may run on.
        troubled: the names of those that could mount images, and do not now.
    """
    able = {one.name for one in _candidates(lazy, spec, nodes)}
    able.difference_update(_without(lazy, spec, nodes), troubled)
    return frozenset(one.name for one in nodes if one.name not in able)


def kept_off(confined: Json | None, nodes: Sequence[str]) -> Json | None:
    """A required affinity that leaves these nodes out, too."""
    if not nodes:
        return confined
    terms: list[Json] = [{}] if confined is None else confined["nodeSelectorTerms"]
    more = not_on(nodes)
    return {"nodeSelectorTerms": [{**one, "matchFields": [*one.get("matchFields", ()), *more]} for one in terms]}


def not_on(nodes: Sequence[str]) -> list[Json]:
    """Requirements of an affinity that leave these nodes out.

    By the field, since no label is guaranteed to be the node's name; a field requirement takes one value.
    """
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]


def pull_policy(lazy: LazyImages | None, lazily: LazyImages | None, spec: SandboxSpec) -> str:
    """When a node asks the registry for the target's image.

    Of an image that it has mounted lazily, containerd has no layers, and takes the image for present all the same. A
    sandbox that wants it whole would not start; a pull fetches what is missing.

    Args:
        lazy: the nodes' lazy pulling.
        lazily: what was chosen for this sandbox.
        spec: what the create requested.
    """
    return "Always" if lazy is not None and lazily is None and lazy.has(spec.image) else "IfNotPresent"


def check(lazy: LazyImages | None, spec: SandboxSpec, nodes: Sequence[Node]) -> None:
    """Refuses lazy pulling that would not be.

    Args:
        lazy: the nodes' lazy pulling; None: they have none.
        spec: what the create requested.
        nodes: those that sandboxes may run on.

    Raises:
        Problem: unsupported, naming the option and what to do.
    """
    if spec.pull != "lazy":
        return
    if lazy is None:
        detail = "pull lazy: this installation has no lazy pulling (lazyPulling.enabled in the values of the chart)"
    elif spec.gpu and not lazy.devices:
        detail = "pull lazy: sandboxes with a GPU have a runtime of their own (gpu.handler in the values of the chart)"
    elif without := _without(lazy, spec, nodes):
        where = f"{len(without)} nodes, {without[0]} among them, do not have the runtime {lazy.handler}"
        detail = f"pull lazy: {where}, with which images are mounted lazily: name labels of others (node_selector)"
    elif not (lazy.has(spec.image) or lazy.converts):
        where = ", ".join(f"{one}*" for one in lazy.repositories)
        detail = f"pull lazy: nodes mount images of {where} lazily, and not {spec.image}: convert it, or pull it full"
    else:
        return
    raise Problem("unsupported", detail, option="pull")


def _candidates(lazy: LazyImages, spec: SandboxSpec, nodes: Sequence[Node]) -> Sequence[Node]:
    labels = {**lazy.selector, **spec.node_selector}
    return [one for one in nodes if all(one.labels.get(key) == value for key, value in labels.items())]


def _without(lazy: LazyImages, spec: SandboxSpec, nodes: Sequence[Node]) -> Sequence[str]:
    """The nodes that this sandbox could come to and that are known not to mount images lazily."""
    candidates = _candidates(lazy, spec, nodes)
    return sorted(one.name for one in candidates if one.handlers is not None and lazy.handler not in one.handlers)
