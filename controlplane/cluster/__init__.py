"""Where sandboxes run: the protocol, the engine backend, and the client of the sidecar inside each sandbox.

May import model, errors, clock, settings. The only place that speaks to an engine or a sidecar.
"""

from controlplane.cluster.protocol import (
    Boot,
    Cluster,
    Death,
    Description,
    Gateways,
    Health,
    ImageState,
    Observed,
    Placement,
    Sidecars,
    Started,
    Whereabouts,
)

__all__ = [
    "Boot",
    "Cluster",
    "Death",
    "Description",
    "Gateways",
    "Health",
    "ImageState",
    "Observed",
    "Placement",
    "Sidecars",
    "Started",
    "Whereabouts",
]
