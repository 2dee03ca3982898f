"""The protocols of the backends that sandboxes run on, Kubernetes and container engines alike.

Readiness is no part of them: the sidecar pushes that. Every backend passes ``tests/contract/cluster_suite.py``. Every
failure is a ``Problem``.
"""

from controlplane.cluster.protocol.builds import (
    BuildNetwork,
    BuildPlan,
    Builds,
    BuildWish,
    Built,
    PinnedBuild,
    without_builds,
)
from controlplane.cluster.protocol.cluster import Cluster, Names, without_agents, without_commits
from controlplane.cluster.protocol.commits import Commits, Committed, CommittedImage
from controlplane.cluster.protocol.images import (
    NO_LAYERS,
    Images,
    ImageState,
    NodeImage,
    NodeImages,
    NodeStore,
    NodeStores,
    PrefetchProgress,
    PrefetchState,
    Pulling,
)
from controlplane.cluster.protocol.lazy import LazyNodes, OpenedFiles
from controlplane.cluster.protocol.mounts import Bound, DatasetAt, Mounts, ScratchAt
from controlplane.cluster.protocol.placement import Placement, Placements
from controlplane.cluster.protocol.sandboxes import (
    DEFAULT_PIDS,
    Boot,
    Death,
    Description,
    Observed,
    Sandboxes,
    SandboxNode,
    Started,
)
from controlplane.cluster.protocol.sidecars import Command, Gateways, Health, SandboxUsage, Sidecars

__all__ = [
    "DEFAULT_PIDS",
    "NO_LAYERS",
    "Boot",
    "Bound",
    "BuildNetwork",
    "BuildPlan",
    "BuildWish",
    "Builds",
    "Built",
    "Cluster",
    "Command",
    "Commits",
    "Committed",
    "CommittedImage",
    "DatasetAt",
    "Death",
    "Description",
    "Gateways",
    "Health",
    "ImageState",
    "Images",
    "LazyNodes",
    "Mounts",
    "Names",
    "NodeImage",
    "NodeImages",
    "NodeStore",
    "NodeStores",
    "Observed",
    "OpenedFiles",
    "PinnedBuild",
    "Placement",
    "Placements",
    "PrefetchProgress",
    "PrefetchState",
    "Pulling",
    "SandboxNode",
    "SandboxUsage",
    "Sandboxes",
    "ScratchAt",
    "Sidecars",
    "Started",
    "without_agents",
    "without_builds",
    "without_commits",
]
