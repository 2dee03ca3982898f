"""Whether the cluster enforces a direct network, asked before a sandbox of it starts.

Without its policies such a pod reaches nothing, as any sandbox does: these only open. So a cluster that does not
enforce one gives less than was asked for, never more, and a start says so in the place of a sandbox that fails later.
"""

from http import HTTPStatus
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.pods.direct import judged
from controlplane.cluster.kubernetes.pods.podspec import PodDefaults
from controlplane.errors import Problem

_ADDRESSES: Final = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/{}"
_NAMES: Final = "/apis/cilium.io/v2/namespaces/{}/ciliumnetworkpolicies/{}"


async def check(client: KubernetesClient, defaults: PodDefaults, network: str) -> None:
    """Refuses a network whose policies the cluster does not have, or has refused. Cost: a call for each of the two.

    Raises:
        Problem: unsupported; or the API server's.
    """
    found = defaults.networks.by_name.get(network)
    if found is None:
        return
    name = f"{defaults.installation}-direct-{network}"
    trouble = ""
    if found.addresses:
        trouble = await _addresses(client, _ADDRESSES.format(defaults.namespace, name), name)
    if found.names and not trouble:
        trouble = await _names(client, _NAMES.format(defaults.namespace, name), name)
    if trouble:
        raise Problem("unsupported", f"the direct network {network} is not enforced here: {trouble}", option="network")


async def _addresses(client: KubernetesClient, path: str, name: str) -> str:
    if await _exists(client, path) is None:
        return f"there is no NetworkPolicy {name}: upgrade the release"
    return ""


async def _names(client: KubernetesClient, path: str, name: str) -> str:
    policy = await _exists(client, path)
    if policy is None:
        return f"there is no CiliumNetworkPolicy {name}: host names need Cilium, install it and upgrade the release"
    return judged(policy)


async def _exists(client: KubernetesClient, path: str) -> dict[str, object] | None:
    try:
        return await client.get(path)
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
        return None
