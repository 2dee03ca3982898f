"""Pools: sandboxes that are ready before anybody asks for them. See ``service.Pools``."""

from controlplane.lifecycle.pools.desk import Desk, Shown
from controlplane.lifecycle.pools.service import Pools

__all__ = ["Desk", "Pools", "Shown"]
