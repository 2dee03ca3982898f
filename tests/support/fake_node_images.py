"""Images on the nodes of a cluster in memory."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.cluster import NO_LAYERS, NodeImage, NodeStore, OpenedFiles, PrefetchProgress
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeCluster


@dataclass
class FakeNodeImages:
    """Two nodes pull what is prefetched; what is known to be somewhere is on the first one."""

    cluster: "FakeCluster"
    prefetched: list[str] = field(default_factory=list)
    fetched_whole: set[str] = field(default_factory=set)  # digests of images that n1 was to mount lazily
    unpulled: dict[str, Problem] = field(default_factory=dict)  # why n2 does not get an image

    async def all(self) -> Sequence[NodeImage]:
        there = {**self.cluster.digests, **self.cluster.commits.kept.committed}
        whole = [NodeImage("n1", (), digest, 1024, lazy=False) for digest in sorted(self.fetched_whole)]
        return [*(NodeImage("n1", (name,), digest, 1024) for name, digest in sorted(there.items())), *whole]

    async def prefetch(
        self, name: str, nodes: int | None = None, layers: Mapping[str, int] = NO_LAYERS
    ) -> AsyncGenerator[PrefetchProgress, None]:
        del layers
        if name in self.cluster.missing_images:
            raise Problem("image_not_found", f"{name}: manifest unknown", image=name)
        self.prefetched.append(name)
        yield PrefetchProgress("n1", "pulling", 512, 1024)
        await asyncio.sleep(self.cluster.start_s)
        yield PrefetchProgress("n1", "here", 1024, 1024)
        if nodes == 1:
            return
        failure = self.unpulled.get(name)
        yield PrefetchProgress("n2", "here" if failure is None else "failed", failure=failure)


@dataclass
class FakeNodeStores:
    """Images that can be removed, by node and name."""

    images: dict[str, dict[str, NodeImage]] = field(default_factory=dict)
    disk_bytes: int | None = 1000
    unremovable: set[str] = field(default_factory=set)  # names

    async def stores(self) -> Sequence[NodeStore]:
        await asyncio.sleep(0.01)
        return [NodeStore(node, list(images.values()), self.disk_bytes) for node, images in self.images.items()]

    async def remove(self, image: NodeImage) -> bool:
        await asyncio.sleep(0.01)
        if image.names[0] in self.unremovable:
            raise Problem("conflict", f"{image.names[0]} is used by 1 containers")
        return self.images[image.node].pop(image.names[0], None) is not None


@dataclass
class FakeLazyNodes:
    """Nodes that mount the images whose names begin with `images`; none, if that is empty."""

    images: str = ""
    unable: tuple[str, ...] = ()  # nodes that mount none
    trouble: str = ""  # of nodes that mount no image now
    unreadable: dict[str, str] = field(default_factory=dict)  # why files of mounted images are not read
    opens: tuple[str, ...] = ()  # what every sandbox opens of its image
    recorded: list[str] = field(default_factory=list)
    records: bool = True

    def takes(self, spec: SandboxSpec) -> bool:
        return spec.pull != "full" and bool(self.images) and spec.image.startswith(self.images)

    def kept_off(self, spec: SandboxSpec) -> frozenset[str]:
        del spec
        return frozenset(self.unable)

    def broken(self, digest: str) -> str:
        return self.unreadable.get(digest, "")

    async def opened(self, sandbox_id: str, during: Callable[[], Awaitable[None]]) -> OpenedFiles:
        self.recorded.append(sandbox_id)
        await during()
        return OpenedFiles(self.opens, more=False)
