"""The backend for a Docker Engine API (Docker or Podman): two containers per sandbox, Unix sockets, no network."""

from controlplane.cluster.engine.cluster import EngineCluster

__all__ = ["EngineCluster"]
