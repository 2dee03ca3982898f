"""The Kubernetes backend: each sandbox is a pod, isolated by the container runtime that a RuntimeClass names."""

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.cluster import KubernetesCluster
from controlplane.cluster.kubernetes.declared.documents import KubernetesDocuments
from controlplane.cluster.kubernetes.node_agents import recorded_copies
from controlplane.cluster.kubernetes.node_agents.pull_secrets import PullSecrets
from controlplane.cluster.kubernetes.node_pools import KubernetesNodePools

__all__ = [
    "KubernetesClient",
    "KubernetesCluster",
    "KubernetesDocuments",
    "KubernetesNodePools",
    "PullSecrets",
    "recorded_copies",
]
