"""Which sandboxes read their image while it is still being fetched, and what their pods need for that. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.cluster.kubernetes.nodes import Node
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

# containerd chooses by it with what a pod's images are unpacked, before it is told the pod's runtime.
ANNOTATION_HANDLER: Final = "io.containerd.cri.runtime-handler"


@dataclass(frozen=True, slots=True)
class LazyImages:
    """The nodes' lazy pulling.

    Attributes:
        runtime_class: of the pods that use it.
        handler: its handler on the nodes.
        repositories: beginnings of the names of images that nodes mount lazily. They mount no others, since what is in
            a layer that nobody has read whole is only what its maker says: see ``node-go/internal/snapshotter``.
    """

    runtime_class: str
    handler: str
    repositories: Sequence[str]

    def has(self, image: str) -> bool:
        """Whether nodes mount this image lazily."""
        return image.startswith(tuple(self.repositories))

    def annotations(self) -> Mapping[str, str]:
        """Of a pod that uses it."""
        return {ANNOTATION_HANDLER: self.handler}


def chosen(lazy: LazyImages | None, spec: SandboxSpec) -> LazyImages | None:
    """What a sandbox with this image uses; None: its node fetches the image whole."""
    return lazy if lazy is not None and spec.pull != "full" and lazy.has(spec.image) else None


def pull_policy(lazy: LazyImages | None, spec: SandboxSpec) -> str:
    """When a node asks the registry for the target's image.

    Of an image that it has mounted lazily, containerd has no layers, and takes the image for present all the same. A
    sandbox that wants it whole would not start; a pull fetches what is missing.
    """
    return "Always" if lazy is not None and spec.pull == "full" and lazy.has(spec.image) else "IfNotPresent"


def check(lazy: LazyImages | None, spec: SandboxSpec, nodes: Sequence[Node]) -> None:
    """Refuses lazy pulling that would not be.

    Raises:
        Problem: unsupported, naming the option and what to do.
    """
    if spec.pull != "lazy":
        return
    if lazy is None:
        detail = "pull lazy: this installation has no lazy pulling (lazyPulling.enabled in the values of the chart)"
    elif not any(one.handlers is None or lazy.handler in one.handlers for one in nodes):
        detail = f"pull lazy: no node has the runtime {lazy.handler}, with which images are mounted lazily"
    elif not lazy.has(spec.image):
        where = ", ".join(f"{one}*" for one in lazy.repositories)
        detail = f"pull lazy: nodes mount images of {where} lazily, and not {spec.image}: convert it, or pull it full"
    else:
        return
    raise Problem("unsupported", detail, option="pull")
