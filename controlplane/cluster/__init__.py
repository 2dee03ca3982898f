"""The backends that sandboxes run on, behind one protocol, and the client of the sidecar inside each sandbox.

May import model, errors, clock, settings. The only package that calls an engine, Kubernetes or a sidecar.
"""

from controlplane.cluster.drains import Drain, NodeDrains, NodeState
from controlplane.cluster.protocol import (
    NO_LAYERS,
    Boot,
    Cluster,
    Committed,
    CommittedImage,
    Death,
    Description,
    Gateways,
    Health,
    ImageState,
    NodeImage,
    NodeStore,
    Observed,
    OpenedFiles,
    Placement,
    PrefetchProgress,
    PrefetchState,
    Pulling,
    SandboxNode,
    Sidecars,
    Started,
)

__all__ = [
    "NO_LAYERS",
    "Boot",
    "Cluster",
    "Committed",
    "CommittedImage",
    "Death",
    "Description",
    "Drain",
    "Gateways",
    "Health",
    "ImageState",
    "NodeDrains",
    "NodeImage",
    "NodeState",
    "NodeStore",
    "Observed",
    "OpenedFiles",
    "Placement",
    "PrefetchProgress",
    "PrefetchState",
    "Pulling",
    "SandboxNode",
    "Sidecars",
    "Started",
]
