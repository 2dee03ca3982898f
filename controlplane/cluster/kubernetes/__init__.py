"""Sandboxes as pods of a Kubernetes cluster, kept apart by the runtime that a RuntimeClass names."""

from controlplane.cluster.kubernetes.client import KubernetesClient
from controlplane.cluster.kubernetes.cluster import KubernetesCluster
from controlplane.cluster.kubernetes.documents import KubernetesDocuments

__all__ = ["KubernetesClient", "KubernetesCluster", "KubernetesDocuments"]
