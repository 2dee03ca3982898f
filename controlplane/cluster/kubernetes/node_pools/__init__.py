"""Node pools on Kubernetes: what provides their nodes, and what the scaler marks on them."""

from controlplane.cluster.kubernetes.node_pools.pools import KubernetesNodePools

__all__ = ["KubernetesNodePools"]
