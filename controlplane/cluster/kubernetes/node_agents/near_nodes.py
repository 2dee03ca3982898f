"""``NearNodes``: the nodes that starts and prefetches prefer for an image, in a cluster with node agents."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import Json
from controlplane.cluster.kubernetes.api_server.watch import Mirror
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.catalogue import CatalogueUpkeep
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.kubernetes.nodes.preference import NodePreference
from controlplane.cluster.protocol import PrefetchProgress
from controlplane.model import SandboxSpec


class NearNodes:
    """What nodes have, kept current. Without agents too little is known of that to prefer any.

    Args:
        agents: of the nodes; None: there are none.
        nodes: those that sandboxes may run on, now.
        clock: the time of day.
    """

    def __init__(self, agents: NodeAgents | None, nodes: Callable[[], Sequence[Node]], clock: Clock) -> None:
        self._agents = agents
        self._nodes = nodes
        self._clock = clock
        self._preference = NodePreference(clock)

    async def run(self) -> None:
        """Follows what the agents tell, for as long as there are some."""
        if self._agents is not None:
            catalogue = self._preference.catalogue
            await CatalogueUpkeep(self._agents, catalogue, self._names, self._clock).run()

    def beside(self, pods: Mirror) -> Mirror:
        """A mirror of the sandboxes' pods that is told what ``pods`` is."""
        return pods if self._agents is None else _Both(pods, self._preference.occupancy)

    def wishes(
        self, sandbox_id: str, spec: SandboxSpec, layers: Mapping[str, int], *, lazily: bool
    ) -> Sequence[tuple[str, int]]:
        """The nodes that a start prefers, with their weights; none where all are as good, or too little is known.

        Args:
            sandbox_id: of the start.
            spec: what it is to be, with the image as nodes pull it.
            layers: of that image, with their bytes; empty: not known.
            lazily: its image is mounted lazily.
        """
        if self._agents is None:
            return ()
        return self._preference.wishes(sandbox_id, spec, layers, self._nodes(), lazily=lazily)

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        """See ``Placements.holding``; none where there are no agents."""
        return () if self._agents is None else self._preference.holding(spec, layers, self._nodes())

    def chosen(self, image: str, count: int | None, layers: Mapping[str, int]) -> Sequence[str]:
        """The nodes that an image is to be pulled to: all that are ready, or so many, which starts prefer then.

        Args:
            image: its name, as nodes pull it.
            count: see ``NodeImages.prefetch``.
            layers: that it has, with their bytes; empty: not known.
        """
        if count is None:
            return [one.name for one in self._nodes() if one.ready == "True"]
        found = self._preference.best(image, layers, self._nodes(), count)
        for node in found:
            # From now on: starts that come meanwhile join its pull.
            self._preference.expect(node, image)
        return found

    async def noted(
        self, image: str, pulls: AsyncGenerator[PrefetchProgress, None]
    ) -> AsyncGenerator[PrefetchProgress, None]:
        """The progress of a prefetch, of which it is noted where the image is."""
        async with aclosing(pulls) as told:
            async for progress in told:
                if progress.state == "here":
                    self._preference.note(progress.node, image)
                elif progress.state == "failed":
                    self._preference.failed(progress.node, image)
                yield progress

    def _names(self) -> Sequence[str]:
        return [one.name for one in self._nodes()]


class _Both:
    """Two mirrors of the same objects."""

    def __init__(self, *mirrors: Mirror) -> None:
        self._mirrors = mirrors

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        for one in self._mirrors:
            one.replace(objects)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        for one in self._mirrors:
            one.put(thing)

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        for one in self._mirrors:
            one.remove(thing)
