"""``Cluster``: a backend, with the parts that it has."""

from typing import Protocol

from controlplane.cluster.protocol.builds import Builds
from controlplane.cluster.protocol.commits import Commits
from controlplane.cluster.protocol.images import Images, NodeImages, NodeStores
from controlplane.cluster.protocol.lazy import LazyNodes
from controlplane.cluster.protocol.mounts import Mounts
from controlplane.cluster.protocol.placement import Placements
from controlplane.cluster.protocol.sandboxes import Sandboxes
from controlplane.errors import Problem


class Names(Protocol):
    """Keeps the names of sandboxes in DNS up to date."""

    async def turn(self) -> None:
        """Writes what has changed since the last turn.

        Raises:
            Problem: the cluster does not answer, or refuses.
        """
        ...


class Cluster(Sandboxes, Placements, Images, Protocol):
    """A backend; what not every backend has is a part of its own, which is None where there is none."""

    @property
    def node_images(self) -> NodeImages | None:
        """What its nodes have of images; None: they do not tell."""
        ...

    @property
    def node_stores(self) -> NodeStores | None:
        """Nodes that images can be removed from; None: nothing is ever removed."""
        ...

    @property
    def commits(self) -> Commits | None:
        """Makes images of sandboxes; None: that is not offered here."""
        ...

    @property
    def builds(self) -> Builds | None:
        """Makes images from Dockerfiles; None: that is not offered here."""
        ...

    @property
    def lazy(self) -> LazyNodes | None:
        """Nodes that mount images before they have fetched them; None: all fetch them whole."""
        ...

    @property
    def mounts(self) -> Mounts | None:
        """Mounts data sets and scratch into sandboxes; None: that is not offered here."""
        ...

    @property
    def names(self) -> Names | None:
        """The names of sandboxes in DNS, which one replica at a time keeps up to date; None: they have none."""
        ...


def without_agents(what: str) -> Problem:
    """The refusal of what takes agents on the nodes, where there are none; ``what`` is not possible."""
    detail = f"{what}: this installation has no node agents (nodeAgent.enabled in the chart's values)"
    return Problem("unsupported", detail, value="nodeAgent.enabled")


def without_commits(what: str) -> Problem:
    """The refusal of what takes images of sandboxes, where none are made; ``what`` is not possible."""
    needs = "node agents and a private registry (nodeAgent.enabled and registry.enabled in the chart's values)"
    detail = f"{what}: making images of sandboxes takes {needs}"
    return Problem("unsupported", detail, value="nodeAgent.enabled and registry.enabled")
