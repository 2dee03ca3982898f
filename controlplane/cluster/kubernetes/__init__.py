"""Sandboxes as pods of a Kubernetes cluster, kept apart by the runtime that a RuntimeClass names."""

from controlplane.cluster.kubernetes.cluster import KubernetesCluster

__all__ = ["KubernetesCluster"]
