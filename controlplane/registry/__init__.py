"""Asks image registries over HTTP, by the OCI distribution specification. What an answer means is in ``images``."""

from controlplane.registry.client import Registries
from controlplane.registry.outcome import Outcome, RegistryProblem

__all__ = ["Outcome", "Registries", "RegistryProblem"]
