"""``Images``: what a backend knows of images; ``NodeImages`` and ``NodeStores``: what it does with those on nodes."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from controlplane.errors import Problem
from controlplane.images import ImageConfig

# Of an image of which nothing is known.
NO_LAYERS: Final[Mapping[str, int]] = {}
# On the machine; not there, but in its registry; not known before it is pulled.
ImageState = Literal["here", "elsewhere", "unknown"]
PrefetchState = Literal["pulling", "here", "failed"]


@dataclass(frozen=True, slots=True)
class Pulling:
    """A pull that is under way.

    Attributes:
        node: that pulls.
        image: as the node was given it.
        since_ms: when it began (Unix ms), by the node's clock.
    """

    node: str
    image: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image that a node has.

    Attributes:
        names: those that the node knows it by, with tags; empty: only its digest is known.
        digest: what ``digest`` and records name it by; empty: the node does not tell one.
        size_bytes: what it takes on the node; what images share is counted in each of them.
        lazy: whether it is pulled lazily; None: the node does not tell.
        last_used_ms: when a sandbox last ran from it (Unix ms); None: not known.
        brought_ms: when it came there for sandboxes alone (Unix ms); None: somebody else may need it, or not known.
        containers: how many exist of it.
    """

    node: str
    names: Sequence[str]
    digest: str
    size_bytes: int
    lazy: bool | None = None
    last_used_ms: int | None = None
    brought_ms: int | None = None
    containers: int = 0


@dataclass(frozen=True, slots=True)
class NodeStore:
    """What a node has of images, and on what file system.

    Attributes:
        images: also those that only the platform needs.
        disk_bytes: the size of the file system; None: not known.
    """

    node: str
    images: Sequence[NodeImage]
    disk_bytes: int | None


@dataclass(frozen=True, slots=True)
class PrefetchProgress:
    """How far a node is with the pull of an image.

    Attributes:
        state: ``here`` and ``failed`` are a node's last ones.
        done_bytes: what it has of those layers of which the sizes are known.
        total_bytes: the sizes of all layers; None: not known (yet).
        failure: why it failed.
    """

    node: str
    state: PrefetchState
    done_bytes: int = 0
    total_bytes: int | None = None
    failure: Problem | None = None


class Images(Protocol):
    """Where images are."""

    async def image(self, name: str) -> ImageState:
        """Where an image is, as far as that is known without pulling it. Cost: a few calls.

        Raises:
            Problem: image_not_found or unsupported, when it is certain that no sandbox can start from it.
        """
        ...

    async def digest(self, name: str) -> str:
        """The digest by which ``start`` takes an image that is on the machine already; no registry is asked.

        Empty: it is not there, or every node has images of its own.
        """
        ...

    async def config(self, name: str) -> ImageConfig | None:
        """What an image says of its processes that is on the machine, or was made here; no other registry is asked.

        None: it is neither. Cost: a few calls.

        Raises:
            Problem: unsupported: it is malformed; the cluster does not answer.
        """
        ...

    def architectures(self) -> frozenset[str]:
        """Those of the machines that sandboxes may run on, as images name them; empty: not known. Cost: no call."""
        ...

    async def pulling(self, sandbox_id: str) -> Pulling | None:
        """Which image the node of a sandbox that starts pulls now; None: none, or that is not known. Cost: a call.

        Raises:
            Problem: the cluster does not answer.
        """
        ...


class NodeImages(Protocol):
    """The images on nodes."""

    async def all(self) -> Sequence[NodeImage]:
        """Those of all owners on the nodes that sandboxes may run on. Cost: a call for each node.

        Raises:
            Problem: no node answers.
        """
        ...

    def prefetch(
        self, name: str, nodes: int | None = None, layers: Mapping[str, int] = NO_LAYERS
    ) -> AsyncGenerator[PrefetchProgress, None]:
        """Pulls an image to nodes that sandboxes may run on; ends when each is done, or has failed.

        Equal calls join one pull on each node, and a node pulls a bounded number at once. A caller that leaves early
        closes the generator; a pull may go on.

        Args:
            name: what ``start`` would be given.
            nodes: on how many it is to be: those that have it count, then those that have to pull least; starts prefer
                the same ones. None: on all.
            layers: of the image, as ``Boot.layers``.

        Raises:
            Problem: before the first progress: image_not_found; failures of a node are progress.
        """
        ...


class NodeStores(Protocol):
    """Nodes that images can be removed from."""

    async def stores(self) -> Sequence[NodeStore]:
        """The images of each node. Cost: two calls a node.

        A node that does not answer is left out.
        """
        ...

    async def remove(self, image: NodeImage) -> bool:
        """Removes from its node an image that was brought there for sandboxes; False: it was gone.

        Raises:
            Problem: conflict: a container uses it, or somebody else has brought it; upstream_timeout.
        """
        ...
