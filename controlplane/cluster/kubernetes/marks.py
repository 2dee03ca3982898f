"""The names by which sandboxes' pods, their containers and their state are known to the cluster. Pure."""

from collections.abc import Mapping
from typing import Final

DOMAIN: Final = "rollbox.dev"
LABEL_INSTALLATION: Final = f"{DOMAIN}/installation"
# Says that the pod is a sandbox. Its value is the same for all: Cilium makes an identity of each set of labels,
# computes the policies of all pods anew for each new identity, and has 65,535 of them for a whole cluster.
LABEL_SANDBOX: Final = f"{DOMAIN}/sandbox"
LABEL_SHARD: Final = f"{DOMAIN}/shard"
ANNOTATION_RECORD: Final = f"{DOMAIN}/record"
ANNOTATION_START_BY: Final = f"{DOMAIN}/start-by-ms"
# The address that the readiness push named; written by ``Sandboxes.annotate``.
ANNOTATION_ADDRESS: Final = f"{DOMAIN}/address"
# The names of its data sets by those of its volumes, for what kubelets say of these.
ANNOTATION_DATASETS: Final = f"{DOMAIN}/datasets"
# On a pod that is deleted so that its sandbox can be started anew: no replica takes its end for the sandbox's.
ANNOTATION_UNDONE: Final = f"{DOMAIN}/undone"
# What the usual autoscalers read before they empty a node: Cluster Autoscaler, and Karpenter. Without the first one
# Cluster Autoscaler keeps every node with a pod that no controller owns, warm sandboxes included.
KEPT: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
MOVABLE: Final[Mapping[str, str]] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
FINALIZER: Final = f"{DOMAIN}/tombstone"

SIDECAR: Final = "sidecar"
TARGET: Final = "target"
SIDECAR_PORT: Final = 7070
