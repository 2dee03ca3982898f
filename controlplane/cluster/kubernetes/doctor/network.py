"""Checks whether NetworkPolicies are enforced, with pods that are started for it and removed again."""

import secrets
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from controlplane.cluster.check_result import CheckResult
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.doctor import network_check
from controlplane.cluster.kubernetes.doctor.check_pods import namespace_with_policies, reached, report_of, running
from controlplane.cluster.kubernetes.doctor.network_check import NetworkCheck
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.errors import Problem
from controlplane.reach.verdict import Verdict, concluded, judged
from controlplane.reach.ways import Way, everywhere

NAME: Final = "network policies"
IMAGE: Final = (
    "Give --image: what `make images` pushed as controlplane, such as registry.example.com/rollbox/controlplane:0.1.0."
)


async def check(
    client: KubernetesClient, deployments: Sequence[Mapping[str, Any]], image: str, runtime_class: str
) -> list[CheckResult]:
    """Checks the namespaces of installed releases; without a release, a temporary namespace.

    Args:
        client: its user needs the right to create pods, and namespaces if there is no release.
        deployments: of the control planes of these releases.
        image: the control plane's image, used if there is no release; empty: without a release nothing is checked.
        runtime_class: the RuntimeClass of sandboxes, used if there is no release; empty: the cluster's default.

    Cost: the start of two pods and 5 s for each release; of three without one.
    """
    releases = [Release.of(one) for one in deployments]
    if not releases and not image:
        return [CheckResult(NAME, False, "not tried: no release is here, and no image to try it with", IMAGE)]
    found: list[CheckResult] = []
    for release in releases:
        found += await _findings(_of_release(client, release), release.name)
    return found or await _findings(_of_namespace(client, image, runtime_class), "a sandbox")


async def _findings(tried: Awaitable[list[Verdict]], where: str) -> list[CheckResult]:
    name = f"{NAME} of {where}"
    try:
        verdicts = await tried
    except Problem as problem:
        return [CheckResult(name, False, f"not tried: {problem.detail}", "See to it, and run this again.")]
    came = concluded(verdicts)
    ways = [CheckResult(f"{one.way.name} from {where}", one.state != "broken", one.sentence) for one in verdicts]
    return [*ways, CheckResult(name, came.isolated, came.sentence, came.fix)]


async def _of_release(client: KubernetesClient, release: Release) -> list[Verdict]:
    namespace, name, _ = release.ready
    ready, _ = await _service(client, namespace, name)
    gateway = Way("gateway", *await _service(client, release.namespace, f"{release.name}-gateway"))
    return await _compared(client, network_check.of_release(release, [*await _closed(client), gateway], ready))


async def _of_namespace(client: KubernetesClient, image: str, runtime_class: str) -> list[Verdict]:
    closed = await _closed(client)
    async with (
        namespace_with_policies(client) as namespace,
        running(client, network_check.peer(namespace, "peer", image)) as peer,
    ):
        address = str((await reached(client, peer, "podIP"))["podIP"])
        return await _compared(client, network_check.of_namespace(namespace, image, runtime_class, closed, address))


async def _compared(client: KubernetesClient, where: NetworkCheck) -> list[Verdict]:
    """Starts both pods, and compares their results."""
    name = f"doctor-{secrets.token_hex(4)}"
    async with running(client, network_check.inside(where, f"{name}-sandbox")) as sandbox:
        node = str((await reached(client, sandbox, "hostIP"))["hostIP"])
        tried = [way.of_node(node) for way in where.tried]
        async with running(client, network_check.outside(where, f"{name}-outside", tried)) as unrestricted:
            seen = [report_of(await reached(client, pod, "phase")) for pod in (sandbox, unrestricted)]
    return judged(tried, *seen)


async def _closed(client: KubernetesClient) -> list[Way]:
    """The destinations of every cluster that a sandbox must not reach."""
    api = Way("API server", *await _service(client, "default", "kubernetes"))
    servers = await client.list("/api/v1/services", {"labelSelector": "k8s-app=kube-dns"})
    addresses = [str(one["spec"]["clusterIP"]) for one in servers.items]
    return [api, *everywhere(name_server=next(iter(addresses), ""))]


async def _service(client: KubernetesClient, namespace: str, name: str) -> tuple[str, int]:
    spec = (await client.get(f"/api/v1/namespaces/{namespace}/services/{name}"))["spec"]
    return str(spec["clusterIP"]), int(spec["ports"][0]["port"])
