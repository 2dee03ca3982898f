"""All checks of the installed releases."""

import asyncio
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from controlplane.clock import Clock
from controlplane.cluster.check_result import CheckResult
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.doctor.check_pods import reached, running
from controlplane.cluster.kubernetes.doctor.release_checks import (
    answers,
    clocks,
    devices,
    egress,
    inside,
    names,
    parts,
    programs,
    pull_secrets,
    rights,
)
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.marks import LABEL_INSTALLATION
from controlplane.cluster.kubernetes.pods.podspec import selector
from controlplane.errors import Problem

OWNERS: Final = ("deployments", "statefulsets", "daemonsets")
AGAIN: Final = "See to it, and run this again."


async def check(
    client: KubernetesClient, clock: Clock, deployments: Sequence[Mapping[str, Any]], reach: str = ""
) -> list[CheckResult]:
    """Checks releases of the cluster, and the clocks of its nodes; nothing without a release.

    Args:
        client: of the API server.
        clock: of this machine.
        deployments: of the control planes of these releases.
        reach: what sandboxes are to reach through egress (HOST:PORT), in the place of what the releases name.

    Cost: for each release four pods that start and end, and a sandbox; with egress one more of each; 40 calls, with one
    more for each image pull secret; up to 15 s for the clocks, beside them.
    """
    if not deployments:
        return []
    both = await asyncio.gather(
        _tried("clocks", _one(clocks.check(client, clock))), _all(client, clock, deployments, reach)
    )
    return [*both[0], *both[1]]


async def _all(client: KubernetesClient, clock: Clock, deployments: Sequence[Any], reach: str) -> list[CheckResult]:
    found: list[CheckResult] = []
    for one in deployments:
        release, account = Release.of(one), str(one["spec"]["template"]["spec"].get("serviceAccountName") or "default")
        name = release.name
        found += await _tried(f"parts of {name}", _parts(client, release))
        found += await _tried(f"rights of {name}", _one(rights.check(client, release, account)))
        found += await _tried(f"image pull secrets of {name}", pull_secrets.check(client, release))
        found += await _tried(f"devices of {name}", devices.check(client, release))
        found += await _tried(f"DNS of {name}", _names(client, clock, release))
        found += await _tried(f"name server of {name}", _answers(client, release))
        found += await _tried(f"limits of {name}", _inside(client, release))
        found += await _tried(f"programs of {name}", _programs(client, release))
        found += await _tried(f"egress of {name}", _egress(client, release, reach))
    return found


async def _tried(name: str, tried: Awaitable[list[CheckResult]]) -> list[CheckResult]:
    try:
        return await tried
    except Problem as problem:
        return [CheckResult(name, False, f"not tried: {problem.detail}", AGAIN)]


async def _one(tried: Awaitable[CheckResult]) -> list[CheckResult]:
    return [await tried]


async def _parts(client: KubernetesClient, release: Release) -> list[CheckResult]:
    query = {"labelSelector": f"app.kubernetes.io/instance={release.name}"}
    apps = f"/apis/apps/v1/namespaces/{release.namespace}"
    lists = await asyncio.gather(*(client.list(f"{apps}/{kind}", query) for kind in OWNERS))
    owners = [one for found in lists for one in found.items]
    pods = (await client.list(f"/api/v1/namespaces/{release.namespace}/pods", query)).items
    return [
        parts.ready(release.name, release.namespace, owners),
        parts.versions(release.name, release.namespace, owners, pods),
    ]


async def _names(client: KubernetesClient, clock: Clock, release: Release) -> list[CheckResult]:
    query = {"labelSelector": selector(release.name)}
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{release.sandboxes}/endpointslices"
    # Slices first: a pod that comes between has a name that says nothing yet, which is no fault.
    served = (await client.list(slices, {})).items
    pods = (await client.list(f"/api/v1/namespaces/{release.sandboxes}/pods", query)).items
    services = {"labelSelector": f"{LABEL_INSTALLATION}={release.name}"}
    named = bool((await client.list(f"/api/v1/namespaces/{release.sandboxes}/services", services)).items)
    since = names.settled(datetime.fromtimestamp(clock.now_ms() / 1000, UTC)) if named else ""
    return [names.agree(release.name, served, pods, since=since)]


async def _answers(client: KubernetesClient, release: Release) -> list[CheckResult]:
    """Asks the DNS of the release for a pod of its own and for sandboxes that run; nothing where it has no DNS."""
    gateway = await client.get(f"/apis/apps/v1/namespaces/{release.namespace}/deployments/{release.name}-gateway")
    if (asked := answers.settings(gateway)) is None:
        return []
    (zone, shards), name = asked, f"doctor-{secrets.token_hex(4)}"
    services = f"/api/v1/namespaces/{release.namespace}/services"
    server = str((await client.get(f"{services}/{release.name}-dns"))["spec"]["clusterIP"])
    query = {"labelSelector": selector(release.name)}
    async with running(client, answers.named(release, f"{name}-named", shards)) as own:
        await reached(client, own, "podIP")
        pod = await client.get(own)
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{release.sandboxes}/endpointslices"
        await client.create(slices, answers.endpoints(release, f"{name}-named", shards, pod))
        pods = (await client.list(f"/api/v1/namespaces/{release.sandboxes}/pods", query)).items
        own_name = answers.expected(zone, [pod])
        wanted = {**own_name, **answers.expected(zone, pods)}
        async with running(client, answers.asking(release, f"{name}-asks", server, list(wanted))) as asks:
            status = await reached(client, asks, "phase")
    return [answers.judged(release, next(iter(own_name), ""), wanted, status)]


async def _inside(client: KubernetesClient, release: Release) -> list[CheckResult]:
    async with running(client, inside.manifest(release, f"doctor-{secrets.token_hex(4)}-limits")) as pod:
        status = await reached(client, pod, "phase")
        node = str((await client.get(pod))["spec"].get("nodeName") or "its node")
    return [*inside.judged(release, node, status, release.required_kernel)]


async def _programs(client: KubernetesClient, release: Release) -> list[CheckResult]:
    gateway = await _service(client, release.namespace, f"{release.name}-gateway")
    name = f"doctor-{secrets.token_hex(4)}-programs"
    async with running(client, programs.manifest(release, name, gateway)) as pod:
        status = await reached(client, pod, "phase")
    return [*programs.judged(release, status)]


async def _egress(client: KubernetesClient, release: Release, reach: str) -> list[CheckResult]:
    try:
        path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments/{release.name}-egress"
        part = await client.get(path)
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
        return [egress.absent(release)]
    probe = reach or str((part["metadata"].get("annotations") or {}).get(egress.PROBE) or "")
    places = await _places(client, release)
    async with running(client, egress.manifest(release, f"doctor-{secrets.token_hex(4)}-egress", places, probe)) as pod:
        status = await reached(client, pod, "phase")
    return [*egress.judged(release, status, probe)]


async def _places(client: KubernetesClient, release: Release) -> dict[str, tuple[str, int]]:
    """What no sandbox of a release may reach through egress."""
    query = {"labelSelector": "kubernetes.io/service-name=kubernetes"}
    slices = await client.list("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", query)
    servers = await client.list("/api/v1/services", {"labelSelector": "k8s-app=kube-dns"})
    nodes = await client.list("/api/v1/nodes", {})
    api = await _service(client, "default", "kubernetes")
    gateway = await _service(client, release.namespace, f"{release.name}-gateway")
    return egress.inside(api, slices.items, servers.items, gateway, nodes.items)


async def _service(client: KubernetesClient, namespace: str, name: str) -> tuple[str, int]:
    spec = (await client.get(f"/api/v1/namespaces/{namespace}/services/{name}"))["spec"]
    return str(spec["clusterIP"]), int(spec["ports"][0]["port"])
