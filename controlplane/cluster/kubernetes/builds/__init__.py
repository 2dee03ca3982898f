"""Images from Dockerfiles, built by BuildKit in a pod of its own for each build, which has no network.

``builds`` is what is offered; ``pod`` describes the builder's pod, and ``pods`` runs it; ``builder`` speaks with the
program in it (``node-go/internal/builder``). The control plane brings what a build reads and takes what it has made,
by ``transfer``: no builder has an address of the registry, or a token. ``manifests`` says what may be taken.
"""

from controlplane.cluster.kubernetes.builds.builds import PodBuilds

__all__ = ["PodBuilds"]
