"""Whether sandboxes of a release that names a DeviceClass can get devices: what that takes is looked for."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from controlplane.capacity.amounts import GPU
from controlplane.cluster.check_result import CheckResult, finding
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.nodes.devices import API, DeviceClaims, NodeDevices
from controlplane.cluster.kubernetes.nodes.nodes import Node

MEND: Final = "Until then creates with gpu are refused or wait; docs/gpu.md says what a cluster needs."
DRIVER: Final = f"Install the driver of the devices, which brings it, or name another one (gpu.deviceClass). {MEND}"
TEMPLATE: Final = f"`helm upgrade` with the values of the release makes it again. {MEND}"
CLASS: Final = f"Create it, with the handler that has nvproxy in the settings of containerd on the nodes. {MEND}"
NONE: Final = (
    "See that the pods of the driver run on the nodes with devices (`kubectl get resourceslices` tells what they "
    f"publish), and that the class selects some. {MEND}"
)
HANDLER: Final = (
    "Give the handler {handler} to containerd on these nodes (docs/gpu.md), or take them from sandboxes; their devices "
    "are given to none."
)


async def check(client: KubernetesClient, release: Release) -> list[CheckResult]:
    """Looks for class, template, runtime and devices; nothing where the release names no class. Cost: five calls.

    Args:
        client: of the API server.
        release: the release.

    Raises:
        Problem: the API server does not answer, or refuses the question.
    """
    given, name = release.devices, f"devices of {release.name}"
    if given is None:
        return []
    device_class = await _found(client, f"{API}/deviceclasses/{given.device_class}")
    if device_class is None:
        return [CheckResult(name, False, f"the cluster has no DeviceClass {given.device_class}", DRIVER)]
    template = f"{API}/namespaces/{release.sandboxes}/resourceclaimtemplates/{given.template}"
    if await _found(client, template) is None:
        detail = f"there is no ResourceClaimTemplate {given.template} in {release.sandboxes}"
        return [CheckResult(name, False, detail, TEMPLATE)]
    handler = ""
    if given.runtime_class:
        runtime = await _found(client, f"/apis/node.k8s.io/v1/runtimeclasses/{given.runtime_class}")
        if runtime is None:
            return [CheckResult(name, False, f"the cluster has no RuntimeClass {given.runtime_class}", CLASS)]
        handler = str(runtime.get("handler") or "")
    slices = (await client.list(f"{API}/resourceslices", {})).items
    nodes = [Node.of(one) for one in (await client.list("/api/v1/nodes", {})).items]
    return [
        judged(
            name,
            DeviceClaims(given.device_class, given.template, given.runtime_class, handler),
            device_class,
            slices,
            nodes,
        )
    ]


def judged(
    name: str, given: DeviceClaims, device_class: Mapping[str, Any], slices: Sequence[Any], nodes: Sequence[Node]
) -> CheckResult:
    """What nodes have of a class that there is. Pure.

    Args:
        name: of the check.
        given: how sandboxes get devices.
        device_class: the class.
        slices: what drivers publish.
        nodes: of the cluster.
    """
    devices = NodeDevices(given)
    devices.classes.replace([dict(device_class)])
    devices.slices.replace(slices)
    if unable := devices.unable(nodes):
        where = f"{', '.join(unable[:3])}{' and others' if len(unable) > 3 else ''}"
        detail = f"nodes with devices do not have the runtime {given.handler}: {where}"
        return CheckResult(name, False, detail, HANDLER.format(handler=given.handler))
    counts = [count for one in nodes if (count := devices.equip(one).allocatable[GPU])]
    detail = (
        f"{sum(counts)} of the DeviceClass {given.device_class} on {len(counts)} node{'' if len(counts) == 1 else 's'}"
    )
    return finding(name, bool(counts), detail, NONE)


async def _found(client: KubernetesClient, path: str) -> Mapping[str, Any] | None:
    try:
        return await client.get(path)
    except Refused as refused:
        if refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
    return None
