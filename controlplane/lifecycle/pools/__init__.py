"""Warm pools: sandboxes that are ready before a create claims them. See ``service.Pools``."""

from controlplane.lifecycle.pools.declarations import PoolDeclarations, Shown
from controlplane.lifecycle.pools.service import Pools
from controlplane.lifecycle.pools.yielding import Yielding

__all__ = ["PoolDeclarations", "Pools", "Shown", "Yielding"]
