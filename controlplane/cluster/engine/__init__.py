"""Sandboxes on a Docker Engine API (Docker or Podman): two containers each, sockets instead of a network."""

from controlplane.cluster.engine.cluster import EngineCluster

__all__ = ["EngineCluster"]
