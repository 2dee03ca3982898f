"""Asks image registries over HTTP, by the OCI distribution specification, the mirror that copies their images, and
the collector of the private registry.

What an answer means is in ``images``.
"""

from controlplane.registry.client import Registries
from controlplane.registry.collector import CollectorClient
from controlplane.registry.mirror import MirrorAwayError, MirrorClient
from controlplane.registry.outcome import Outcome, RegistryProblem

__all__ = [
    "CollectorClient",
    "MirrorAwayError",
    "MirrorClient",
    "Outcome",
    "Registries",
    "RegistryProblem",
]
