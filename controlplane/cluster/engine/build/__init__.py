"""Images from Dockerfiles, made by the engine's own builder: what a Dockerfile may read there, and how it is run."""

from controlplane.cluster.engine.build.builds import Builds

__all__ = ["Builds"]
