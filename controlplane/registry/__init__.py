"""Asks image registries over HTTP, by the OCI distribution specification, and the mirror that copies their images.

What an answer means is in ``images``.
"""

from controlplane.registry.client import Registries
from controlplane.registry.mirror import MirrorAwayError, MirrorClient
from controlplane.registry.outcome import Outcome, RegistryProblem

__all__ = [
    "MirrorAwayError",
    "MirrorClient",
    "Outcome",
    "Registries",
    "RegistryProblem",
]
